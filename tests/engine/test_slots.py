"""Adapter slots, host memory and disk: vLLM's memory, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica_config import ReplicaConfig
from simlora.policies.eviction.lru_in_turn import turn
from tests.engine.by_hand import load_s, prefill_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

CASE = Case(
    rows=(),
    ranks=(1, 2, 4),
    scheduler="chunked_prefill",
    kernel="merged",
    eviction="lru",
    reserve="paged",
    watermark=0.0,
    max_wait_tokens=0,
    adapter_memory="slots",
    max_loras=2,
    adapter_region_tokens=2 * 16,
)
FAR = 50.0
"""By then all requests have left."""


def disk_s(rank: int) -> float:
    """Seconds to read an adapter from disk: 64 bytes a rank."""
    return C["adapter_load.disk_latency_s"] + 64 * rank / C["adapter_load.disk_bytes_per_s"]


def one_after_the_other(*adapters: int) -> tuple[Row, ...]:
    return tuple(Row(FAR * i, adapter, 4, 1, 1) for i, adapter in enumerate(adapters))


def ttfts(case: Case) -> list[float]:
    return [float(ttft) for ttft in case.run().requests().ttft_s]


def test_slots_keep_the_adapters_used_last() -> None:
    """With two slots the third takes the first's, and the first then the second's."""
    case = CASE.but(rows=one_after_the_other(0, 1, 2, 1, 0, 2))
    loads = [load_s(1), load_s(2), load_s(4), 0.0, load_s(1), load_s(4)]
    assert ttfts(case) == pytest.approx([load + prefill_s(4) for load in loads], abs=1e-12)
    assert case.run().adapter_loads == 5


def test_an_adapter_takes_a_whole_slot_whatever_its_rank() -> None:
    simulation = Simulation(CASE.but(rows=one_after_the_other(0, 2)).scenario())
    assert [adapter.kv_tokens for adapter in simulation.adapters] == [16, 16, 16]
    assert [adapter.size_bytes for adapter in simulation.adapters] == [64, 128, 256], (
        "but is not loaded whole"
    )


def test_kv_takes_none_of_the_adapters_slots_and_they_none_of_kvs() -> None:
    """40 token slots hold a prompt of 39 and its token beside both adapters, and not one more."""
    fits = CASE.but(rows=(Row(0.0, 0, 4, 1, 1), Row(FAR, 1, 39, 1, 1)), capacity=40, block_size=1)
    assert fits.run().requests().status.tolist() == ["finished", "finished"]
    assert fits.simulation().fleet.replicas[0].kv.adapters.adapter_tokens == 32
    longer = fits.but(rows=(Row(0.0, 1, 40, 1, 1),))
    table = longer.run().requests()
    assert table.status.tolist() == ["rejected"]
    assert "replica.kv_token_budget 40" in table.reason[0]


def test_an_adapter_that_no_part_can_hold_is_rejected() -> None:
    case = CASE.but(
        rows=(Row(0.0, 2, 4, 1, 1), Row(0.0, 0, 4, 1, 1)), adapter_memory="partition", adapter_region_tokens=8
    )
    table = case.run().requests()
    assert table.status.tolist() == ["rejected", "finished"]
    assert table.reason[0] == "its adapter does not fit replica.adapter_region_tokens 8"


LATER = Row(2**-10, 1, 4, 1, 1)
"""Waits for a slot: both are in use, of one of them for five tokens only."""
TAKEN = CASE.but(rows=(Row(0.0, 0, 4, 40, 40), Row(0.0, 2, 4, 5, 5), LATER))


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_load_into_full_slots_throws_out_an_adapter_in_use_which_is_loaded_again(
    fast_forward: bool,
) -> None:
    """Turns are 1, 0, 2: adapter 1 finds both slots taken, 2's not free yet. It takes 0's, and 0 then takes 2's."""
    assert sorted(range(3), key=turn) == [1, 0, 2]
    again = TAKEN.but(eviction="lru_in_turn").run(fast_forward=fast_forward)
    table = again.requests()
    assert table.admitted_s[2] - table.finish_s[1] == pytest.approx(load_s(2) + load_s(1), abs=1e-12)
    assert (again.reloads, again.adapter_loads) == (1, 4)
    plain = TAKEN.run(fast_forward=fast_forward)
    table = plain.requests()
    assert table.admitted_s[2] - table.finish_s[1] == pytest.approx(load_s(2), abs=1e-12)
    assert (plain.reloads, plain.adapter_loads) == (0, 3)


def test_an_adapter_that_left_before_the_last_step_is_the_least_recent_of_all() -> None:
    idle = TAKEN.but(rows=(*TAKEN.rows[:2], LATER._replace(arrival_s=0.2)), eviction="lru_in_turn")
    table = idle.run().requests()
    assert table.finish_s[1] < 0.2 < table.finish_s[0], "it comes to a slot that has been idle for some steps"
    assert idle.run().reloads == 0


def test_weights_that_are_always_there_are_not_loaded_again() -> None:
    recorder = TAKEN.but(eviction="lru_in_turn", loader="cached").run()
    assert (recorder.reloads, recorder.adapter_loads) == (0, 0)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_every_step_takes_as_long_as_looking_at_the_requests_that_are_skipped(fast_forward: bool) -> None:
    """A prefill and four steps go by until the second is done; the third is looked at in each of them."""
    look_s = 2**-7
    case = TAKEN.but(rows=(*TAKEN.rows[:2], LATER._replace(arrival_s=0.0)))
    tables = [
        case.but(coefficients=C | {"scheduler.per_passed_request_s": each_s})
        .run(fast_forward=fast_forward)
        .requests()
        for each_s in (0.0, look_s)
    ]
    longer = [float(other - one) for one, other in zip(tables[0].finish_s, tables[1].finish_s, strict=True)]
    assert longer == pytest.approx([5 * look_s] * 3, abs=1e-12)


def test_a_request_without_a_slot_is_skipped_until_one_is_free() -> None:
    rows = (Row(0.0, 0, 4, 40, 40), Row(0.0, 1, 4, 20, 20), Row(2**-10, 2, 4, 1, 1), Row(2**-9, 0, 4, 1, 1))
    table = CASE.but(rows=rows).run().requests()
    assert table.admitted_s[3] < table.finish_s[1] <= table.admitted_s[2] < table.finish_s[0]


def test_no_further_adapter_overtakes_one_that_a_partition_has_no_room_for() -> None:
    """Eight token slots: ranks 1 and 1 fit, ranks 1 and 2 do not."""
    rows = (Row(0.0, 0, 4, 9, 9), Row(0.0, 1, 4, 9, 9), Row(0.0, 2, 4, 9, 9), Row(0.0, 0, 4, 1, 1))
    case = CASE.but(
        rows=rows, ranks=(1, 2, 1), adapter_memory="partition", adapter_region_tokens=8, max_loras=None
    )
    table = case.run().requests()
    assert table.admitted_s[3] < table.finish_s[0] <= table.admitted_s[1] < table.admitted_s[2]
    fits = case.but(rows=(rows[0], rows[2])).run().requests()
    assert fits.admitted_s[1] < fits.finish_s[0]


def test_the_first_use_comes_from_disk_and_the_next_from_host_memory() -> None:
    case = CASE.but(rows=one_after_the_other(0, 1, 2, 0, 1), max_cpu_loras=3)
    first = [disk_s(rank) + load_s(rank) for rank in (1, 2, 4)]
    waits = [*first, load_s(1), load_s(2)]
    assert ttfts(case) == pytest.approx([wait + prefill_s(4) for wait in waits], abs=1e-12)
    assert case.run().disk_loads == 3


def test_host_memory_forgets_the_adapter_used_longest_ago() -> None:
    """Two in host memory and in the slots: the third pushes the first out of both."""
    case = CASE.but(rows=one_after_the_other(0, 1, 2, 0), max_cpu_loras=2)
    assert ttfts(case)[3] == pytest.approx(disk_s(1) + load_s(1) + prefill_s(4), abs=1e-12)
    # Of three, the second was used longest ago: the first has been used once more, though not loaded.
    case = CASE.but(rows=one_after_the_other(0, 1, 0, 2, 3, 0), ranks=(1, 2, 4, 1), max_cpu_loras=3)
    assert ttfts(case)[5] == pytest.approx(load_s(1) + prefill_s(4), abs=1e-12)


def test_without_a_limit_everything_is_in_host_memory_from_the_start() -> None:
    assert CASE.but(rows=one_after_the_other(0, 1, 2)).run().disk_loads == 0


def test_host_memory_holds_at_least_what_runs() -> None:
    with pytest.raises(InputError, match=r"replica\.max_cpu_loras is 1, must be at least replica\.max_loras"):
        ReplicaConfig(kv_token_budget=10, max_loras=2, max_cpu_loras=1)


def test_a_prefetched_adapter_takes_an_idle_ones_slot_while_the_batch_decodes() -> None:
    """The batch is full: the second request waits for its seat, and its adapter lands meanwhile."""
    rows = (Row(0.0, 0, 4, 1, 1), Row(FAR, 1, 4, 30, 30), Row(FAR, 2, 4, 1, 1))
    blocking = CASE.but(rows=rows, max_num_seqs=1)
    ahead = blocking.but(loader="prefetching")
    assert blocking.run().requests().cold_start_s[2] == load_s(4)
    assert ahead.run().requests().cold_start_s[2] == 0.0
    assert ahead.run().adapter_loads == 3


def test_the_front_end_takes_its_time_before_the_queue_and_the_client_waits_for_it() -> None:
    plain = CASE.but(rows=one_after_the_other(0, 0))
    slow = plain.but(coefficients=C | {"front_end.per_request_s": 2**-7})
    assert ttfts(slow) == pytest.approx([ttft + 2**-7 for ttft in ttfts(plain)], abs=1e-12)
    table = slow.run().requests()
    assert table.arrival_s.tolist() == [0.0, FAR]
    assert table.admitted_s[1] == FAR + 2**-7


def test_a_clock_that_stops_leaves_what_still_runs_unfinished() -> None:
    rows = (Row(0.0, None, 4, 2, 2), Row(0.0, None, 4, 30, 30), Row(FAR, None, 4, 1, 1))
    scenario = replace(CASE.but(rows=rows).scenario(), until_s=0.3)
    recorder = Simulation(scenario).run()
    table = recorder.requests()
    assert table.status.tolist() == ["finished", "unfinished", "unfinished"]
    assert 1 < recorder.token_steps < 30
    assert table.replica.tolist() == [0, 0, -1], "the last one had not come yet"
    assert table.admitted_s[1] == 0.0 < table.first_token_s[1] == table.first_token_s[0]
    assert table[["finish_s", "latency_s", "tpot_s"]].loc[1].isna().all()


@pytest.mark.parametrize("until_s", [0.15, 0.3])
def test_a_stopped_run_has_seen_what_the_plain_loop_had(until_s: float) -> None:
    """At 0.25 s the batch is full; of the waiting requests, one came after the last boundary before the end."""
    rows = (Row(0.0, None, 4, 90, 90), *(Row(at_s, None, 4, 9, 9) for at_s in (0.01, 0.1, until_s - 2**-12)))
    case = CASE.but(rows=rows, max_num_seqs=1, until_s=until_s)
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert fast.fleet.replicas[0].most_waiting == plain.fleet.replicas[0].most_waiting == 2
    assert fast.recorder.boundaries < plain.recorder.boundaries


def test_a_clock_that_stops_late_changes_nothing() -> None:
    case = CASE.but(rows=one_after_the_other(0, 1, 2))
    assert case.but(until_s=1e6).run().requests().equals(case.run().requests())
