"""Comparisons are fair: sides are alike in what is not compared, unless a difference is asked for."""

from contextlib import nullcontext
from typing import Any

import pytest

import simlora
from simlora.api.preparing import composed
from simlora.config.setup import resolved
from simlora.core.errors import InputError
from simlora.report.format import with_changes
from simlora.report.sides import Side, heading
from simlora.sweeps.grid import facts_of, grid
from simlora.sweeps.sides import allowed, check, of_run, of_tree, sides
from simlora.sweeps.table import _check_sides

ALIKE = ("gpu=a10g", "model=llama_7b")


def checked(*overrides: str, across: str = "") -> None:
    """Check the sides of a grid, as a sweep does before it runs."""
    asked = grid(overrides)
    _check_sides(asked, list(asked.cells()), allowed(across) if across else frozenset())


# What is refused, and what is not


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("system=slora,fastlibra",), "differ in gpu: a10g (slora), npu_64g (fastlibra); set gpu= alike"),
        (
            ("system=slora,dlora", "gpu=a800_80g", "model=llama_2_7b"),
            "differ in slo: TTFT < 6 s (slora), Time per token < 500 ms (dlora); set slo.* alike for all, or allow it "
            "with --across slo",
        ),
        (
            ("system=slora,vllm", "gpu=a10g"),
            "differ in model: llama_7b (slora), llama_3_1_8b (vllm); set model= alike",
        ),
    ],
)
def test_a_difference_that_a_system_brings_along_is_refused(overrides, said):
    with pytest.raises(InputError) as refused:
        checked(*overrides)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ("system=slora,vllm", *ALIKE),  # an engine belongs to its system, and a calibration to its engine
        ("gpu=a10g,a100_80g", "model=llama_7b"),
        ("slo.ttft_s=1,2",),
        ("calibration=null,a100_80g-llama_7b-tp1",),
        ("cluster.replica_groups=[],[{gpu: a100_80g, replicas: 1}]", "cluster.replicas=2"),
        ("replica.tp=1,2", "gpu=a100_80g", "model=llama_2_7b"),  # GPUs of one kind
    ],
)
def test_what_the_grid_varies_is_asked_for(overrides):
    checked(*overrides)


def test_across_allows_what_it_names_and_nothing_else():
    systems = "system=slora,vllm"
    checked(systems, across="gpu,model")
    with pytest.raises(InputError, match=r"differ in model: .* --across model$"):
        checked(systems, across="gpu")
    assert allowed(["gpu", "slo, engine"]) == {"gpu", "slo", "engine"}
    with pytest.raises(
        InputError, match="--across 'gpus' is nothing that sides may differ in; did you mean gpu"
    ):
        allowed("gpus")


def run(name: str, **facts: Any) -> dict[str, Any]:
    conditions = {
        "gpu": "a10g",
        "model": "m",
        "engine": "slora",
        "slo": "TTFT < 6 s",
        "calibration": "a10g-m-tp1",
    }
    return {"name": name, "system": name, **conditions, **facts}


OTHER = {"engine": "vllm", "calibration": "a10g-m-tp1-vllm"}
VARIED = [run("a", **{"slo.ttft_s": 1}), run("b", **{"slo.ttft_s": 2}, slo="TTFT < 2 s")]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        # An engine may differ between systems, not within one.
        ([run("slora"), run("vllm", **OTHER)], ""),
        (
            [run("slora"), run("again", **OTHER) | {"system": "slora"}],
            r"differ in engine: slora \(slora\), vllm \(again\); set engine= alike",
        ),
        # A calibration of another name is a difference.
        ([run("a"), run("b", calibration="a10g-m-tp2")], ""),
        (
            [run("a"), run("b", calibration="mine.yaml")],
            r"differ in calibration: that of its GPU, .* \(a\), mine.yaml \(b\)",
        ),
        # What is not known is none.
        ([run("a"), run("b", gpu=None, slo=float("nan"), calibration="–")], ""),
        # Runs of one value must still be alike.
        (VARIED, ""),
        ([*VARIED, run("c", **{"slo.ttft_s": 2}, slo="TPOT < 1 s")], "differ in slo"),
    ],
)
def test_runs_are_alike_in_what_is_not_varied(rows, said):
    with pytest.raises(InputError, match=said) if said else nullcontext():
        check(rows, ["slo.ttft_s"], frozenset())


# What each side is


def test_sides_are_configurations_that_are_alike():
    rows = [run("a", kind="published"), run("b", kind=None), run("c", gpu="l40s")]
    one, two = sides(rows)
    assert one == Side(("a", "b"), "a10g", "m", "slora", "TTFT < 6 s", "a10g-m-tp1 (published)")
    assert heading([one, two]) == (
        "a; b: m on a10g, steps of slora, SLO TTFT < 6 s, calibration a10g-m-tp1 (published)\n"
        "c: m on l40s, steps of slora, SLO TTFT < 6 s, calibration a10g-m-tp1"
    )
    many = Side(tuple("abcdefgh"), "–", "–", "–", "–", "–")
    assert many.text() == "a; b; c; d; e; f and 2 more: GPU, model, SLO and calibration are not known"


def test_a_configuration_and_its_run_say_the_same():
    overrides = [
        *ALIKE,
        "cluster.replicas=2",
        "cluster.replica_groups=[{gpu: a100_80g, replicas: 1}]",
        "workload.duration_s=10",
        "slo.classes=[{name: gold, share: 0.2, ttft_s: 1}, {name: free, share: 0.8, ttft_s: 10}]",
    ]
    tree = resolved(composed(overrides)[0])
    found = of_run(simlora.simulate(overrides).summary, tree)
    assert found == of_tree(tree)
    assert found["gpu"] == "a10g and a100_80g"
    assert found["slo"].endswith("gold: TTFT < 1 s; free: TTFT < 10 s")


# What a changed system is called


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (("system=slora", "gpu=a10g", "workload.rate_rps=3", "cluster.replicas=4", "slo.ttft_s=1"), "slora"),
        (("system=slora", "scheduler=earliest_deadline"), "slora + scheduler=earliest_deadline"),
        (("system=vllm", "replica.max_loras=32"), "vllm + max_loras=32"),
        (("system=vllm", "engine=null", "kernel=mbgmv"), "vllm + kernel=mbgmv + engine=null"),
        (("system=slora", "replica.target_modules=[q,k]"), "slora + target_modules=[q,k]"),
        (
            ("system=slora", "router._target_=mine.LeastLoaded", "+router.limit=3"),
            "slora + router=least_loaded + limit=3",
        ),
        (("system=loraserve", "placement.operating_points={8: 4000}"), "loraserve"),
        (("system=vllm", "speculation.draft=eagle"), "vllm"),
    ],
)
def test_a_system_is_called_by_what_was_changed_of_it(overrides, name):
    facts = facts_of(overrides)
    assert with_changes(facts["system"], facts["changed"]) == name
