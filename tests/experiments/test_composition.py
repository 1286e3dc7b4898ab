"""The search for a composition: its space, its steps, what is published and what is written of it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from omegaconf import DictConfig, OmegaConf

from experiments.composition import __main__ as command
from experiments.composition import frontier, judging
from experiments.composition import space as spaces
from experiments.composition.judging import (
    NAME,
    WORTH,
    ahead,
    chosen,
    elsewhere,
    overall,
    rival_of,
)
from experiments.composition.page import told_wrong, verdict
from experiments.composition.search import (
    BEHIND,
    Tried,
    explore,
    hopeless,
)
from experiments.composition.space import Composition, Space
from experiments.composition.unseen import unseen
from experiments.cross_table import world as worlds
from experiments.cross_table.bound import Bound
from experiments.cross_table.capacities import Carried, Reading, Use
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import POLICIES, Part
from experiments.cross_table.world import TRAINING, System, World
from simlora.api.preparing import composed, ready
from simlora.core.errors import InputError

REAL, WORLD = spaces.read(), worlds.read()
SMALL = """
slots:
  loader: {blocking: {}, asynchronous: {}}
  eviction: {on_demand: {}, cost_model: {}}
  admission: {every_10: {}, every: {tune: {replica.max_wait_tokens: {low: 0, high: 40, whole: true}}}}
  batch: {default: {}, bounded: {tune: {replica.max_num_seqs: [2, 200]}}}
published:
  slora: {}
  small: {loader: asynchronous, batch: bounded, replica.max_num_seqs: 2}
"""


def space_of(folder: Path, text: str) -> Space:
    path = folder / "space.yaml"
    path.write_text(text)
    return spaces.read(path)


@pytest.fixture
def small(tmp_path: Path) -> Space:
    return space_of(tmp_path, SMALL)


def on_shifting(system: System, *more: str) -> list[str]:
    """Return the overrides of a system on one of the real workloads."""
    workload = WORLD.workloads["shifting"]
    return [*WORLD.overrides(system, workload), workload.at_start, *more]


def fixed(space: Space, **values: object) -> Composition:
    """Return the composition of these values; other slots are S-LoRA's."""
    first = {slot: next(iter(held)) for slot, held in space.slots.items()}
    return space.suggested(optuna.trial.FixedTrial(first | values))


# The space


@pytest.mark.parametrize("name", REAL.published)
def test_published_systems_are_in_the_space(name: str) -> None:
    composition = REAL.suggested(optuna.trial.FixedTrial(dict(REAL.published[name])))
    points = ["placement.operating_points={8: 5000}"] if name == "loraserve" else []
    _, choices = composed(on_shifting(System(name, "", composition.settings), *points))
    _, published = composed(on_shifting(WORLD.systems[name]))
    searched = [slot for slot in POLICIES if published[slot] in REAL.slots[slot]]
    assert set(POLICIES) - set(searched) <= {"migration"}  # dLoRA's is left out
    assert {slot: choices[slot] for slot in searched} == {slot: published[slot] for slot in searched}


@pytest.mark.parametrize(
    ("slot", "choice"), [(slot, choice) for slot, held in REAL.slots.items() for choice in held]
)
def test_every_choice_can_be_run_with_one_composition_at_least(slot: str, choice: str) -> None:
    tuned = {
        key: span.values[0] if span.values else span.low
        for key, span in REAL.slots[slot][choice].tuned.items()
    }
    kept = {"memory": "kept"} if choice in ("banded_lru", "cost_model") else {}
    composition = fixed(REAL, **{slot: choice}, **kept, **tuned)
    points = ["placement.operating_points={8: 5000}"] if choice == "rank_demand" else []
    system = System("", "", composition.settings)
    ready(*composed(on_shifting(system, *points, "workload.requests=10")))


PUBLISHED = "slots: {loader: {blocking: {}}}\npublished: "
NEEDS = "slots: {loader: {a: {needs: {%s}}}, memory: {b: {}}}\npublished: {}"
TUNED = "slots: {loader: {a: {tune: {x: %s}}}}\npublished: {}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TUNED % "{low: 2, high: 1}", "goes from 2 to 1, must go up"),
        (PUBLISHED + "{us: {loadr: blocking}}", "did you mean loader"),
        (NEEDS % "memory: [c]", "choose one of b"),
        (SMALL + "own:\n  loader: {asynchronous: cached}\n", r"own loader.*cached"),
    ],
)
def test_mistakes_in_a_space_are_said_with_their_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        space_of(tmp_path, text)


# The search


def differ(one: Tried, other: Tried) -> int:
    """Return in how many slots two compositions differ."""
    return sum(choice != other.composition.choices[slot] for slot, choice in one.composition.choices.items())


@pytest.mark.usefixtures("made_up")
def test_the_search_begins_with_what_was_published_and_is_the_same_every_time(
    world: World, small: Space
) -> None:
    told: list[int] = []
    workloads = world.of(TRAINING)
    found = explore(world, small, workloads, 7, 1, lambda so_far: told.append(len(so_far)))
    tried = found.tried
    # Those published, the best of them with one slot changed, TPE's, and the best of all with one slot changed.
    assert told[:3] == [2, 6, 7]
    assert [one.number for one in tried] == list(range(len(tried)))
    assert (found.proposed, len(tried) > 7) == (7, True)
    assert tried[0].composition.settings == fixed(small).settings
    assert tried[1].composition.settings["replica.max_num_seqs"] == 2
    assert {differ(one, tried[0]) for one in tried[2:6]} == {1}
    refused = [one for one in tried if one.composition.choices["eviction"] == "cost_model"]
    assert refused
    assert all("prefix_caching" in one.refused for one in refused)
    assert all(one.refused == "" for one in tried if one not in refused)
    assert explore(world, small, workloads, 7, 1) == found


def test_a_composition_far_behind_the_best_is_left_off() -> None:
    leader = a_trial(0, {"a": 10.0, "b": 10.0})
    share = math.exp(-2 * BEHIND)  # of one of two workloads
    assert hopeless({"a": Carried(9.99 * share, 10)}, leader)
    assert not hopeless({"a": Carried(10.01 * share, 10)}, leader)
    assert not hopeless({"a": Carried(9.0 * share, 10), "b": Carried(12, 13)}, leader)
    assert hopeless({"b": Carried(0, 0, "refused")}, leader)


def test_a_score_is_the_mean_of_logarithms_and_stays_finite() -> None:
    assert a_trial(0, {"a": 2.0, "b": 8.0}).score == pytest.approx(math.log(4.0))
    assert math.isfinite(a_trial(0, {"a": 2.0, "b": 0.0}).score)


def a_trial(
    number: int, rates: dict[str, float], composition: Composition | None = None, refused: str = ""
) -> Tried:
    carried = {name: Carried(rate, rate, refused) for name, rate in rates.items()}
    return Tried(number, composition or Composition({}), carried)


# What is found


def test_what_does_not_help_is_left_out(world: World, small: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch larger than ever waits."""
    monkeypatch.setattr(judging, "SEEDS", range(1, 3))
    tried = [a_trial(0, {"short": 30.0}, fixed(small, batch="bounded", **{"replica.max_num_seqs": 200}))]
    found = chosen(world, tried, world.systems["slora"], world.of(TRAINING), jobs=1)
    assert found.number == 0
    assert found.left_out == ["batch"]
    assert found.system == System(NAME, found.system.title, {"system": "slora"})
    assert found.score > found.finalists[0] - WORTH


def exactly(rates: dict[int, float]) -> dict[int, Reading]:
    return {seed: Reading(rate, rate, rate) for seed, rate in rates.items()}


def test_the_composition_is_held_against_the_best_published_of_each_workload(world: World) -> None:
    rates = {NAME: {0: 11.0, 1: 12.0}, "lcfs": {0: 9.0, 1: 12.5}, "slora": {0: 10.0, 1: 10.0}}
    cells = [
        Cell(
            System(name, name, {}),
            world.workloads["long"],
            {seed: Carried(rate, rate) for seed, rate in by_seed.items()},
            Use(0.9, 0.5, 0.1),
        )
        for name, by_seed in rates.items()
    ]
    row = Row(world.workloads["long"], cells, 1.0, Bound(20.0, 25.0, math.inf))
    published = [world.systems["slora"], world.systems["lcfs"]]
    assert rival_of(row, published).system.name == "lcfs"
    assert ahead([row], published) == {"long": exactly({0: 11 / 9, 1: 12 / 12.5})}


def test_over_workloads_there_are_two_intervals() -> None:
    ratios = {"a": exactly({0: 4.0, 1: 1.0}), "b": exactly({0: 1.0, 1: 1.0})}
    assert overall(ratios).mean == elsewhere(ratios).mean == pytest.approx(math.sqrt(2))
    steady = {"a": exactly({0: 2.0, 1: 2.0}), "b": exactly({0: 0.5, 1: 0.5})}
    assert overall(steady) == pytest.approx((1.0, 1.0, 1.0))  # sure of these two workloads
    assert elsewhere(steady).low < 0.1  # and of nothing else
    assert overall({"a": exactly({0: 0.0, 1: 1.0})}).mean == 0.0


AHEAD = "ahead beyond doubt, and by 10 % or more on average"


@pytest.mark.parametrize(
    ("ratios", "line"),
    [
        ([1.2, 1.21, 1.19], AHEAD),
        ([1.05, 1.06, 1.055], "ahead by less, beyond doubt"),
        ([1.3, 0.9, 1.2], "not to be told apart"),
        ([0.8, 0.81, 0.79], "behind, beyond doubt"),
        ([math.inf, 2.0, 2.0], AHEAD),
    ],
)
def test_the_verdict_says_where_it_is_ahead_and_where_it_is_not(ratios: list[float], line: str) -> None:
    lines = verdict({"long": exactly(dict(enumerate(ratios)))}, {"long": "Longer ones"})
    assert f"* {line}: Longer ones" in lines
    assert lines[-1].endswith("Longer ones" if max(ratios) < 1.1 else "nowhere"), "less than 10 % ahead"
    assert sum("nowhere" in one for one in lines[:-1]) == 3


# Published systems are tuned as compositions are


def test_the_page_says_what_a_scheduler_costs_that_is_told_wrong(world: World) -> None:
    asks = System(NAME, NAME, {"scheduler": "chunked_slo"})
    long, short = frontier.told_wrong(worlds.read(), asks)
    target_s = worlds.read().same["slo.tpot_s"]
    assert long.system.settings["scheduler.pass_s"] == pytest.approx(target_s / 1.1, rel=1e-3)
    assert short.system.settings["scheduler.pass_s"] == pytest.approx(target_s * 1.1, rel=1e-3)
    ablation = {"long": [Part(short, exactly({0: 0.75})), Part(long, exactly({0: 0.875}))]}
    text = told_wrong({"long": exactly({0: 1.2})}, ablation)
    assert "too short, the composition carries 0.9 times" in text
    assert "too long, 1.05 times" in text
    assert not told_wrong({"long": exactly({0: 1.2})}, {"long": []})
    assert not frontier.told_wrong(world, System(NAME, NAME, {"scheduler": "default"}))


def tuned_of(choice: spaces.Choice, system: System, own: DictConfig) -> Iterator[tuple[str, set[object]]]:
    """Which keys of a choice a system tunes, and over what, its own value included."""
    for key in choice.tuned:
        yield key, {OmegaConf.select(own, key), *system.free.get(key, ())}


@pytest.mark.parametrize("system", WORLD.systems.values(), ids=WORLD.systems)
def test_what_a_composition_may_tune_of_a_policy_is_tuned_of_the_systems_that_have_it(system: System) -> None:
    config, choices = composed(on_shifting(system))
    for slot in POLICIES:
        choice = REAL.slots[slot].get(choices[slot], spaces.Choice({}, {}))
        for key, values in tuned_of(choice, system, config):
            span = choice.tuned[key]
            assert values >= set(span.values), key
            assert span.values or len(values - {None}) >= 3, key
    of_queues = choices["scheduler"] in ("fcfs", "early_abort", "lcfs")
    assert ("replica.max_wait_tokens" in system.free) is of_queues
    assert ("replica.max_num_batched_tokens" in system.free) is (choices["scheduler"] != "chunked_prefill")
    assert "replica.max_num_seqs" in system.free
    assert ("replica.max_loras" in system.free) is (config.replica.max_loras is not None)


# What is published


@pytest.fixture
def small_command(made_up: list[System], world: World, small: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command search the tiny world and space."""
    monkeypatch.setattr(command, "read", lambda: world)
    monkeypatch.setattr(command, "read_space", lambda: small)
    monkeypatch.setattr(frontier, "WORLDS", {"two GPUs": {"cluster.replicas": 2}})


@pytest.mark.usefixtures("small_command")
def test_the_command_writes_the_study_and_the_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs, system = tmp_path / "docs", tmp_path / "simlora.yaml"
    arguments = f"--trials 3 --seeds 2 --jobs 1 --docs {docs} --publish {system}".split()
    assert command.main(arguments) == 0
    page = (docs / "composition.md").read_text()
    assert "| held out | Longer ones |" in page
    assert "| training | Short ones, many |" in page
    assert "nan" not in page
    assert system.read_text() in page + "\n"
    pictures = {path.name for path in (docs / "figures" / "composition").iterdir()}
    assert pictures >= {"search.png", "ahead.png"}
    with (docs / "composition.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["trial"]) for row in rows] == list(range(len(rows)))
    assert len(rows) > 3
    assert float(rows[0]["short_rps"]) > float(rows[1]["short_rps"])
    assert "held_out  long" in capsys.readouterr().out
    stamp = system.stat().st_mtime_ns
    assert command.main(arguments) == 0
    assert system.stat().st_mtime_ns == stamp  # or nothing that was kept would be found again
    assert (docs / "composition.md").read_text() == page


@pytest.mark.usefixtures("small_command")
def test_a_quick_look_writes_neither_page_nor_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "SYSTEM", tmp_path / "simlora.yaml")
    assert command.main(["--trials", "3", "--seeds", "1", "--jobs", "1"]) == 0
    assert not (tmp_path / "docs").exists()
    assert not (tmp_path / "simlora.yaml").exists()


def test_the_workloads_that_were_not_looked_at_are_none_of_the_world() -> None:
    """And every system, tuned or not, can be put to them at a rate of the search."""
    for workload in unseen():
        assert all(workload.settings != other.settings for other in WORLD.workloads.values())
        for system in [*WORLD.systems.values(), System(NAME, "", {"system": NAME})]:
            config, _ = composed([*WORLD.overrides(system, workload), workload.at_start])
            assert OmegaConf.select(config, workload.key) == workload.start
