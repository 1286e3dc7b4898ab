"""DistServe's case: the order of its Figure 1, at rates between those that the study finds and the paper prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.apart import CLUSTERS, SAID, slower
from simlora import simulate
from simlora.sweeps.outcome import figure

SLOWER = 1.85
"""How many times as long prefills take so that one GPU which only prefills serves what the paper's does."""


def meets(name: str, rate_rps: float, longer: float, folder: Path) -> bool:
    """Whether nine of ten first tokens and nine of ten times a token are within their targets."""
    gpus, prefill, _ = CLUSTERS[name]
    own = [f"cluster.replicas={gpus}", f"cluster.prefill_replicas={prefill}"]
    length = [f"workload.arrivals.rate_rps={rate_rps}", "workload.duration_s=60"]
    result = simulate([*SAID["case"], *own, *length, f"calibration={slower(longer, folder)}"])
    found = {metric: figure(result.summary, metric) for metric in SAID["limits"]}
    return all(value is not None and value <= SAID["limits"][metric] for metric, value in found.items())


@pytest.mark.parametrize(
    ("name", "met_rps", "missed_rps"),
    [
        ("one does both", 1.4, 3.0),
        ("one of six prefills", 4.0, 8.0),
        ("one of six decodes", 9.0, 16.0),
        ("two prefill, one decodes", 9.0, 16.0),
    ],
)
def test_a_gpu_serves_more_where_it_does_one_of_both(
    name: str, met_rps: float, missed_rps: float, tmp_path: Path
) -> None:
    """Two that prefill and one that decodes serve three requests/s each and more; one that does both does not."""
    assert meets(name, met_rps, SLOWER, tmp_path)
    assert not meets(name, missed_rps, SLOWER, tmp_path)
