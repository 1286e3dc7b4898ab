"""Operating points that a configuration leaves open are found by simulating one replica of it."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from simlora import simulate
from simlora.api import operating_points
from simlora.api.operating_points import filled, highest_rate, of_rank
from simlora.api.preparing import composed
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation

SYSTEM = ("system=loraserve", "workload=loraserve", "workload.duration_s=20", "cluster.replicas=2")
PLAIN = ("system=slora_random", "workload=loraserve", "workload.duration_s=20", "placement=replicate_all")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(operating_points, "REQUESTS_LEAST", 200)
    monkeypatch.setattr(operating_points, "LASTS", 6.0)
    return tmp_path / "cache"


def points(*overrides: str) -> dict[int, float]:
    config, notices = filled(*composed([*SYSTEM, *overrides]))
    assert len(notices) == 1
    return dict(config.placement.operating_points)


def searches(monkeypatch: pytest.MonkeyPatch, finds: float = 9.0) -> list[int]:
    """Return the ranks that are searched for from now on; every search finds `finds` requests/s."""
    seen: list[int] = []
    monkeypatch.setattr(operating_points, "highest_rate", lambda s, rank, *rest: seen.append(rank) or finds)
    return seen


def test_there_is_one_for_every_rank_and_a_higher_rank_has_a_lower_one():
    found = points("workload.ranks=[8,32,128]")
    assert list(found) == [8, 32, 128]
    values = list(found.values())
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.8 * values[0]


def test_the_point_is_where_the_slo_stops_being_met():
    setup = prepare(*composed(PLAIN))
    rate_rps = highest_rate(setup.scenario, 64, setup.targets)

    def attained(rate_rps: float) -> float:
        trace = of_rank(setup.scenario.trace, 64, rate_rps, 6 * 10.0)
        simulation = Simulation(operating_points.replace(setup.scenario, trace=trace))
        simulation.run()
        return operating_points.attainment(simulation.recorder.requests(), setup.targets)

    assert attained(rate_rps) >= 0.95 > attained(rate_rps * 1.021)


def test_its_requests_have_the_lengths_of_the_workload_and_one_adapter():
    trace = prepare(*composed(PLAIN)).scenario.trace
    made, twice = of_rank(trace, 32, 5.0, 100.0), of_rank(trace, 32, 10.0, 100.0)
    assert (len(made), len(twice)) == (500, 1000)
    assert np.array_equal(twice.prompt_tokens[:600], trace.prompt_tokens[:600])
    assert np.array_equal(twice.output_tokens[-10:], np.resize(trace.output_tokens, 1000)[-10:])
    assert [adapter.rank for adapter in made.adapters] == [32]
    assert made.duration_s == pytest.approx(100, rel=0.15)
    assert np.allclose(twice.arrival_s[:500] * 2, made.arrival_s), "the same requests at every rate"


def test_they_are_found_once_for_all_rates_seeds_and_clusters(monkeypatch):
    enough = ("workload.duration_s=null", "workload.requests=600")
    seen = searches(monkeypatch)
    first = points(*enough)
    seen.clear()
    others: Sequence[str] = (
        "seed=5",
        "cluster.replicas=3",
        "workload.arrivals.rate_rps=7",
        "host.memory_bytes=null",
        "cluster.stragglers=[{replica: 2, at_s: 0, factor: 3}]",
        "cluster.slow_links=[{host: 1, at_s: 0, factor: 3}]",
        "autoscaler=by_queue",
        "cluster.least_replicas=2",
        "perfetto=true",
    )
    assert points(*enough, *others) == first
    assert seen == []
    points(*enough, "replica.max_num_seqs=8")
    assert seen == [8, 16, 32, 64, 128]


@pytest.mark.parametrize("points_of_it", [[1, 2], {"8": 5500}, "many", [1, 2, 3, 4, "5"], None])
def test_those_that_were_edited_are_found_anew(own_cache, points_of_it, monkeypatch):
    searches(monkeypatch, finds=9.0)
    first = points()
    (path,) = own_cache.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"points": points_of_it}))
    searches(monkeypatch, finds=7.0)
    again = points()
    assert list(again) == list(first)
    assert again != first
    assert json.loads(path.read_text())["points"] == list(again.values())


def test_a_run_uses_them_and_says_so(monkeypatch):
    searches(monkeypatch)
    result = simulate([*SYSTEM, "timeline=false", "report=false"])
    assert any("operating points of one replica" in notice for notice in result.notices)
    assert "operating_points: null" not in result.config
    given = points()
    again = simulate([*SYSTEM, "timeline=false", "report=false", f"placement.operating_points={given}"])
    assert again.requests.equals(result.requests)


def test_those_that_are_given_are_left_as_they_are(monkeypatch):
    seen = searches(monkeypatch)
    config, notices = filled(*composed([*SYSTEM, "placement.operating_points={8: 5500}"]))
    assert (dict(config.placement.operating_points), notices, seen) == ({8: 5500}, (), [])
    config, notices = filled(*composed(["system=slora"]))
    assert (notices, seen) == ((), [])


def test_of_many_ranks_some_are_searched_for(monkeypatch):
    seen = searches(monkeypatch)
    points("workload.ranks=[1,2,3,4,5,6,7,8,9,10,11,12]")
    assert len(seen) == 8
    assert (seen[0], seen[-1]) == (1, 12)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["slo.ttft_s=null"], "no slo.* is set; set slo.ttft_s, or give them"),
        (["slo.ttft_s=1e-6"], "even at 0.0001 requests/s; set a target that one replica can meet"),
        (["model=llama_2_70b", "replica.tp=1"], "llama_2_70b needs 138.0 GB of weights"),
    ],
)
def test_what_cannot_be_found_is_said_in_a_sentence(overrides, sentence):
    with pytest.raises(InputError) as error:
        filled(*composed([*SYSTEM, *overrides]))
    assert sentence in str(error.value)
