"""Splitwise's case: its SLOs, and its table of iterations read in two ways. The rates are the study's own to print."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from experiments.splitwise import (
    CASE,
    LOOKED_UP,
    MEASURED,
    SAID,
    TABLE,
    Cluster,
    slowdowns,
    written,
)
from simlora import simulate
from simlora.latency import calibration as calibrations
from simlora.latency.iteration import IterationModel


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a made-up table: an A100's step takes 40 ms, and 0.5 ms more a request."""
    rows = [
        {
            "model": "bloom-176b",
            "hardware": hardware,
            "tensor_parallel": 8,
            "prompt_size": prompt,
            "batch_size": batch,
            "token_size": 128,
            "prompt_time": (20 + 0.1 * prompt * batch) / faster,
            "token_time": (40 + 0.5 * batch) / faster,
        }
        for hardware, faster in (("a100-80gb", 1), ("h100-80gb", 2))
        for prompt, batch in [(128, 1), (256, 1), (1024, 1), (512, 1), (512, 4), (512, 16), (512, 64)]
    ]
    path = tmp_path / TABLE
    path.parent.mkdir()
    pd.DataFrame(rows).to_csv(path, index=False)
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    return tmp_path


def test_steps_grow_with_the_batch_as_measured_and_not_as_looked_up(measured: Path) -> None:
    step_s = {
        prices: IterationModel(calibrations.load(str(written(prices, measured)["a100"]))).decode_s
        for prices in (MEASURED, LOOKED_UP)
    }
    assert step_s[MEASURED](64, 64 * 512) == pytest.approx(0.072)
    assert step_s[LOOKED_UP](64, 64 * 512) == step_s[LOOKED_UP](1, 512) == pytest.approx(0.0405)


def test_one_kind_of_gpu_prefills_and_the_other_decodes(measured: Path) -> None:
    own = Cluster("h100", 1, 1, "a100").overrides(written(LOOKED_UP, measured))
    requests = simulate([*CASE, *SAID["coding"], *SAID["alone"], *own]).requests
    assert requests.ttft_s.tolist() == pytest.approx([0.085] * 20, rel=1e-3)
    assert requests.tpot_s.tolist() == pytest.approx([0.0405] * 20, rel=0.02)


def test_a_slowdown_is_over_the_same_request_alone() -> None:
    alone = pd.DataFrame({"prompt_tokens": [5, 7, 9], "ttft_s": 0.1, "tpot_s": 0.05, "latency_s": 1.0})
    busy = alone.iloc[:2].assign(ttft_s=[0.2, 0.3], latency_s=[1.0, math.nan])
    found = slowdowns(busy, alone)
    assert found["ttft_s"] == pytest.approx([2.0, 2.0, 2.0]), "the lower of two"
    assert found["tpot_s"] == pytest.approx([1.0, 1.0, 1.0])
    with pytest.raises(AssertionError, match="the same requests"):
        slowdowns(busy, alone.iloc[1:])
