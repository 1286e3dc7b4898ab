"""The highest rate within an SLO, and the fewest replicas for a rate."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import simlora
from experiments.coverage.capacities import CASES, of_theory
from simlora import Capacity, capacity
from simlora.core import libm
from simlora.core.errors import InputError
from simlora.sweeps import running
from simlora.sweeps.outcome import RAN, Outcome
from simlora.sweeps.question import asked
from simlora.sweeps.statistics import interval
from tests.traces import workload

SMALL = (
    "workload=synthetic",
    "workload.arrivals.rate_rps=4",
    "workload.requests=300",
    "workload.duration_s=null",
    "workload/prompt_tokens=fixed",
    "workload.prompt_tokens.tokens=200",
    "workload/output_tokens=fixed",
    "workload.output_tokens.tokens=40",
    "workload.adapters=8",
    "replica.kv_token_budget=14500",
)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capacity")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(folder))
        yield folder


def found(*overrides: str, **asked: object) -> Capacity:
    """Return what a search finds with runs as long as configured."""
    return capacity(
        [*SMALL, *overrides], **({"seeds": 2, "jobs": 1, "precision": 0.05, "longest": 1} | asked)
    )


def kept(rate: float, seed: int, *overrides: str) -> bool:
    """Whether a run meets its SLO and is not past saturation."""
    result = simlora.simulate(
        [*SMALL, *overrides, f"workload.arrivals.rate_rps={rate:g}", f"seed={seed}", "timeline=false"]
    )
    return bool(result.summary["slo"]["attainment"] >= 0.95 and result.summary["load"]["label"] != "past")


def outcome(**changes: object) -> Outcome:
    """Return a run by hand: 100 requests, all within their SLO."""
    summary = {
        "ttft_s": {"p95": 1.0, "mean": 0.5},
        "slo": {"attainment": 1.0},
        "requests": {"submitted": 100, "finished": 100},
        "load": {"label": "below", "arrivals_s": 60.0},
        "migration": None,
    }
    return Outcome(RAN, summary | changes)


# The highest rate


def test_the_rate_meets_the_slo_and_the_next_does_not():
    answer = found()
    assert list(answer.seeds["seed"]) == [0, 1]
    assert list(found("seed=7", precision=0.5).seeds["seed"]) == [7, 8], "from the configuration's own"
    for row in answer.seeds.to_dict("records"):
        assert kept(row["value"], row["seed"])
        assert not kept(row["beyond"], row["seed"])
        assert row["beyond"] <= 1.05 * row["value"] * (1 + 1e-5)
    assert answer.value == pytest.approx(answer.seeds["value"].mean())
    runs = answer.runs
    assert runs["met"].equals((runs["slo.attainment"] >= 0.95) & (runs["load"] != "past"))
    assert not runs.duplicated(["seed", "value"]).any()


def test_a_run_of_which_too_much_has_missed_is_not_run_to_its_end():
    question = asked(SMALL, "rate", None, 32.0, None, 0.9, 1, 0.05)
    assert "until_missed=0.1" in question.overrides_for(0, 32.0)
    ended = simlora.simulate(question.overrides_for(0, 32.0)).summary
    assert ended["requests"]["unfinished"] > 0
    assert not question.met(Outcome(RAN, ended))
    of_a_figure = asked(SMALL, "rate", None, None, {"ttft_s.p95": 5.0}, None, 1, 0.05)
    assert not any("until_missed" in one for one in of_a_figure.overrides_for(0, 1))


def test_a_limit_on_a_figure_is_another_slo():
    strict, loose = (found(seeds=1, limits={"ttft_s.p95": limit}) for limit in (0.5, 5.0))
    assert strict.value < loose.value
    assert (loose.seeds["ttft_s.p95"] < 5.0).all()
    both = found(seeds=1, limits={"ttft_s.p95": 5.0, "tpot_s.mean": 0.1}, attainment=0.5)
    assert both.value <= loose.value
    assert both.question.figures == ["ttft_s.p95", "tpot_s.mean", "slo.attainment"]


def test_the_answer_does_not_depend_on_the_processes():
    alone, several = found(jobs=1), found(jobs=2)
    assert alone.to_dict() == several.to_dict()
    assert alone.runs.equals(several.runs)


def test_the_interval_is_over_the_seeds_and_takes_the_precision_in():
    answer = found(seeds=3)
    low, high = answer.interval
    assert low == pytest.approx(math.exp(interval(libm.log(answer.seeds["value"]))[0]))
    assert high == pytest.approx(math.exp(interval(libm.log(answer.seeds["beyond"]))[1]))
    assert 0 < low < answer.value < high
    assert all(map(math.isnan, found(seeds=1).interval))
    assert all(map(math.isnan, found("workload.arrivals.rate_rps=20", find="replicas").interval))


def test_a_workload_with_a_seed_of_its_own_is_drawn_anew():
    question = asked(["workload.duration_s=20"], "rate", None, None, None, None, 2, 0.5)
    assert "workload.seed=1" in question.overrides_for(1, 2.0)
    assert not any(word.startswith("workload.seed") for word in found().question.overrides_for(1, 2.0))


def test_another_key_can_be_varied_in_whole_numbers():
    answer = found("workload.arrivals.rate_rps=20", key="workload.requests", limits={"ttft_s.p99": 2.0})
    assert all(value == int(value) for value in answer.runs["value"])
    assert (answer.seeds["beyond"] == answer.seeds["value"] + 1).all()
    assert answer.question.unit == "workload.requests"


# The fewest replicas


def test_one_replica_fewer_is_not_enough():
    answer = found("workload.arrivals.rate_rps=20", find="replicas")
    assert answer.value == answer.seeds["value"].max() > 1
    for row in answer.seeds.to_dict("records"):
        few = f"cluster.replicas={int(row['beyond'])}"
        assert row["beyond"] == row["value"] - 1
        assert not kept(20.0, row["seed"], few)
    one = found("workload.arrivals.rate_rps=0.5", find="replicas", start=8)
    assert one.value == 1
    assert one.to_dict()["seeds"][0]["beyond"] is None


# Runs are kept


def test_an_interrupted_search_goes_on_where_it_was(tmp_path, monkeypatch):
    whole = found()
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path))
    real, done = running.simulated, []

    def stopped_at_the_fifth(overrides: tuple[str, ...]) -> object:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(overrides)
        return real(overrides)

    monkeypatch.setattr(running, "simulated", stopped_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        found()
    again: list[tuple[str, ...]] = []
    monkeypatch.setattr(running, "simulated", lambda overrides: again.append(overrides) or real(overrides))
    assert found().to_dict() == whole.to_dict()
    assert not set(again) & set(done)
    assert len(again) == len(whole.runs) - 4


def test_more_seeds_only_add_runs(monkeypatch):
    found(seeds=2)
    real, again = running.simulated, []
    monkeypatch.setattr(running, "simulated", lambda overrides: again.append(overrides) or real(overrides))
    found(seeds=3, precision=0.05)
    assert {word for overrides in again for word in overrides if word.startswith("seed=")} <= {"seed=2"}


# What comes out


def test_the_command_that_it_names_asks_the_same(tmp_path):
    answer = found(limits={"ttft_s.p95": 5.0}, start=2.0)
    assert answer.to_dict()["command"].split()[:1] == ["simlora-capacity"]
    for word in (
        *SMALL,
        "--limit=ttft_s.p95=5",
        "--seeds=2",
        "--start=2",
        "--key=workload.arrivals.rate_rps",
    ):
        assert word in answer.command


def test_it_is_written_and_drawn(tmp_path):
    answer = found(limits={"ttft_s.p95": 5.0})
    answer.save(tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new/folder").iterdir()) == [
        "capacity.json",
        "capacity.png",
        "runs.parquet",
    ]
    said = json.loads((tmp_path / "new/folder/capacity.json").read_text())
    assert said == answer.to_dict()
    assert pd.read_parquet(tmp_path / "new/folder/runs.parquet").equals(answer.runs)
    ax = answer.plot()
    assert ax.get_xlabel() == "requests/s"
    assert ax.get_ylabel() == "ttft_s.p95"
    with pytest.raises(InputError, match=r"not about tpot_s.mean; choose one of ttft_s.p95"):
        answer.plot("tpot_s.mean")


# What cannot be asked


@pytest.mark.parametrize(
    ("asked", "overrides", "sentence"),
    [
        ({"find": "gpus"}, (), "find is 'gpus', must be rate or replicas"),
        ({"limits": {"ttft_s.p95": -1}}, (), "the limit of ttft_s.p95 is -1, must be greater than 0"),
        ({"limits": {"ttft.p95": 1}}, (), "summary.json has no number ttft.p95; did you mean ttft_s.p95"),
        ({"attainment": 1.5}, (), "attainment is 1.5, must be greater than 0 and at most 1"),
        ({}, ("slo.ttft_s=null",), "an attainment is of slo.*, and none is set"),
        ({"seeds": 0}, (), "seeds is 0, must be a whole number, at least 1"),
        ({"least": 5.0, "start": 4.0}, (), "least is 5.0, must be at least 0.0001 and at most 4"),
        ({"least": 1.0, "find": "replicas"}, (), "least is of a rate"),
        ({"precision": 1e-9}, (), "precision is 1e-09, must be at least 0.0001"),
        (
            {"key": "workload.rate_rps"},
            (),
            "there is no key workload.rate_rps; did you mean workload.arrivals.rate_rps",
        ),
        ({"key": "workload.adapters", "start": 2.5}, (), "must be a whole number"),
        ({"start": -1}, (), "workload.arrivals.rate_rps, from which the search starts, is -1"),
        ({"limits": {"ttft_s.p95": 1e9}}, ("workload.requests=1",), "(ttft_s.p95 < 1e+09) is met even at"),
        ({"limits": {"slo.attainment": 0.9}}, (), "slo.attainment has no upper limit; give attainment"),
        ({"key": "cluster.replicas"}, (), "more of cluster.replicas is better"),
        ({}, ("until_s=30",), "until_s ends runs while requests still run"),
        ({"find": "replicas"}, ("autoscaler=by_queue",), "look for replicas with autoscaler=fixed"),
        ({}, ("hydra.run.dir=here",), "hydra.run.dir=here is for simlora itself"),
        (
            {"longest": 0},
            (),
            "longest is 0, must be a whole number of times the configured length, at least 1",
        ),
        ({"jobs": 0}, (), "jobs is 0, must be a whole number of processes"),
        (
            {"find": "replicas", "limits": {"ttft_s.p95": 1e-4}},
            ("workload.requests=40",),
            "even at cluster.replicas=64",
        ),
        ({}, ("no_key=1",), "there is no key no_key"),
        ({}, ("replica.kv_token_budget=10",), "every one of the 300 requests is rejected"),
        (
            {"start": 4.0, "least": 0.5},
            ("slo.ttft_s=0.001",),
            "not met even at workload.arrivals.rate_rps=0.5; set one that can be met",
        ),
    ],
)
def test_bad_input_is_a_sentence(asked, overrides, sentence):
    with pytest.raises(InputError) as error:
        found(*overrides, **{"seeds": 1, **asked})
    assert sentence in str(error.value)


# What an SLO is


LOST = {"submitted": 100, "finished": 94}
ENOUGH = {"submitted": 100, "finished": 95}


@pytest.mark.parametrize(
    ("limits", "changes", "met"),
    [
        # A limit is an upper one, and not met where it is reached.
        ({"ttft_s.p95": 1.0}, {}, False),
        ({"ttft_s.p95": 1.0}, {"ttft_s": {"p95": 0.999}}, True),
        ({"ttft_s.p95": 2.0}, {"requests": ENOUGH}, True),
        ({"ttft_s.p95": 2.0}, {"requests": LOST}, False),
        ({}, {"slo": {"attainment": 0.95}}, True),
        ({}, {"slo": {"attainment": 0.949}}, False),
        *(
            ({}, {"load": {"label": label, "arrivals_s": 60.0}}, True)
            for label in ("below", "unknown", "near")
        ),
        ({}, {"load": {"label": "past", "arrivals_s": 60.0}}, False),
    ],
)
def test_which_runs_keep_an_slo(limits, changes, met):
    asked = replace(found().question, limits=limits, attainment=None if limits else 0.95)
    assert asked.met(outcome(**changes)) is met


# How long runs are


SHORT = ("workload.requests=100",)


def test_runs_get_longer_until_the_answer_no_longer_moves():
    """A queue that begins empty meets 2 s at a rate that it cannot go on meeting."""
    configured, answer = (found(*SHORT, seeds=1, longest=longest) for longest in (1, 64))
    assert [one["times"] for one in answer.lengths] == [4**i for i in range(len(answer.lengths))]
    assert len(answer.lengths) > 1
    assert answer.lengths[0]["value"] == configured.value > 1.05 * answer.value
    assert answer.settled
    assert answer.moved == pytest.approx(abs(answer.value / answer.lengths[-2]["value"] - 1))
    assert answer.moved <= 0.05
    assert all(one["value"] < before["value"] * 1.05 for before, one in pairwise(answer.lengths))
    assert list(answer.runs["times"].unique()) == [one["times"] for one in answer.lengths]
    assert answer.to_dict()["lengths"] == answer.lengths


def test_a_bound_ends_it_and_the_answer_says_so():
    bounded = found(*SHORT, longest=4)
    assert [one["times"] for one in bounded.lengths] == [1, 4]
    assert not bounded.settled
    assert "so not settled: allow a higher --longest" in bounded.text().splitlines()[4]
    assert "--longest=4" in bounded.command
    configured = found(*SHORT).text()
    assert "as configured; longer runs may answer otherwise" in configured
    assert "], 95 % interval over seeds" in configured


def test_the_answer_is_what_queueing_theory_says():
    """`python -m experiments.coverage capacities` has a hundred searches, of S-LoRA too."""
    case = CASES["M/M/1, 5 s"]
    answer = case.capacity(0, longest=4, precision=0.05)
    assert answer.interval[0] < of_theory(case) < answer.interval[1]
    assert answer.value == pytest.approx(of_theory(case), rel=0.05)


@pytest.mark.parametrize(
    ("overrides", "lasts"),
    [
        (("workload=slora",), {"workload.duration_s": 300.0}),
        (("workload=maf", "workload/arrivals=diurnal"), {}),
        (("workload=per_adapter",), {"workload.duration_s": 3600.0}),
        (("workload=chatbot",), {"workload.duration_s": 1800.0, "workload.epochs": 6}),
        (("workload=loraserve_production",), {}),
    ],
)
def test_a_longer_run_has_the_same_rate_or_there_is_none(overrides, lasts):
    question = asked(overrides, "rate", None, None, {"ttft_s.p95": 1.0}, None, 1, 0.02)
    assert question.lasts == lasts
    longer = question.longer(1.5).overrides_for(3, 1.5)
    assert {word for key, value in lasts.items() if (word := f"{key}={4 * value!r}")} <= set(longer)


def test_a_search_of_replicas_goes_on_until_their_number_stays():
    answer = found("workload.arrivals.rate_rps=12", *SHORT, find="replicas", longest=256)
    assert answer.settled
    assert answer.lengths[0]["value"] < answer.value == answer.lengths[-2]["value"]


FIFTY_SECONDS = [f"{i / 2},a,8,200,40" for i in range(100)]


def test_what_changed_while_it_ran_is_said(tmp_path, monkeypatch):
    read, path = workload(tmp_path, *FIFTY_SECONDS), tmp_path / "trace.csv"
    real = running.simulated

    def edited(overrides: tuple[str, ...]) -> object:
        outcome = real(overrides)
        path.write_text(f"{path.read_text()}{100 + len(path.read_text())},a,8,200,40\n")
        return outcome

    monkeypatch.setattr(running, "simulated", edited)
    answer = capacity(read, seeds=1, jobs=1, precision=0.5)
    assert "has changed" in answer.doubt
    assert found().doubt == ""


def test_a_seed_of_the_workload_is_not_given_beside_seeds():
    with pytest.raises(InputError, match=r"workload.seed=7 would be the same for every seed; leave it out"):
        capacity(["workload.seed=7"])


def test_a_trace_from_a_file_is_sped_up(tmp_path):
    answer = capacity(workload(tmp_path, *FIFTY_SECONDS), seeds=2, jobs=1, precision=0.1)
    assert answer.question.key == "speedup"
    assert answer.question.unit == "times the trace's rate"
    assert answer.value > 1
    assert answer.interval == pytest.approx((answer.value, answer.seeds["beyond"][0])), "seeds change nothing"
    assert "all seeds are the same run, as of a trace from a file" in answer.text().splitlines()[2]
