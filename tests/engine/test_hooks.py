"""Hooks: gathered from parts once, only where a part defines them."""

from dataclasses import replace

import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.async_loading import AsyncLoading, InFlightCopies, OverlappedLoader
from simlora.engine.parts.chunked_prefill import ChunkedPrefill
from simlora.engine.parts.kv_offload import PrefixCaching
from simlora.engine.parts.pausing import Pausing
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.adapter_loader import AdapterLoader
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.part import HOOKS, NO_HOOKS, Hooks, Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestTable
from simlora.memory.adapter_cache import AdapterCache
from simlora.policies.scheduling.base import SchedulerOutput
from tests.engine.by_hand import BOTH, prefill_s, steps_s
from tests.engine.cases import Case, Row
from tests.engine.observing import observed

CASE = Case(rows=(Row(0.0, 0, 8, 6, 6), Row(0.0, None, 4, 3, 3)))


class Bounded(Part):
    """Needs a boundary every third step, and at second 1."""

    def __init__(self) -> None:
        self.turns: list[float] = []

    def steps(self, most: int) -> int:
        return min(most, 3)

    def next_s(self) -> float:
        return 1.0

    def on_turn(self, now_s: float) -> None:
        self.turns.append(now_s)


class Released(Bounded):
    """Also defines on_release."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[int] = []

    def on_release(self, request: Request, now_s: float) -> None:
        self.ids.append(request.id)


class Delaying(Part):
    """Lets 2**-5 s pass before every iteration."""

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        return 2**-5

    def steps(self, most: int) -> int:
        return min(most, 1)


def replica(**changes: object) -> Replica:
    """A replica before its run."""
    return Simulation(CASE.but(**changes).scenario()).fleet.replicas[0]


def test_what_passes_before_an_iteration_counts_for_every_one():
    scenario = Case(rows=(Row(0.0, None, 4, 6, 6),)).scenario()
    (row,) = observed(scenario, lambda replica: Delaying()).recorder.requests().itertuples()
    assert row.finish_s == pytest.approx(6 * 2**-5 + prefill_s(4) + steps_s(5, 5), rel=1e-12)


def test_a_copy_to_the_host_does_not_shorten_another_wait():
    swapping = replica(preemption="swap", reserve="paged")
    swapping.stall(100.0)
    assert swapping.table._swap_out is not None
    swapping.table._swap_out(3, 0.0)
    assert swapping.runner.stalled_until_s == 100.0


def test_a_hook_is_gathered_only_from_parts_whose_class_defines_it():
    quiet, bounded, released = Part(), Bounded(), Released()
    hooks = Hooks((quiet, bounded, released))
    assert hooks.parts == (quiet, bounded, released)
    assert hooks.bounds == (bounded, released)
    assert hooks.on_turn == (bounded.on_turn, released.on_turn), "one that is inherited counts, in order"
    assert hooks.on_release == (released.on_release,)
    assert not any(getattr(hooks, name) for name in HOOKS if name not in ("on_turn", "on_release"))


def test_every_hook_of_a_part_is_gathered_or_asked_as_a_bound():
    other = {"awaits", "outlives_requests", "inherit_counters", "next_s", "requires", "steps"}
    assert {name for name in vars(Part) if not name.startswith("_")} - other == set(HOOKS)
    assert not any(getattr(NO_HOOKS, name) for name in (*HOOKS, "bounds", "parts"))


@pytest.mark.parametrize(
    "scheduler, loader, eviction", [("fcfs", "blocking", "lru"), ("early_abort", "cached", "on_demand")]
)
def test_a_plain_replica_has_no_part_and_no_hook(scheduler, loader, eviction):
    """S-LoRA's: unified paging, adapters that are loaded before the prefill, and an ordinary scheduler."""
    plain = replica(scheduler=scheduler, loader=loader, eviction=eviction)
    assert plain.hooks.parts == plain.hooks.bounds == ()
    assert not any(getattr(plain.hooks, name) for name in HOOKS)
    assert plain.loader.on_admit == plain.loader.on_missing == plain.loader.reload == ()
    cache = plain.kv.adapters
    assert cache.on_change == cache.on_evict == ()
    kinds = [AdapterLoader, KVCacheManager, ModelRunner, RequestTable, AdapterCache]
    assert [type(each) for each in (plain.loader, plain.kv, plain.runner, plain.table, cache)] == kinds


CACHED: dict[str, object] = {"prefix_caching": True, "reserve": "full"}


@pytest.mark.parametrize(
    "changes, kinds",
    [
        ({"scheduler": "chunked_prefill"}, [ChunkedPrefill]),
        ({"scheduler": "unmerged_only"}, [Pausing]),
        ({"loader": "asynchronous"}, [AsyncLoading, InFlightCopies]),
        (CACHED, [InFlightCopies, PrefixCaching]),
        (
            CACHED | {"host_kv_tokens": 99, "eviction": "cost_model"},
            [InFlightCopies, UnifiedSwapper, PrefixCaching],
        ),
    ],
)
def test_a_replica_has_the_parts_of_its_mechanisms_and_no_others(changes, kinds):
    found = replica(**changes)
    parts = [type(part) for part in found.hooks.parts if type(part).__name__ != "Merging"]
    assert (set(parts), len(parts)) == (set(kinds), len(kinds))
    assert all(found.part(kind) is not None for kind in kinds)
    assert (type(found.loader) is OverlappedLoader) == (InFlightCopies in kinds)


def test_parts_of_the_scenario_come_after_the_system_s_in_their_order():
    own = (lambda replica: Bounded(), lambda replica: Released())
    scenario = replace(CASE.but(scheduler="chunked_prefill").scenario(), parts=own)
    parts = Simulation(scenario).fleet.replicas[0].hooks.parts
    assert [type(part) for part in parts] == [ChunkedPrefill, Bounded, Released]


@BOTH
def test_a_part_gets_the_boundaries_that_it_needs_and_changes_nothing_else(fast_forward):
    """Windows of at most three steps, and one that ends at the first boundary from second 1 on."""
    case = Case(rows=(Row(0.0, None, 8, 90, 90), Row(0.0, None, 4, 3, 3)))
    simulation = observed(case.scenario(fast_forward=fast_forward), lambda replica: Released())
    recorder, plain = simulation.recorder, case.run(fast_forward=fast_forward)
    assert recorder.requests().equals(plain.requests())
    part = simulation.fleet.replicas[0].part(Released)
    assert part.ids == [1, 0]
    if fast_forward:
        assert recorder.boundaries > max(plain.boundaries, 89 / 3)
    else:
        assert recorder.boundaries == plain.boundaries
