"""LoRAServe's studies: they can be set up, and small ones of them have the order that they are about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import experiments.loraserve
from experiments.studies.points import points
from experiments.studies.running import run_all
from experiments.studies.study import Study, read_all
from simlora.api import simulate
from simlora.config.composing import compose
from simlora.config.setup import prepare

FOLDER = Path(experiments.loraserve.__file__).parent
STUDIES = read_all(FOLDER)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_point_of_a_study_can_be_set_up(study: Study) -> None:
    seen = set()
    for point in points(study):
        if (point.panel, point.series) not in seen:
            seen.add((point.panel, point.series))
            prepare(*compose([*point.overrides, "workload.duration_s=20"]))


@pytest.mark.parametrize("panel", ["highest", "sum"])
def test_a_high_rank_beside_it_makes_a_low_one_wait(panel: str) -> None:
    """More so where the highest rank of a batch counts."""
    study = STUDIES["figure_1"]
    small = replace(study, settings={**study.settings, "workload.duration_s": 300})
    here = [point for point in points(small) if point.panel == panel and point.x == 3]
    found = run_all(here, jobs=1)
    ttft_s = {point.series: found[point.overrides].figure("ttft_s.p95") for point in here}
    alone, beside = ttft_s["rank_8"], ttft_s["rank_128"]
    assert alone is not None
    assert beside is not None
    assert beside > (1.5 if panel == "highest" else 1.3) * alone


def test_hosts_hold_what_they_serve_and_toppings_all() -> None:
    few = [
        "cluster.replicas=4",
        "workload=loraserve",
        "workload.duration_s=200",
        "report=false",
        "timeline=false",
    ]
    ours = simulate(["system=loraserve", *few]).summary["adapters"]
    assert max(ours["host_adapters"]) < 25
    assert sum(ours["host_adapters"]) >= 25
    assert ours["remote_loads"] > 0
    toppings = simulate(["system=slora_toppings", *few]).summary["adapters"]
    assert toppings["host_adapters"] == [25] * 4
    assert toppings["remote_loads"] == 0


def test_a_host_that_fails_loses_no_request() -> None:
    few = [
        "cluster.replicas=4",
        "workload=loraserve",
        "workload.duration_s=120",
        "report=false",
        "timeline=false",
    ]
    failed = simulate(["system=loraserve", *few, "cluster.failures=[{host: 1, at_s: 40, until_s: 80}]"])
    assert (failed.requests["status"] == "finished").all()
    during = failed.requests[(failed.requests["admitted_s"] > 40) & (failed.requests["admitted_s"] < 80)]
    assert not (during["replica"] == 1).any()
    assert (failed.requests["migrations"] > 0).any()
    assert failed.summary["adapters"]["storage_loads"] > 0
