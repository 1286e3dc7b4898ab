"""The highest rate within an SLO, and the fewest replicas for a rate."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

import simlora
from simlora import Capacity, capacity
from simlora.core.errors import InputError
from simlora.sweeps import running

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
    return capacity([*SMALL, *overrides], **({"seeds": 2, "jobs": 1, "precision": 0.05} | asked))


def attained(rate: float, seed: int, *overrides: str) -> float:
    result = simlora.simulate(
        [*SMALL, *overrides, f"workload.arrivals.rate_rps={rate:g}", f"seed={seed}", "timeline=false"]
    )
    return float(result.summary["slo"]["attainment"])


# The highest rate


def test_the_rate_meets_the_slo_and_the_next_does_not() -> None:
    answer = found()
    assert list(answer.seeds["seed"]) == [0, 1]
    for row in answer.seeds.to_dict("records"):
        assert attained(row["value"], row["seed"]) >= 0.95 > attained(row["beyond"], row["seed"])
        assert row["beyond"] <= 1.05 * row["value"] * (1 + 1e-5)
    assert answer.value == pytest.approx(answer.seeds["value"].mean())


def test_every_run_says_whether_it_met_the_slo() -> None:
    runs = found().runs
    assert (runs["met"] == (runs["slo.attainment"] >= 0.95)).all()
    assert runs.equals(runs.sort_values(["seed", "value"]))
    assert not runs.duplicated(["seed", "value"]).any()


def test_a_limit_on_a_figure_is_another_slo() -> None:
    strict, loose = (found(limits={"ttft_s.p95": limit}) for limit in (0.5, 5.0))
    assert strict.value < loose.value
    assert (loose.seeds["ttft_s.p95"] < 5.0).all()
    both = found(limits={"ttft_s.p95": 5.0, "tpot_s.mean": 0.1}, attainment=0.5)
    assert both.value <= loose.value
    assert both.question.figures == ["ttft_s.p95", "tpot_s.mean", "slo.attainment"]


def test_a_second_replica_carries_nearly_twice_as_much() -> None:
    one, two = (found(f"cluster.replicas={n}", "workload.requests=600", seeds=1).value for n in (1, 2))
    assert 1.7 < two / one < 2.3


def test_where_it_starts_does_not_matter() -> None:
    near, far = found(start=3.0, seeds=1), found(start=64.0, seeds=1)
    assert near.value == pytest.approx(far.value, rel=0.05)


def test_the_answer_does_not_depend_on_the_processes() -> None:
    alone, several = found(jobs=1), found(jobs=5, seeds=2)
    assert alone.to_dict() == several.to_dict()
    assert alone.runs.equals(several.runs)


def test_the_interval_is_students_over_the_seeds() -> None:
    answer = found(seeds=3)
    values = answer.seeds["value"]
    half = 4.302653 * values.std() / math.sqrt(3)  # t of 2 degrees of freedom at 97.5 %
    assert answer.interval == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-6)
    assert all(map(math.isnan, found(seeds=1).interval))


def test_seeds_go_on_from_the_configurations_own() -> None:
    assert list(found("seed=7", precision=0.5).seeds["seed"]) == [7, 8]


def test_a_workload_with_a_seed_of_its_own_is_drawn_anew() -> None:
    question = capacity(["workload.duration_s=20"], seeds=2, jobs=1, precision=0.5).question
    assert "workload.seed=1" in question.run(1, 2.0)
    assert not any(word.startswith("workload.seed") for word in found().question.run(1, 2.0))


def test_another_key_can_be_varied_in_whole_numbers() -> None:
    answer = found("workload.arrivals.rate_rps=20", key="workload.requests", limits={"ttft_s.p99": 2.0})
    assert all(value == int(value) for value in answer.runs["value"])
    assert (answer.seeds["beyond"] == answer.seeds["value"] + 1).all()
    assert answer.question.unit == "workload.requests"


# The fewest replicas


def test_one_replica_fewer_is_not_enough() -> None:
    answer = found("workload.arrivals.rate_rps=20", find="replicas")
    assert answer.value == answer.seeds["value"].max() > 1
    for row in answer.seeds.to_dict("records"):
        few = f"cluster.replicas={int(row['beyond'])}"
        assert row["beyond"] == row["value"] - 1
        assert attained(20.0, row["seed"], few) < 0.95


def test_one_can_be_enough() -> None:
    answer = found("workload.arrivals.rate_rps=0.5", find="replicas", start=8)
    assert answer.value == 1
    assert answer.seeds["beyond"].isna().all()
    assert answer.to_dict()["seeds"][0]["beyond"] is None


# Runs are kept


def test_what_was_run_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = found()
    monkeypatch.setattr(running, "simulate", lambda overrides: pytest.fail("it was simulated again"))
    assert found().to_dict() == first.to_dict()


def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found()
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path))
    real, done = running.simulate, []

    def stopped_at_the_fifth(overrides: tuple[str, ...]) -> object:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(overrides)
        return real(overrides)

    monkeypatch.setattr(running, "simulate", stopped_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        found()
    again: list[tuple[str, ...]] = []
    monkeypatch.setattr(running, "simulate", lambda overrides: again.append(overrides) or real(overrides))
    assert found().to_dict() == whole.to_dict()
    assert not set(again) & set(done)
    assert len(again) == len(whole.runs) - 4


def test_more_seeds_only_add_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found(seeds=2)
    real, again = running.simulate, []
    monkeypatch.setattr(running, "simulate", lambda overrides: again.append(overrides) or real(overrides))
    found(seeds=3, precision=0.05)
    assert {word for overrides in again for word in overrides if word.startswith("seed=")} <= {"seed=2"}


# What comes out


def test_the_command_that_it_names_asks_the_same(tmp_path: Path) -> None:
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


def test_it_is_written_and_drawn(tmp_path: Path) -> None:
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


def test_the_table_is_a_line_a_seed_within_80_columns() -> None:
    lines = found().table().splitlines()
    assert lines[0].startswith(f"{found().value:.4g} requests/s [")
    assert lines[1] == "within 95 % of the requests within every slo.*"
    assert len(lines) == 4 + 2
    assert max(map(len, lines)) <= 80
    few = found("workload.arrivals.rate_rps=20", find="replicas").table()
    assert "replicas are enough with every seed" in few


# What cannot be asked


@pytest.mark.parametrize(
    ("asked", "overrides", "sentence"),
    [
        ({"find": "gpus"}, (), "find is 'gpus', must be rate or replicas"),
        ({"limits": {"ttft_s.p95": -1}}, (), "the limit of ttft_s.p95 is -1, must be greater than 0"),
        ({"limits": {"ttft.p95": 1}}, (), "summary.json has no number ttft.p95; did you mean ttft_s.p95"),
        ({"limits": {"replicas": 1}}, (), "summary.json has no number replicas"),
        ({"attainment": 1.5}, (), "attainment is 1.5, must be greater than 0 and at most 1"),
        ({}, ("slo.ttft_s=null",), "an attainment is of slo.*, and none is set"),
        ({"seeds": 0}, (), "seeds is 0, must be a whole number, at least 1"),
        ({"precision": 1e-9}, (), "precision is 1e-09, must be at least 0.0001"),
        (
            {"key": "workload.rate_rps"},
            (),
            "there is no key workload.rate_rps; did you mean workload.arrivals.rate_rps",
        ),
        ({"key": "workload.adapters", "start": 2.5}, (), "must be a whole number"),
        ({"start": -1}, (), "workload.arrivals.rate_rps, from which the search starts, is -1"),
        ({"limits": {"ttft_s.p95": 1e-9}}, (), "(ttft_s.p95 < 1e-09) is not met even at"),
        ({"limits": {"ttft_s.p95": 1e9}}, (), "(ttft_s.p95 < 1e+09) is met even at"),
        ({}, ("gpu=b200",), "there is no gpu 'b200'"),
        ({}, ("no_key=1",), "there is no key no_key"),
        ({}, ("replica.kv_token_budget=10",), "every one of the 300 requests is rejected"),
    ],
)
def test_bad_input_is_a_sentence(asked: dict[str, object], overrides: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        found(*overrides, **{"seeds": 1, **asked})
    assert sentence in str(error.value)


def test_a_workload_without_a_rate_needs_a_key(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,adapter,rank,prompt_tokens,output_tokens\n0,a,8,100,10\n")
    with pytest.raises(InputError, match="no rate_rps to search for; name what is to be varied with key"):
        capacity(["workload=file", f"workload.path={path}"])
