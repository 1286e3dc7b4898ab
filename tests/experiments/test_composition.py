"""The search for a composition: its space, its steps, what is published and what is written of it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from experiments.composition import __main__ as command
from experiments.composition import frontier, judging
from experiments.composition import space as spaces
from experiments.composition.frontier import Alone, alone, in_other_worlds, neighbours
from experiments.composition.judging import (
    NAME,
    WORTH,
    ahead,
    best,
    chosen,
    elsewhere,
    overall,
    rival_of,
    scored,
)
from experiments.composition.own import as_published, told_wrong
from experiments.composition.page import verdict
from experiments.composition.publishing import text
from experiments.composition.search import (
    BEHIND,
    BETTER,
    Tried,
    by_spread,
    evaluated,
    explore,
    hopeless,
    together,
)
from experiments.composition.space import Composition, Space
from experiments.cross_table import world as worlds
from experiments.cross_table.bound import Bound
from experiments.cross_table.capacities import Carried, Reading, Use
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import POLICIES
from experiments.cross_table.world import TRAINING, System, World
from simlora.api.preparing import composed, ready
from simlora.core.errors import InputError
from tests.experiments.small_world import Search, slora

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
    return [*WORLD.overrides(system, workload), f"{workload.key}=10", *more]


def fixed(space: Space, **values: object) -> Composition:
    """Return the composition of these values; other slots are S-LoRA's."""
    first = {slot: space.first(slot) for slot in space.slots}
    return space.suggested(optuna.trial.FixedTrial(first | values))


# The space


def test_every_policy_slot_is_searched_and_begins_with_what_slora_has() -> None:
    assert set(POLICIES) <= REAL.slots.keys()
    _, choices = composed(["system=slora"])
    for slot in POLICIES:
        assert REAL.first(slot) == choices[slot]


@pytest.mark.parametrize(
    ("slot", "own", "published", "kept", "lost"),
    [
        ("scheduler", "chunked_slo", "chunked_prefill", "scheduler.max_batched_tokens", "scheduler.margin_s"),
        ("router", "session_bands", "adapter_affinity", "router.slack", "router.session_slack"),
    ],
)
def test_a_policy_of_no_paper_gives_way_to_the_published_one_with_what_that_knows(
    slot: str, own: str, published: str, kept: str, lost: str
) -> None:
    settings = {kept: 8, "replica.reserve": "paged"}
    (found,) = as_published(REAL, slora("found", {slot: own, lost: 0.2, **settings}))
    assert (found.had, found.has) == (own, published)
    assert found.system.settings == {"system": "slora", slot: published, **settings}
    assert as_published(REAL, slora("published", {"scheduler": "fcfs"})) == []


def test_a_scheduler_that_is_told_that_a_pass_takes_longer_than_it_does_lets_it_take_less() -> None:
    long, short = told_wrong(WORLD, slora("found", {"scheduler": "chunked_slo"}))
    assert long.slot.endswith("told a tenth too long")
    slo_s = WORLD.same["slo.tpot_s"]
    found_s = [each.system.settings["scheduler.pass_s"] for each in (long, short)]
    assert found_s == pytest.approx([slo_s / 1.1, slo_s * 1.1], rel=1e-3)
    assert told_wrong(WORLD, WORLD.systems["vllm"]) == []


def test_the_first_composition_is_slora() -> None:
    ours, _ = composed(on_shifting(System("", "", fixed(REAL).settings)))
    theirs, _ = composed(on_shifting(WORLD.systems["slora"]))
    assert OmegaConf.to_container(ours) == OmegaConf.to_container(theirs)


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


def test_what_is_tuned_hangs_on_its_choice(small: Space) -> None:
    plain = fixed(small).settings
    assert plain == {"system": "slora", "loader": "blocking", "eviction": "on_demand"}
    tuned = fixed(small, admission="every", **{"replica.max_wait_tokens": 7})
    assert tuned.settings == {**plain, "replica.max_wait_tokens": 7}


def test_variations_change_one_slot_and_what_it_needs(small: Space) -> None:
    toppings = REAL.published["toppings"]
    found = REAL.variations(toppings)
    assert len(found) == sum(len(held) - 1 for held in REAL.slots.values())
    changed = [frozenset(slot for slot in REAL.slots if each[slot] != toppings[slot]) for each in found]
    assert {slots for slots in changed if len(slots) > 1} == {frozenset({"eviction", "memory"})}
    assert [values["memory"] for values in found if values["eviction"] == "cost_model"] == ["kept"]
    assert len(small.variations(small.published["small"])) == 4


def test_steps_change_one_value_of_those_that_are_tuned(small: Space) -> None:
    published = small.published["small"]
    assert small.steps(published) == [{**published, "replica.max_num_seqs": 200}]
    assert small.steps(small.published["slora"]) == []


def test_what_is_tuned_of_a_variation_begins_in_the_middle_or_where_it_was_before() -> None:
    def varied(slot: str, choice: str, **before: object) -> dict[str, object]:
        found = REAL.variations({**REAL.published["toppings"], **before})
        (values,) = (values for values in found if values[slot] == choice)
        return values

    bands = varied("router", "rank_bands")
    assert (bands["router.slack"], bands["router.window"]) == (16, 2000)
    assert varied("admission", "every")["replica.max_wait_tokens"] == 6
    assert varied("eviction", "cost_model")["eviction.recency_s"] == 3.16
    assert varied("router", "rank_bands", **{"router.slack": 64})["router.slack"] == 64


def test_what_is_tuned_goes_up_and_down_a_step() -> None:
    listed, log = spaces.Range(values=(1, 4, 16)), spaces.Range(low=1, high=100, log=True)
    assert (listed.near(1), listed.near(4), listed.near(16)) == ([4], [1, 16], [4])
    assert log.near(25) == [5.0, 50.0]
    assert log.near(1) == [10.0]
    assert spaces.Range(low=1, high=40, log=True, whole=True).near(6) == [2, 15]


def test_numbers_are_as_short_as_they_are_written(tmp_path: Path) -> None:
    space = space_of(tmp_path, TUNED % "{low: 0.001, high: 1, log: true}")
    found = space.suggested(optuna.trial.FixedTrial({"loader": "a", "x": 0.0123456}))
    assert found.settings["x"] == 0.0123


PUBLISHED = "slots: {loader: {blocking: {}}}\npublished: "
NEEDS = "slots: {loader: {a: {needs: {%s}}}, memory: {b: {}}}\npublished: {}"
TUNED = "slots: {loader: {a: {tune: {x: %s}}}}\npublished: {}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slots: {loader: {blocking: {sett: {}}}}\npublished: {}", "loader blocking has an unknown key sett"),
        (TUNED % "[]", "loader a.tune.x has no values"),
        (TUNED % "{low: 2, high: 1}", "goes from 2 to 1, must go up"),
        (PUBLISHED + "{us: {loadr: blocking}}", "did you mean loader"),
        (PUBLISHED + "{us: {loader: blockin}}", "did you mean blocking"),
        (NEEDS % "memry: [b]", "did you mean memory"),
        (NEEDS % "memory: [c]", "choose one of b"),
        ("slots: {}", "has no published"),
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
    assert explore(world, small, workloads, 7, 2) == found


@pytest.mark.usefixtures("made_up")
def test_rounds_go_on_around_the_best_until_none_is_better(world: World, small: Space) -> None:
    """Of four variations of S-LoRA the loader is for the better, alone and with all that are; then none is."""
    told: list[int] = []
    found = explore(world, small, world.of(TRAINING), 2, 1, lambda so_far: told.append(len(so_far)))
    assert told == [2, 6, 7, 11]
    first = found.tried[0].composition.choices
    assert found.tried[found.centre].composition.choices == {**first, "loader": "asynchronous"}


@pytest.mark.usefixtures("coarse")
def test_the_search_ends_around_the_best(world: World, small: Space) -> None:
    told: list[int] = []
    found = explore(world, small, world.of(TRAINING), 3, 1, lambda so_far: told.append(len(so_far)))
    assert (found.proposed, told[:2]) == (3, [2, 3])
    assert list(found.neighbours) == list(found.tried[-len(found.neighbours) :])
    best = found.tried[found.centre]
    assert best.score >= max(one.score for one in found.tried if not one.refused) - BETTER
    assert all(differ(one, best) <= 1 for one in found.neighbours)
    count, better, gain = neighbours(found)
    assert count == len([one for one in found.neighbours if not one.refused])
    assert (better > 0) is (gain > 0)
    assert gain <= math.expm1(BETTER)


def test_workloads_on_which_systems_differ_most_come_first() -> None:
    workloads = [replace(WORLD.workloads["slora"], name=name) for name in ("a", "b", "c")]
    tried = [
        a_trial(0, {"a": 5.0, "b": 1.0, "c": 3.0}),
        a_trial(1, {"a": 4.0, "b": 9.0, "c": 1.0}),
        a_trial(2, {"a": 99.0, "b": 1.0, "c": 1.0}, refused="no"),
    ]
    assert [one.name for one in by_spread(tried, workloads)] == ["b", "c", "a"]


def test_who_is_far_behind_the_best_is_left_off() -> None:
    leader = a_trial(0, {"a": 10.0, "b": 10.0})
    share = math.exp(-2 * BEHIND)  # of one of two workloads
    assert hopeless({"a": Carried(9.99 * share, 10)}, leader)
    assert not hopeless({"a": Carried(10.01 * share, 10)}, leader)
    assert not hopeless({"a": Carried(9.0 * share, 10), "b": Carried(12, 13)}, leader)
    assert hopeless({"b": Carried(0, 0, "refused")}, leader)


def test_what_is_left_off_is_tried_on_fewer_workloads_and_is_never_the_best(
    world: World, small: Space, made_up: list[Search]
) -> None:
    workloads = list(world.workloads.values())
    (leader,) = evaluated(world, [fixed(small)], workloads, 1, 0)
    slow = fixed(small, batch="bounded", **{"replica.max_num_seqs": 2})
    off, same = evaluated(world, [slow, fixed(small)], workloads, 1, 1, leader)
    assert (off.left_off, list(off.carried)) == (True, [workloads[0].name])
    assert (same.left_off, dict(same.carried)) == (False, dict(leader.carried))
    assert best([off, same], 2) == [same]
    assert made_up[-1][1] == {}
    evaluated(world, [fixed(small)], workloads, 1, 3, leader, near=True)
    asked, near = made_up[-1]
    assert near == {("trial_3", name): one.met_rps for name, one in leader.carried.items()}
    assert [one.workload.name for one in asked] == [workloads[-1].name]


def test_a_round_that_finds_something_better_is_followed_by_all_of_it_at_once() -> None:
    values = {"a": 1, "b": 2, "c.d": 0.5}
    changed = [
        {"a": 1, "b": 3, "c.d": 0.5},
        {"a": 4, "b": 2, "c.d": 0.5, "a.x": 7},
        {"a": 1, "b": 5, "c.d": 0.5},
    ]
    assert together(values, changed) == {"a": 4, "b": 5, "c.d": 0.5, "a.x": 7}


def test_what_a_workload_alone_could_have_is_the_most_that_any_composition_carries() -> None:
    rates = [(5, 1, ""), (1, 4, ""), (6, 2, ""), (99, 99, "no"), (2, 3, "")]
    tried = [a_trial(number, {"a": a, "b": b}, refused=why) for number, (a, b, why) in enumerate(rates)]
    published = [{"a": Carried(5, 5.1), "b": Carried(1, 1.1)}, {"a": Carried(1, 1.1), "b": Carried(4.5, 4.6)}]
    workloads = [replace(WORLD.workloads["slora"], name=name) for name in ("a", "b")]
    assert alone(tried, published, workloads) == {"a": Alone(5, 6, 2), "b": Alone(4.5, 4, 1)}


def test_a_choice_that_needs_what_is_not_there_gives_way_to_the_first_that_does_not() -> None:
    without = fixed(REAL, eviction="banded_lru", memory="paged")
    assert without.choices["eviction"] == "on_demand"
    assert without.settings == fixed(REAL, memory="paged").settings
    assert fixed(REAL, eviction="banded_lru", memory="kept").choices["eviction"] == "banded_lru"


def test_a_score_is_the_mean_of_logarithms_and_stays_finite() -> None:
    assert a_trial(0, {"a": 2.0, "b": 8.0}).score == pytest.approx(math.log(4.0))
    assert math.isfinite(a_trial(0, {"a": 2.0, "b": 0.0}).score)


def a_trial(
    number: int, rates: dict[str, float], composition: Composition | None = None, refused: str = ""
) -> Tried:
    carried = {name: Carried(rate, rate, refused) for name, rate in rates.items()}
    return Tried(number, composition or Composition({}), carried)


def test_the_best_are_each_there_once_and_never_refused() -> None:
    rates = [(1, 1, ""), (9, 2, "no"), (5, 3, ""), (5, 3, ""), (4, 4, ""), (5, 5, "")]
    tried = [
        a_trial(number, {"a": rate}, Composition({}, {"batch": {"b": batch}}), refused)
        for number, (rate, batch, refused) in enumerate(rates)
    ]
    assert [each.number for each in best(tried, 3)] == [2, 5, 4]


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


def test_the_finalist_that_does_best_with_other_seeds_is_chosen(
    world: World, small: Space, made_up: list[Search]
) -> None:
    """Each is searched for from what it carried before."""
    bad = fixed(small, batch="bounded", **{"replica.max_num_seqs": 2})
    tried = [a_trial(0, {"short": 31.0}, bad), a_trial(1, {"short": 28.0}, fixed(small))]
    found = chosen(world, tried, world.systems["slora"], world.of(TRAINING), jobs=1)
    assert found.number == 1
    assert found.finalists[1] > found.finalists[0]
    asked, near = made_up[0]
    assert {one.seed for one in asked} == set(judging.SEEDS)
    assert near == {("trial_0", "short"): 31.0, ("trial_1", "short"): 28.0}
    (again,) = scored(world, [(world.systems["slora"], {"short": 30.0})], world.of(TRAINING), 1)
    assert found.score == again.score


def a_row(rates: dict[str, dict[int, float]], world: World, name: str = "long") -> Row:
    cells = [
        Cell(
            System(system, system, {}),
            world.workloads[name],
            {seed: Carried(rate, rate) for seed, rate in by_seed.items()},
            Use(0.9, 0.5, 0.1),
        )
        for system, by_seed in sorted(rates.items(), key=lambda pair: -sum(pair[1].values()))
    ]
    return Row(world.workloads[name], cells, 1.0, Bound(20.0, 25.0, math.inf))


def exactly(rates: dict[int, float]) -> dict[int, Reading]:
    return {seed: Reading(rate, rate, rate) for seed, rate in rates.items()}


def test_the_composition_is_held_against_the_best_published_of_each_workload(world: World) -> None:
    row = a_row({NAME: {0: 11.0, 1: 12.0}, "slora": {0: 10.0, 1: 10.0}, "lcfs": {0: 9.0, 1: 12.5}}, world)
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


def test_in_other_worlds_it_is_held_against_the_best_there(
    world: World, made_up: list[Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rivals are those of the systems that carry nearly as much as the best here which carry most there."""
    monkeypatch.setattr(frontier, "WORLDS", {"two GPUs": {"cluster.replicas": 2}})
    monkeypatch.setattr(frontier, "SEEDS", range(2))
    monkeypatch.setattr(frontier, "RIVALS", 2)
    eager, half = world.systems["eager"], slora("half", {"replica.max_num_seqs": 32})
    published = [eager, half, world.systems["slora"], slora("slow", {})]
    rates = {"eager": 20.0, "half": 25.0, "slora": 30.0, "slow": 19.9, NAME: 20.0}
    here = {(name, "short"): rate for name, rate in rates.items()}
    own = System(NAME, "", eager.settings)
    (found,) = in_other_worlds(world, [world.workloads["short"]], own, published, here, jobs=1)
    first, then = ({one.system.name for one in asked} for asked, _ in made_up)
    assert first == {NAME, "eager", "half", "slora"}
    assert then == {NAME, "half", "slora"}
    assert found.about == "two GPUs"
    assert found.ratios["short"].keys() == {0, 1}
    assert found.overall.mean == pytest.approx(1.05 * 8 / 64)


AHEAD = "ahead beyond doubt, and by 10 % or more on average"


@pytest.mark.parametrize(
    ("ratios", "line"),
    [
        ([1.2, 1.21, 1.19], AHEAD),
        ([1.05, 1.06, 1.055], "ahead by less, beyond doubt"),
        ([1.3, 0.9, 1.2], "not to be told apart"),
        ([0.8, 0.81, 0.79], "behind, beyond doubt"),
        ([0.0, 0.81, 0.79], "behind, beyond doubt"),
        ([math.inf, 2.0, 2.0], AHEAD),
    ],
)
def test_the_verdict_says_where_it_is_ahead_and_where_it_is_not(
    world: World, ratios: list[float], line: str
) -> None:
    by_seed = dict(enumerate(ratios))
    row = a_row({NAME: by_seed, "slora": dict.fromkeys(by_seed, 1.0)}, world)
    held_out = {"long": exactly(by_seed)}
    lines = verdict(held_out, overall(held_out), [row], [world.systems["slora"]])
    assert f"* {line}: Longer ones" in lines
    assert lines[-1].endswith("Longer ones" if max(ratios) < 1.1 else "nowhere"), "less than 10 % ahead"
    assert sum("nowhere" in one for one in lines[:-1]) == 3


# Published systems are tuned as compositions are


def tuned_of(choice: spaces.Choice, system: System, own: DictConfig) -> Iterator[tuple[str, set[object]]]:
    """Which keys of a choice a system tunes, and over what, its own value included."""
    for key in choice.tuned:
        yield key, {OmegaConf.select(own, key), *system.free.get(key, ())}


@pytest.mark.parametrize("system", WORLD.systems.values(), ids=WORLD.systems)
def test_what_a_composition_may_tune_of_a_policy_is_tuned_of_who_has_it(system: System) -> None:
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


def test_a_published_system_is_what_was_found() -> None:
    settings = {
        "router": "adapter_affinity",
        "router.slack": 8,
        "eviction": "banded_lru",
        "eviction.every_s": 0.1,
        "replica.prefix_caching": True,
    }
    written = text(slora(NAME, settings), {"gpu": "a100_80g", "slo.ttft_s": 1})
    assert written.startswith("# @package _global_\n")
    tree = yaml.safe_load(written)
    chosen = {"gpu": "a100_80g", "router": "adapter_affinity", "eviction": "banded_lru"}
    assert tree["defaults"] == ["slora", *({f"override /{slot}": name} for slot, name in chosen.items())]
    assert (tree["router"], tree["replica"]) == ({"slack": 8}, {"prefix_caching": True})
    assert "eviction" not in tree, "which its own file says"


@pytest.fixture
def small_command(made_up: list[Search], world: World, small: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command search the tiny world and space."""
    monkeypatch.setattr(command, "read", lambda: world)
    monkeypatch.setattr(command, "read_space", lambda: small)
    monkeypatch.setattr(frontier, "WORLDS", {"two GPUs": {"cluster.replicas": 2}})


@pytest.mark.usefixtures("small_command")
def test_the_command_writes_the_study_and_the_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs, system = tmp_path / "docs", tmp_path / "simlora.yaml"
    arguments = [
        "--trials",
        "3",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--docs",
        str(docs),
        "--publish",
        str(system),
    ]
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
