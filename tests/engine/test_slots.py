"""Adapter slots, host memory and disk: vLLM's memory, worked out by hand."""

import pytest

from simlora.policies.eviction.lru_in_turn import turn
from tests.engine.by_hand import load_s, prefill_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

CASE = Case(
    ranks=(1, 2, 4, 1),
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
    """Seconds to read an adapter from disk, 64 bytes a rank, and to load it."""
    read_s = C["adapter_load.disk_latency_s"] + 64 * rank / C["adapter_load.disk_bytes_per_s"]
    return read_s + load_s(rank)


def one_after_the_other(*adapters: int) -> tuple[Row, ...]:
    return tuple(Row(FAR * i, adapter, 4, 1, 1) for i, adapter in enumerate(adapters))


@pytest.mark.parametrize(
    "adapters, on_host, waits_s",
    [
        ((0, 1, 2, 1, 0, 2), None, [load_s(1), load_s(2), load_s(4), 0.0, load_s(1), load_s(4)]),
        ((0, 1, 2, 0, 1), 3, [disk_s(1), disk_s(2), disk_s(4), load_s(1), load_s(2)]),
        ((0, 1, 2, 0), 2, [disk_s(1), disk_s(2), disk_s(4), disk_s(1)]),
        ((0, 1, 0, 2, 3, 0), 3, [disk_s(1), disk_s(2), 0.0, disk_s(4), disk_s(1), load_s(1)]),
    ],
    ids=[
        "all on the host: the third takes the first's slot, and the first then the second's",
        "the first use comes from disk, the next from host memory",
        "the third pushes the first out of slots and host memory",
        "there the second was used longest ago: the first once more, though not loaded",
    ],
)
def test_slots_and_host_memory_keep_the_adapters_used_last(adapters, on_host, waits_s):
    recorder = CASE.but(rows=one_after_the_other(*adapters), max_cpu_loras=on_host).run()
    ttfts_s = recorder.requests().ttft_s.tolist()
    assert ttfts_s == pytest.approx([wait_s + prefill_s(4) for wait_s in waits_s], abs=1e-12)
    assert recorder.adapter_loads == sum(wait_s > 0 for wait_s in waits_s)
    assert recorder.disk_loads == sum(wait_s >= disk_s(1) for wait_s in waits_s)


LATER = Row(2**-10, 1, 4, 1, 1)
"""Waits for a slot: both are in use, of one of them for five tokens only."""
TAKEN = CASE.but(rows=(Row(0.0, 0, 4, 40, 40), Row(0.0, 2, 4, 5, 5), LATER))


@pytest.mark.parametrize(
    "eviction, waits_s, loads", [("lru_in_turn", load_s(2) + load_s(1), (1, 4)), ("lru", load_s(2), (0, 3))]
)
def test_a_load_into_full_slots_throws_out_an_adapter_in_use_which_is_loaded_again(eviction, waits_s, loads):
    """Turns are 1, 0, 2: adapter 1 finds both slots taken, 2's not free yet. It takes 0's, and 0 then takes 2's."""
    assert sorted(range(3), key=turn) == [1, 0, 2]
    recorder = TAKEN.but(eviction=eviction).run()
    table = recorder.requests()
    assert table.admitted_s[2] - table.finish_s[1] == pytest.approx(waits_s, abs=1e-12)
    assert (recorder.reloads, recorder.adapter_loads) == loads


def test_an_adapter_that_left_before_the_last_step_is_the_least_recent_of_all():
    recorder = TAKEN.but(rows=(*TAKEN.rows[:2], LATER._replace(arrival_s=0.2)), eviction="lru_in_turn").run()
    finish_s = recorder.requests().finish_s
    assert finish_s[1] < 0.2 < finish_s[0], "it comes to a slot that has been idle for some steps"
    assert recorder.reloads == 0


def test_weights_that_are_always_there_are_not_loaded_again():
    recorder = TAKEN.but(eviction="lru_in_turn", loader="cached").run()
    assert (recorder.reloads, recorder.adapter_loads) == (0, 0)


def test_every_step_takes_as_long_as_looking_at_the_requests_that_are_skipped():
    """A prefill and four steps go by until the second is done; the third is looked at in each of them."""
    look_s = 2**-7
    case = TAKEN.but(rows=(*TAKEN.rows[:2], LATER._replace(arrival_s=0.0)))
    free, looking = (
        case.but(coefficients=C | {"scheduler.per_passed_request_s": each_s}).table()
        for each_s in (0.0, look_s)
    )
    assert (looking.finish_s - free.finish_s).tolist() == pytest.approx([5 * look_s] * 3, abs=1e-12)


def test_a_prefetched_adapter_takes_an_idle_ones_slot_while_the_batch_decodes():
    """The batch is full: the second request waits for its seat, and its adapter lands meanwhile."""
    rows = (Row(0.0, 0, 4, 1, 1), Row(FAR, 1, 4, 30, 30), Row(FAR, 2, 4, 1, 1))
    blocking = CASE.but(rows=rows, max_num_seqs=1)
    ahead = blocking.but(loader="prefetching").run()
    assert blocking.table().cold_start_s[2] == load_s(4)
    assert (ahead.requests().cold_start_s[2], ahead.adapter_loads) == (0.0, 3)
