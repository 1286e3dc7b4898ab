"""Prefill and decode on different replicas: what is handed over when, where KV is kept, and what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from experiments.torture.watch import watched
from simlora.core.errors import InputError
from simlora.engine.clients import Clients
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.kv_transfer import Handovers
from simlora.policies.scheduling.base import Abort, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.scheduling.lcfs import Lcfs
from simlora.policies.views import ReplicaView
from tests.engine.by_hand import chunks_s, kv_s, load_s, prefill_s, step_s, steps_s
from tests.engine.cases import TINY, Case, Row, apart
from tests.engine.observing import all_requests_end, holds_nothing
from tests.engine.test_fast_forward import assert_same
from tests.engine.test_queueing import FREE, ONE_SERVER, TOKEN_S, arrivals, exponential

KV_BYTES = TINY.kv_bytes_per_token
CASE = Case(
    replicas=2,
    prefill_replicas=1,
    reserve="paged",
    watermark=0.0,
    eviction="lru",
    kernel="merged",
    max_wait_tokens=0,
    network_bytes_per_s=4096.0,
)


def copy_s(tokens: int, bytes_per_s: float = 4096.0) -> float:
    """Seconds to copy the KV of so many tokens over the network of a case."""
    return 2**-9 + tokens * KV_BYTES / bytes_per_s


def run(*rows: Row, **changes: object) -> tuple[Simulation, pd.DataFrame, Handovers]:
    simulation = CASE.but(rows=rows, **changes).simulation()
    return simulation, simulation.recorder.requests(), simulation.apart.transfers.log()


def test_the_prefill_replica_has_the_first_token_and_the_other_all_further_ones():
    simulation, table, log = run(Row(0.0, None, 20, 5, 5))
    assert table.first_token_s[0] == prefill_s(20)
    assert log.source.tolist() == [0]
    assert table.replica[0] == 1
    assert log.begin_s[0] == table.first_token_s[0], "the decode replica is idle, and admits it at once"
    assert log.end_s[0] == log.begin_s[0] + copy_s(20)
    assert table.finish_s[0] == log.end_s[0] + steps_s(4, 21), "no token is computed twice"
    assert simulation.recorder.token_steps == 4
    assert table.migrations[0] == 0


@pytest.mark.parametrize(
    ("bytes_per_s", "end_s"),
    [
        (2.0**22, lambda pass_s, layer_s: pass_s + layer_s),
        (64.0, lambda pass_s, layer_s: pass_s / 4 + 4 * layer_s),
    ],
    ids=["fast", "slow"],
)
def test_layer_by_layer_the_last_one_comes_a_layer_after_the_pass_or_all_after_the_first(bytes_per_s, end_s):
    changes = {"kv_handover": "by_layer", "layers": 4, "network_bytes_per_s": bytes_per_s}
    row = Row(0.0, None, 40, 5, 5)
    _, table, log = run(row, **changes)
    assert table.first_token_s[0] == prefill_s(40)
    layer_s = 2**-9 + 40 * KV_BYTES / bytes_per_s
    assert log.end_s[0] == pytest.approx(end_s(prefill_s(40), layer_s))
    assert table.finish_s[0] == pytest.approx(log.end_s[0] + steps_s(4, 41)), "no token is computed twice"


@pytest.mark.parametrize(("scheduler", "order"), [(Fcfs, [0, 1]), (Lcfs, [1, 0])])
def test_layer_by_layer_the_prompts_of_a_pass_follow_each_other(scheduler, order):
    """Of two in a pass that takes longer than their copies: the link sends both while they are computed."""
    rows = Row(0.0, None, 40, 5, 5), Row(0.0, None, 20, 5, 5)
    case = CASE.but(rows=rows, kv_handover="by_layer", layers=4, network_bytes_per_s=2.0**22)
    simulation = case.but(max_num_batched_tokens=60).simulation(scheduler=scheduler)
    table = simulation.recorder.requests()
    pass_s = prefill_s(40, 20)
    assert table.first_token_s.tolist() == [pass_s] * 2
    layers_s = [2**-9 + tokens * KV_BYTES / 2.0**22 for tokens in (40, 20)]
    assert 4 * sum(layers_s) < pass_s
    log = simulation.apart.transfers.log()
    assert log.request.tolist() == order
    first = order[0]
    assert log.end_s.tolist() == pytest.approx([pass_s + layers_s[first], pass_s + sum(layers_s)])
    assert log.begin_s[1] == pytest.approx(log.begin_s[0] + 4 * layers_s[first])


def test_it_joins_the_running_batch_without_a_pass():
    """While its KV is on the way, others decode; a step after it is there it decodes with them."""
    first, second = Row(0.0, None, 4, 60, 60), Row(0.0, None, 60, 3, 3)
    _, table, log = run(first, second, max_num_batched_tokens=60)
    begin_s = log.end_s[0]
    assert table.first_token_s[1] == prefill_s(4) + prefill_s(60)
    steps = 0
    while begin_s + steps_s(steps, 5) < log.end_s[1]:
        steps += 1
    joined_s = begin_s + steps_s(steps, 5)
    assert table.finish_s[1] == joined_s + step_s(5 + steps, 61) + step_s(6 + steps, 62)


def test_one_token_ends_where_it_was_computed():
    _, table, log = run(Row(0.0, None, 8, 1, 9))
    assert len(log.request) == 0
    assert (table.replica[0], table.finish_s[0]) == (0, prefill_s(8))


def test_kv_is_kept_until_its_copy_has_ended_and_holds_up_requests_that_wait_for_memory():
    """Of 48 slots a prompt of 40 leaves no room for another of 20, until it has been copied."""
    rows = Row(0.0, None, 40, 2, 2), Row(0.0, None, 20, 2, 2)
    _, table, log = run(*rows, capacity=48, max_num_batched_tokens=48)
    assert log.begin_s[0] == prefill_s(40)
    assert table.admitted_s[1] == log.end_s[0] == log.begin_s[0] + copy_s(40)


def test_a_decode_pool_without_a_seat_fills_the_prefill_pool():
    rows = tuple(Row(0.0, None, 40, 20, 20) for _ in range(3))
    _, table, log = run(*rows, capacity=80, max_num_seqs=1)
    assert log.begin_s[1] == table.finish_s[0], "the seat of the first is free"
    assert table.admitted_s[2] == log.end_s[1], "two prompts are kept, and there is room for no third"


@pytest.mark.parametrize("decode_replicas, waits_s", [(1, copy_s(16)), (2, 0.0)])
def test_copies_that_share_a_link_follow_each_other_and_others_do_not_wait(decode_replicas, waits_s):
    """Two prefill replicas send to the same decode replica at once, or to two."""
    rows = Row(0.0, None, 16, 2, 2), Row(0.0, None, 16, 2, 2)
    _, _, log = run(*rows, replicas=2 + decode_replicas, prefill_replicas=2)
    assert log.source.tolist() == [0, 1]
    assert log.asked_s.tolist() == [prefill_s(16)] * 2
    assert log.begin_s.tolist() == [prefill_s(16), prefill_s(16) + waits_s]
    assert (log.end_s - log.begin_s).tolist() == [copy_s(16)] * 2


def test_kv_that_is_not_there_yet_is_fetched_again_and_not_computed():
    """The batch outgrows the pool while the second request's KV is on a slow link: it leaves, and comes back later."""
    rows = Row(0.0, None, 20, 30, 30), Row(0.0, None, 20, 4, 4)
    simulation, table, log = run(
        *rows, capacity=64, max_num_batched_tokens=60, network_bytes_per_s=512.0, preemption="swap"
    )
    assert table.preemptions[1] == 1
    assert simulation.recorder.token_steps == 29 + 3, "no prompt was computed where it decodes"
    assert simulation.fleet.replicas[1].host_link.kv_tokens_out == 0, (
        "nor was KV sent to the host that was not there"
    )
    assert (table.status == "finished").all()
    assert log.asked_s[1] >= table.finish_s[0]


def test_links_that_are_busy_when_the_clock_stops_were_busy_until_then():
    rows, until_s = tuple(Row(0.0, None, 32, 4, 4) for _ in range(6)), 0.6
    simulation, _, log = run(*rows, network_bytes_per_s=512.0, until_s=until_s)
    begun = ~np.isnan(log.begin_s)
    under_way = begun & np.isnan(log.end_s)
    assert under_way.sum() == 1
    ends_s = np.where(np.isnan(log.end_s), until_s, log.end_s)
    busy_s = float((ends_s - log.begin_s)[begun].sum())
    assert simulation.apart.transfers.busy_s(until_s) == pytest.approx([busy_s, busy_s])


def test_a_slow_network_of_either_host_slows_the_copy():
    for host in (0, 1):
        _, _, log = run(Row(0.0, None, 16, 2, 2), slow_links=((host, 0.0, None, 4.0),))
        assert log.end_s[0] - log.begin_s[0] == 4 * copy_s(16)


def test_a_gpu_of_a_replica_has_a_link_of_its_own():
    """With as many GPUs as KV heads each copies its share; further GPUs have copies of heads."""
    scenario = CASE.but(rows=(Row(0.0, None, 16, 2, 2),), tp=2).scenario()
    two_heads = replace(scenario, model=replace(TINY, heads=2, kv_heads=2, head_dim=2))
    for each, parts in (scenario, 1), (two_heads, 2):
        simulation = Simulation(each)
        simulation.run()
        log = simulation.apart.transfers.log()
        assert log.end_s[0] - log.begin_s[0] == 2**-9 + 16 * KV_BYTES / parts / 4096.0


@pytest.mark.parametrize("network_bytes_per_s", [65536.0, 512.0], ids=["load is longer", "copy is longer"])
@pytest.mark.parametrize("loader", ["blocking", "asynchronous"])
def test_both_pools_load_the_adapter_and_decoding_waits_for_weights_and_kv(loader, network_bytes_per_s):
    simulation, table, log = run(Row(0.0, 2, 8, 3, 3), loader=loader, network_bytes_per_s=network_bytes_per_s)
    first_s = load_s(4) + prefill_s(8)
    assert table.first_token_s[0] == first_s
    assert simulation.recorder.adapter_loads == 2
    assert log.end_s[0] == first_s + copy_s(8, network_bytes_per_s)
    assert (load_s(4) > copy_s(8, network_bytes_per_s)) == (network_bytes_per_s == 65536.0)
    begun_s = max(first_s + load_s(4), float(log.end_s[0]))
    assert table.finish_s[0] == begun_s + steps_s(2, 9)
    assert table.blocked_s[0] == pytest.approx(begun_s - log.end_s[0]), "what the adapter alone cost"


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_a_prompt_that_cpu_cores_helped_with_is_handed_over_before_its_weights_are_there(way):
    simulation, table, log = run(Row(0.0, 0, 8, 3, 3), loader="cpu_assisted", kv_handover=way, ranks=(16,))
    first_s = float(table.first_token_s[0])
    assert prefill_s(8) < first_s < load_s(16), "the cores compute what the weights would have"
    assert log.source.tolist() == [0]
    assert table.replica.tolist() == [1]
    assert table.finish_s[0] >= first_s + load_s(16), "the replica that decodes loads weights of its own"
    assert all(holds_nothing(replica) for replica in simulation.fleet.replicas)


def test_the_prefill_pool_reserves_no_memory_for_answers():
    """As vLLM's proxy sends max_tokens=1: two prompts of 20 fit 48 slots, whatever their answers need elsewhere."""
    rows = Row(0.0, None, 20, 20, 20), Row(0.0, None, 20, 20, 20)
    _, table, _ = run(*rows, reserve="full", capacity=48)
    assert table.first_token_s.tolist() == [prefill_s(20, 20)] * 2
    assert (table.status == "finished").all()


def test_kv_that_a_scheduler_gives_up_is_kept_no_longer():
    """A scheduler of the user's own aborts what waits to decode: the prefill pool has its memory back."""

    class Aborts(Fcfs):
        def schedule(self, view: ReplicaView) -> SchedulerOutput:
            late = [Abort(one, "late") for one in view.waiting if one.first_token_s >= 0.0]
            output = super().schedule(view)
            return output.replace(prefill=(), actions=late) if late else output

    rows = Row(0.0, None, 40, 2, 2), Row(0.0, None, 40, 2, 2)
    simulation = CASE.but(rows=rows, capacity=64).simulation(scheduler=Aborts)
    assert simulation.recorder.requests().status.tolist() == ["aborted", "aborted"]
    assert all(map(holds_nothing, simulation.fleet.replicas))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            (Row(0.0, None, 20, 30, 90),),
            "no replica that decodes can serve it: prompt, output and adapter do not",
        ),
        ((Row(0.0, None, 100, 3, 3),), "the prompt is longer than replica.max_num_batched_tokens 60"),
    ],
)
def test_what_could_never_be_served_is_refused_at_its_arrival(rows, reason):
    _, table, _ = run(*rows, capacity=100, max_num_batched_tokens=60)
    assert table.status[0] == "rejected"
    assert table.reason[0].startswith(reason)
    assert np.isnan(table.first_token_s[0])


# Prefix caches in both pools ---------------------------------------------------------------

CACHES = {"prefix_caching": True, "sessions": ("a", "a")}
TURNS = Row(0.0, None, 20, 5, 5), Row(16.0, None, 41, 5, 5)
"""A conversation, whose second prompt begins with all that was said: five blocks of a prompt, one of the answer."""


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_a_second_turn_computes_what_the_one_pool_has_not_and_copies_what_the_other_has_not(way):
    """Of 41 tokens the prefill replica has the first prompt's 20, the decode replica 24 with four of the answer."""
    _, table, log = run(*TURNS, **CACHES, kv_handover=way)
    assert table.cached_tokens.tolist() == [0, 20]
    first_s = 16.0 + chunks_s((20, 21))
    assert table.first_token_s[1] == first_s
    assert log.tokens.tolist() == [20, 41 - 24]
    assert log.begin_s[1] == first_s, "when the only layer is computed, or it is admitted to decode: at once"
    assert log.end_s[1] == first_s + copy_s(41 - 24)
    assert table.finish_s[1] == log.end_s[1] + steps_s(4, 42), "no token is computed twice"


@pytest.mark.parametrize(("way", "tokens"), [("whole", 1), ("by_layer", 21)])
def test_a_cache_is_looked_at_when_the_request_is_admitted_or_when_its_last_pass_begins(way, tokens):
    """Two requests begin alike, and the second has a seat to decode when the first has ended."""
    rows = Row(0.0, None, 21, 5, 5), Row(0.0, None, 21, 5, 5)
    hashes = {"block_hashes": ((1, 2, 3, 4, 5),) * 2}
    _, table, log = run(*rows, **hashes, prefix_caching=True, max_num_seqs=1, kv_handover=way)
    assert log.tokens.tolist() == [21, tokens]
    assert log.asked_s[1] == table.finish_s[0]


def test_kv_that_came_is_cached_where_it_decodes_while_its_request_runs():
    """The third begins as the second, which is still running; the first is of another session."""
    rows = Row(0.0, None, 20, 2, 2), Row(4.0, None, 21, 60, 60), Row(4.5, None, 30, 2, 2)
    _, table, log = run(*rows, prefix_caching=True, sessions=("a", "b", "b"))
    assert table.finish_s[1] > table.finish_s[2]
    assert log.tokens.tolist() == [20, 21, 30 - 20]


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_kv_that_comes_waits_for_slots_whose_kv_is_being_copied_to_the_host(way):
    """Of 40 tokens cached where the second request decodes, 20 have to leave for its 44 slots."""
    rows = Row(0.0, None, 40, 2, 2), Row(16.0, None, 40, 2, 2)
    of = {"capacity": 64, "prefix_caching": True, "host_kv_tokens": 100, "sessions": ("a", "b")}
    simulation, table, log = run(*rows, **of, kv_handover=way, network_bytes_per_s=2.0**40)
    out_s = kv_s(20)
    there_s = table.first_token_s[1] + out_s + (copy_s(40, 2.0**40) if way == "whole" else 0.0)
    assert table.finish_s[1] == pytest.approx(there_s + step_s(41))
    if way == "whole":
        assert log.begin_s[1] == pytest.approx(table.first_token_s[1] + out_s)
    assert [replica.host_link.kv_tokens_out for replica in simulation.fleet.replicas] == [20, 20]


def test_an_answer_that_one_pool_has_written_to_a_store_is_fetched_by_the_other():
    """The second turn begins with 20 tokens of its replica and a block of the answer; its decode replica has both."""
    of = CACHES | {"host_kv_tokens": 100, "kv_store_tokens": 100, "kv_fetch": "always"}
    simulation, table, log = run(*TURNS, **of)
    assert table.cached_tokens.tolist() == [0, 24]
    assert log.tokens.tolist() == [20, 41 - 24]
    facts = simulation.kv_tiers.facts()
    assert (facts["tokens_to_store"], facts["tokens_from_store"]) == (44, 4)


def test_the_second_router_sees_the_caches_of_the_pool_that_decodes():
    """Of two replicas that decode, the one that has the conversation gets its next turn, and not the idle first one."""
    rows = Row(0.0, None, 4, 40, 40), Row(0.25, None, 20, 5, 5), Row(16.0, None, 41, 5, 5)
    sessions = ("b", "a", "a")
    of = {"replicas": 3, "prefix_caching": True, "sessions": sessions, "network_bytes_per_s": 2.0**22}
    _, turned, _ = run(*rows, **of, decode_router="most_idle")
    _, found, log = run(*rows, **of, decode_router="cached_kv")
    assert turned.replica.tolist() == [1, 2, 1]
    assert found.replica.tolist() == [1, 2, 2]
    assert log.tokens[2] == 41 - 24


def test_a_request_that_is_computed_again_holds_what_it_found_before_others_that_come_make_room():
    """In little memory one is preempted where it decodes, and admitted again together with one that is fetched."""
    sizes = (9, 1, 1), (9, 1, 1), (17, 3, 7), (13, 5, 5), (9, 4, 4), (9, 2, 2)
    rows = tuple(Row(at * 2**-10, 0, *size) for at, size in enumerate(sizes))
    of = {"prefix_caching": True, "sessions": tuple("abcabc"), "capacity": 32, "network_bytes_per_s": 65536.0}
    simulation, table, log = run(*rows, **of, ranks=(1,))
    assert table.preemptions.sum() == 1
    assert (table.status == "finished").all()
    assert len(log.request) == 4
    assert all(holds_nothing(replica) for replica in simulation.fleet.replicas)


def test_requests_that_are_submitted_are_refused():
    with pytest.raises(InputError, match=r"cluster\.prefill_replicas is for requests of a trace"):
        DrivenSimulation(CASE.but(rows=(Row(0.0, None, 4, 2, 2),)).scenario())


def test_clients_that_leave_are_refused():
    scenario = replace(CASE.but(rows=(Row(0.0, None, 4, 2, 2),)).scenario(), clients=Clients(patience_s=1.0))
    with pytest.raises(InputError, match=r"cluster\.prefill_replicas needs clients\.patience_s=null"):
        ClientSimulation(scenario)


@given(apart(ends=st.one_of(st.none(), st.floats(2**-8, 8.0))))
def test_memory_fits_all_requests_end_and_fast_forward_equals_the_plain_loop(case):
    fast, plain = (watched(case.scenario(fast_forward=fast_forward)) for fast_forward in (True, False))
    assert_same(fast, plain)
    log = fast.apart.transfers.log()
    for one, other in zip(log, plain.apart.transfers.log(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
    event(f"preempted: {fast.recorder.preemptions > 0}")
    if case.until_s is not None:
        return
    all_requests_end(fast)
    table = fast.recorder.requests()
    finished = table[table.status == "finished"]
    handed_over = finished.index[finished.output_tokens > 1].tolist()
    if case.mixed_pool_tokens is None:
        assert sorted(log.request) == handed_over, "each is handed over once"
    else:
        event(f"stayed: {fast.apart.stayed > 0}")
        assert len(set(log.request)) == len(log.request) == len(handed_over) - fast.apart.stayed
        assert set(log.request) <= set(handed_over)
        assert not fast.apart.mixed_pool.counts.any(), "every request is counted as gone"
    dropped = np.isnan(log.end_s)
    assert case.mixed_pool_tokens is not None or not dropped.any()
    assert (finished.preemptions[log.request[dropped]] > 0).all(), "what is computed twice was preempted"
    log = Handovers(*(column[~dropped] for column in log))
    if case.kv_handover == "whole":
        assert (log.begin_s >= table.first_token_s[log.request]).all()
    assert (log.end_s > table.first_token_s[log.request]).all()


# Two queues in tandem ----------------------------------------------------------------------

TANDEM = ONE_SERVER.but(
    replicas=2,
    prefill_replicas=1,
    network_bytes_per_s=2.0**60,
    coefficients=FREE | {"prefill.per_token_s": TOKEN_S, "decode.intercept_s": TOKEN_S},
)
"""A prompt of n tokens is a service of n milliseconds by one server, an answer of m + 1 tokens one of m by the next."""
NETWORK_S = 2**-9


def test_two_servers_in_tandem_do_as_lindley_says_for_every_single_request():
    """The second begins with a request when it has it and is free, and keeps its seat while the KV is copied."""
    rng = np.random.default_rng(1)
    columns = arrivals(rng, 0.9, 1000), exponential(rng, 1000), exponential(rng, 1000)
    rows = tuple(Row(t, None, int(n), int(m) + 1, int(m) + 1) for t, n, m in zip(*columns, strict=True))
    simulation = TANDEM.of(*rows).simulation()
    table, log = simulation.recorder.requests(), simulation.apart.transfers.log()
    free_s = prefilled_s = 0.0
    for at, (arrival_s, prompt, output) in enumerate(
        zip(table.arrival_s, table.prompt_tokens, table.output_tokens, strict=True)
    ):
        prefilled_s = max(prefilled_s, arrival_s) + prompt * TOKEN_S
        begin_s = max(prefilled_s, free_s)
        free_s = begin_s + NETWORK_S + (output - 1) * TOKEN_S
        for found_s, expected_s in (
            (table.first_token_s[at], prefilled_s),
            (log.begin_s[at], begin_s),
            (table.finish_s[at], free_s),
        ):
            assert found_s == pytest.approx(expected_s, rel=0, abs=1e-6)
