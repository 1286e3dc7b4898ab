"""The climb, over candidates whose scores are made up: how few replicas, which flags, which apart, how far they go."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from simlora.planning import climbing, explaining
from simlora.planning.apart import Prefilling
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.climbing import HOPEFUL, SPARED
from simlora.planning.explaining import STEPS
from simlora.planning.machines import SLOTS, Machine
from simlora.planning.tuning import Tuning, tuning
from simlora.sweeps.question import REPLICAS, asked
from tests.planning.traffic import ALIKE, TRAFFIC, on

MOST = 64


class MadeUp(Trials):
    """Nothing is simulated: a candidate has the score that `of` gives it and a seed. `tried` are those asked for."""

    def __init__(self, of: Callable[[Candidate, int], float]) -> None:
        super().__init__(asked(TRAFFIC, REPLICAS, None, None, None, None, 2, 0.02), jobs=1)
        self.of = of
        self.tried: list[Candidate] = []

    def run(self, candidates: Iterable[Candidate], seeds: Sequence[int]) -> None:
        self.tried += candidates

    def score(self, candidate: Candidate, seeds: Sequence[int]) -> float:
        return min(self.of(candidate, seed) for seed in seeds)

    def met(self, candidate: Candidate, seeds: Sequence[int]) -> bool:
        return self.score(candidate, seeds) >= 1.0


Of = tuple[Machine, Tuning]


def tuned(user: tuple[str, ...]) -> Of:
    chosen, traffic = on(user=user)
    return replace(chosen, least=1), tuning(chosen, traffic, {}, 0.05)


@pytest.fixture(scope="module")
def alike() -> Of:
    return tuned(ALIKE)


@pytest.fixture(scope="module")
def mixed() -> Of:
    """Adapters of two ranks, of which one may be set apart."""
    return tuned(TRAFFIC)


def slots(one: Candidate) -> int:
    return int(dict(one.settings)[SLOTS])


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8, 9])
def test_the_fewest_replicas_are_found(alike, needed):
    best = climbing.fewest(MadeUp(lambda one, seed: one.replicas / needed), *alike, MOST)
    assert best.replicas == needed


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 8, 9])
def test_they_keep_the_slo_with_every_seed(alike, needed):
    """The second needs one more."""
    best = climbing.fewest(MadeUp(lambda one, seed: one.replicas / (needed + seed)), *alike, MOST)
    assert best.replicas == needed + 1


def test_no_more_replicas_are_looked_at_than_may_be_found_nor_than_bring_the_slo_nearer(alike):
    few = MadeUp(lambda one, seed: one.replicas / 5)
    assert climbing.fewest(few, *alike, 4) is None
    assert max(one.replicas for one in few.tried) == 4
    found = climbing.fewest(few, *alike, 5)
    assert found is not None
    level = MadeUp(lambda one, seed: 0.5)
    assert climbing.fewest(level, *alike, MOST) is None
    assert max(one.replicas for one in level.tried) == 4, "twice in a row the SLO is no nearer"


def test_flags_are_climbed_to_where_fewer_replicas_keep_the_slo(alike):
    """With two slots a single replica does; it is begun with more, one step of the ladder after the other."""
    ladder = list(alike[1].ladders[SLOTS])
    assert dict(alike[1].start(1))[SLOTS] > 4
    trials = MadeUp(lambda one, seed: 1.0 - 0.1 * abs(ladder.index(slots(one)) - ladder.index(2)))
    best = climbing.fewest(trials, *alike, MOST)
    assert (best.replicas, slots(best)) == (1, 2)


def test_some_replicas_are_set_apart_where_fewer_keep_the_slo_then(mixed):
    trials = MadeUp(lambda one, seed: one.replicas / (5 if one.apart is None else 2))
    best = climbing.cheapest(trials, *mixed, MOST)
    assert best.apart is not None
    assert best.replicas == 2
    apart = [one.replicas for one in trials.tried if one.apart is not None]
    assert apart[0] == max(apart) == 4, "one fewer than without"


def test_replicas_are_set_apart_where_none_keep_the_slo_otherwise(mixed):
    trials = MadeUp(lambda one, seed: 0.5 if one.apart is None else one.replicas / 4)
    best = climbing.cheapest(trials, *mixed, MOST)
    assert best.apart is not None
    assert best.replicas == 4
    assert max(one.replicas for one in trials.tried if one.apart is not None) == 4, "twice as many each time"
    assert climbing.cheapest(MadeUp(lambda one, seed: 0.5), *mixed, MOST) is None


def test_replicas_that_only_prefill_are_tried_where_they_are_asked_for(alike):
    machine, of = alike
    trials = MadeUp(lambda one, seed: 0.5 if one.apart is None else one.replicas / 4)
    assert climbing.cheapest(trials, machine, of, MOST) is None
    best = climbing.cheapest(trials, machine, replace(of, pools=True), MOST)
    assert isinstance(best.apart, Prefilling)
    assert best.replicas == 4


@pytest.mark.parametrize(("nearness", "climbs"), [(HOPEFUL, True), (HOPEFUL - 0.001, False)])
def test_replicas_apart_are_climbed_from_where_they_are_near_to_the_slo(mixed, nearness, climbs):
    trials = MadeUp(lambda one, seed: one.replicas / 3 if one.apart is None else nearness)
    best = climbing.cheapest(trials, *mixed, MOST)
    assert (best.replicas, best.apart) == (3, None)
    starts = {one.settings for one in climbing.opening(*mixed, 2)} | set(mixed[1].routed(best.settings, 2))
    assert any(one.apart and one.settings not in starts for one in trials.tried) is climbs


def test_nothing_is_set_apart_of_one_rank_or_where_the_user_places_adapters(alike, mixed):
    machine, of = mixed
    placed = replace(machine, overrides=(*machine.overrides, "placement=rank_demand"))
    for one in (alike, (placed, of)):
        trials = MadeUp(lambda one, seed: 0.5 if one.apart is None else 1.0)
        assert climbing.cheapest(trials, *one, MOST) is None


@pytest.mark.parametrize(("gain", "last"), [(0.1, 24), (SPARED / 24, 1)])
def test_flags_are_steadied_as_long_as_that_spares_something(alike, gain, last):
    """More slots do better where iterations are longer, and every setting keeps the SLO."""
    machine, of = alike
    settings = tuple((key, 1 if key == SLOTS else value) for key, value in of.start(1))
    trials = MadeUp(lambda one, seed: 1.0 + gain * slots(one) * bool(one.more))
    found = climbing.steadied(trials, Candidate(machine, 1, settings), of)
    assert slots(found) == last
    assert found.more == ()


@pytest.mark.parametrize(("spares", "apart"), [(2 * SPARED, True), (SPARED / 2, False)])
def test_replicas_are_set_apart_at_the_same_cost_where_that_spares_something(mixed, spares, apart):
    machine, of = mixed
    trials = MadeUp(lambda one, seed: 1.0 + spares * (one.apart is not None))
    found = climbing.steadied(trials, Candidate(machine, 4, of.start(4)), of)
    assert found.replicas == 4
    assert (found.apart is not None) is apart


@pytest.mark.parametrize(
    ("short", "long", "found"),
    [(1.7, 1.7, 1.7), (1.7, 1.3, 1.3), (1.3, 1.7, 1.7), (9.0, 9.0, 2.0), (0.9, 0.9, 1.0)],
)
def test_the_highest_factor_is_one_that_longer_runs_keep_too(alike, short, long, found):
    """The SLO is kept up to a factor of `short`, and of `long` in longer runs; 2 is the most that is looked at."""
    machine, of = alike
    trials = MadeUp(lambda one, seed: (short if one.machine.times == 1 else long) / float(one.more[0]))

    def harder(one: Candidate, factor: float) -> Candidate:
        return one.changed(more=(repr(factor),))

    one = Candidate(machine, 1, of.start(1))
    assert found / 2 ** (0.5**STEPS) <= explaining.highest(trials, one, harder, 2.0) <= found
