"""A trace that begins hours later is served as well: every figure is from its first arrival on."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simlora
from simlora.sweeps.table import figures

HOURS_S = 3 * 3600.0


def ran(path: Path) -> tuple[dict[str, float], str, tuple[str, ...]]:
    """Return the figures of a run of the trace but for those of the simulator, its load, and its notices."""
    overrides = [f"workload.path={path}", "cluster.replicas=2", "router=most_idle", "report=false"]
    result = simlora.simulate(["workload=file", *overrides])
    kept = {name: value for name, value in figures(result.summary) if not name.startswith("simulation.")}
    return kept, result.summary["load"]["label"], result.notices


def test_a_shift_of_three_hours_changes_no_figure(tmp_path):
    """Seconds that were shifted and shifted back are off by 1e-12 s, no more."""
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(0.5, 120))
    rows = pd.DataFrame(
        {
            "arrival_s": arrival_s - arrival_s[0],
            "adapter": rng.integers(0, 5, 120),
            "rank": 8,
            "prompt_tokens": rng.integers(10, 400, 120),
            "output_tokens": rng.integers(1, 80, 120),
        }
    )
    early, late = tmp_path / "early.csv", tmp_path / "late.csv"
    rows.to_csv(early, index=False)
    rows.assign(arrival_s=rows["arrival_s"] + HOURS_S).to_csv(late, index=False)
    (expected, load, quiet), (found, later_load, notices) = ran(early), ran(late)
    assert "throughput_rps" in expected
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    assert (later_load, quiet) == (load, ())
    assert "arrival_s begins at 10800 s; it now begins at 0" in notices[-1]
