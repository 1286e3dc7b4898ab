"""LoRAServe's workloads, all the way from the command line to a scenario and its errors."""

from __future__ import annotations

import pytest

from simlora.config.composing import choices, compose
from simlora.config.setup import prepare
from simlora.core.errors import InputError


def setup(*overrides: str):
    return prepare(*compose(overrides))


SMALL = ("workload.duration_s=60", "workload.arrivals.rate_rps=2")
BY_RANK = ("rank_uniform", "rank_exponential", "rank_power_law", "shifting_skew")


@pytest.mark.parametrize("popularity", BY_RANK)
@pytest.mark.parametrize("arrivals", ["poisson", "even"])
def test_every_trace_of_lora_serve_is_a_choice(popularity: str, arrivals: str):
    chosen = (f"workload/popularity={popularity}", f"workload/arrivals={arrivals}")
    trace = setup("workload=loraserve", *chosen, *SMALL).scenario.trace
    assert {spec.rank for spec in trace.adapters} == {8, 16, 32, 64, 128}
    assert len(trace.adapters) == 25
    assert 80 < len(trace) < 160


def test_the_choices_are_listed():
    assert {"loraserve", "loraserve_production"} <= set(choices("workload"))
    assert {*BY_RANK, "top_heavy"} <= set(choices("workload/popularity"))
    assert choices("workload/lengths") == ["azure_conv"]


def test_the_production_trace_is_a_choice():
    found = setup("workload=loraserve_production", "workload.requests=500", "workload.rate_rps=10")
    assert len(found.scenario.trace) == 500
    assert found.workload["adapters"] == 100


@pytest.mark.parametrize(
    "overrides, message",
    [
        (
            ("workload=loraserve", "workload.adapters=3"),
            "workload.adapters is 3, must be at least 5, one for each of workload.popularity.ranks",
        ),
        (
            ("workload=loraserve", "workload/popularity=rank_power_law", "workload.popularity.alpha=-1"),
            "workload.popularity.alpha is -1, must be at least 0",
        ),
        (
            ("workload=loraserve", "workload/popularity=top_heavy", "workload.popularity.top=25"),
            "workload.popularity.top is 25, must be less than the 25 adapters of workload.adapters",
        ),
        (
            ("workload=loraserve_production", "workload.adapters=3"),
            "workload.adapters is 3, must be a whole number of adapters, at least 5",
        ),
        (
            ("workload=loraserve_production", "workload.trends=[[1]]"),
            "workload.trends has 1 entries, must have one for each of the 5 of workload.ranks",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(overrides: tuple[str, ...], message: str):
    with pytest.raises(InputError) as error:
        setup(*overrides)
    assert message in str(error.value)


def test_without_the_trace_its_lengths_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(tmp_path))
    with pytest.raises(
        InputError, match=r"does not exist; set SIMLORA_TRACE_DIR to its folder or workload.len"
    ):
        setup("workload=loraserve", "workload/lengths=azure_conv")
