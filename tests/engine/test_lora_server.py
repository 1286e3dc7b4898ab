"""A LoRA server: adapters apart from the GPUs of the base model."""

from dataclasses import replace

import pytest
from hypothesis import given

from experiments.torture.watch import watched
from simlora.api.facts import adapter_facts
from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.lora_server import LoraServer, RemoteRunner
from simlora.engine.replica.model_runner import Pass
from simlora.engine.replica.running_batch import RunningBatch
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import Link
from simlora.latency.remote_lora import RemoteLora
from tests.engine.cases import COEFFICIENTS, TINY, Case, Row, served
from tests.engine.observing import all_requests_end
from tests.engine.test_fast_forward import assert_same

ALONE = Case(
    rows=(Row(0.0, 1, 10, 21, 21),), loader="cached", lora_server_gpus=1, network_bytes_per_s=2.0**40
)


def server_of(simulation: Simulation) -> LoraServer:
    server = simulation.gpus[0]
    assert isinstance(server, LoraServer)
    return server


@pytest.mark.parametrize("gpus", [1, 2])
def test_rounds_and_kernels_hide_behind_the_adapted_part_of_the_base_model(gpus):
    """A prefill of 10 tokens, and then 20 steps of one sequence, each charged what does not hide."""
    simulation = ALONE.but(lora_server_gpus=gpus).simulation()
    remote = RemoteLora(TINY, ("q", "k", "v", "o"), 1, Link("network", 2**-9, 2.0**40))
    c = COEFFICIENTS
    base_s = c["decode.intercept_s"] + c["decode.per_sequence_s"] + c["decode.per_sequence_sq_s"]
    lora_s = c["kernels.mbgmv.decode.intercept_s"] + 2 * (
        c["kernels.mbgmv.decode.per_rank_sum_s"] + c["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    )
    exposed_s = max(remote.exchange_s(1) + lora_s / gpus - remote.hidden_share * base_s, 0.0)
    assert exposed_s > 0
    row = simulation.recorder.requests().loc[0]
    contexts_s = c["decode.per_context_token_s"] * sum(range(11, 31))
    assert row.finish_s - row.first_token_s == pytest.approx(20 * (base_s + exposed_s) + contexts_s)
    prefill_s = c["kernels.mbgmv.prefill.intercept_s"] + c["kernels.mbgmv.prefill.per_token_rank_s"] * 20
    assert server_of(simulation).busy_s == pytest.approx(20 * lora_s + prefill_s)


def test_it_has_adapters_whole_where_replicas_have_several_gpus():
    """Its kernels are those of one GPU, whatever a replica's take; two links bring a token's activations."""
    one, two = (ALONE.but(tp=tp, network_bytes_per_s=16.0, lora_server_gpus=2) for tp in (1, 2))
    divided = {
        name: value / 8 if name.startswith("kernels.") else value for name, value in COEFFICIENTS.items()
    }
    scenario = two.scenario()
    pair = Simulation(replace(scenario, calibration=replace(scenario.calibration, coefficients=divided)))
    pair.run()
    single = one.simulation()
    assert server_of(pair).busy_s == pytest.approx(server_of(single).busy_s)
    sent_s = RemoteLora(TINY, ("q", "k", "v", "o"), 1, Link("network", 0.0, 16.0)).exchange_s(1)
    rows = [simulation.recorder.requests().loc[0] for simulation in (single, pair)]
    assert rows[0].finish_s - rows[1].finish_s == pytest.approx((10 + 20) * sent_s / 2)
    with pytest.raises(InputError, match="or to be told what LoRA takes where"):
        Simulation(replace(scenario, lora_server=None))


def test_one_card_of_the_server_is_no_faster_for_a_replica_of_two_gpus():
    sent_s = RemoteLora(TINY, ("q", "k", "v", "o"), 1, Link("network", 0.0, 16.0)).exchange_s(10 + 20)
    one, two = (
        ALONE.but(tp=2, network_bytes_per_s=16.0, lora_server_gpus=gpus).run().last_s for gpus in (1, 2)
    )
    assert two < sent_s < one


def test_nothing_hides_behind_attention():
    """The exchange and the server's kernels hide behind the weights that are read; attention comes on top of that."""
    runner = ALONE.simulation().fleet.replicas[0].runner
    assert isinstance(runner, RemoteRunner)
    adapter, c = Adapter(0, "a", 2, 128, 0), COEFFICIENTS

    def pass_s(prompt_tokens: int, chunked_tokens: int) -> tuple[float, float, float]:
        """Return the seconds of a prefill, of a decode step, and of both in one pass."""
        prefilled = Request(0, adapter, 0.0, 300, 9)
        prefilled.chunked_tokens = chunked_tokens
        batch = RunningBatch([9, 9])
        batch.join(Request(1, adapter, 0.0, prompt_tokens, 9), 1)
        apart_s, both_s = (
            runner.priced_s(Pass((prefilled,), (8,), decoding, 0, 1)) for decoding in (None, batch)
        )
        return apart_s, runner.decode(0.0, batch, 0, 1).base_s, both_s

    short, long = pass_s(10, 0), pass_s(200, 100)
    squares_s, contexts_s = 8 * 2 * 100 * c["prefill.per_token_sq_s"], 190 * c["decode.per_context_token_s"]
    more_s = [after - before for before, after in zip(short, long, strict=True)]
    assert more_s == pytest.approx([squares_s, contexts_s, squares_s + contexts_s])


def test_replicas_share_its_time():
    """With LoRA work that is longer than all else, eight replicas wait for each other, and more GPUs help."""
    slow = {**COEFFICIENTS, "kernels.mbgmv.decode.intercept_s": 1.0}
    rows = tuple(Row(0.0, 1, 10, 21, 21) for _ in range(8))
    crowd = ALONE.but(rows=rows, replicas=8, coefficients=slow)
    last_s = [crowd.but(lora_server_gpus=gpus).run().last_s for gpus in (1, 2, 8)]
    assert last_s[0] == pytest.approx(20 * 8 * 1.0, rel=0.1)
    assert last_s[1] == pytest.approx(last_s[0] / 2, rel=0.1)
    assert last_s[2] < last_s[1] / 3


def test_replicas_share_its_network_cards():
    """With activations that take longer than all else, a card has to send what eight replicas ask for."""
    rows = tuple(Row(0.0, 1, 1, 101, 101) for _ in range(8))
    crowd = ALONE.but(rows=rows, replicas=8, network_bytes_per_s=64.0)
    remote = RemoteLora(TINY, ("q", "k", "v", "o"), 1, Link("network", 0.0, 64.0))
    last_s = [crowd.but(lora_server_gpus=gpus).run().last_s for gpus in (1, 2, 8)]
    busy_s = 101 * 8 * max(remote.cards_s(1))
    assert busy_s <= last_s[0] <= 1.2 * busy_s
    assert busy_s / 2 <= last_s[1] <= 1.4 * busy_s / 2
    assert 101 * remote.exchange_s(1) < last_s[2] < last_s[1] / 2, "a replica's own card"


@given(served())
def test_fast_forward_equals_the_plain_loop_memory_fits_and_no_gpu_is_busier_than_it_can_be(case):
    fast, plain = (watched(case.scenario(fast_forward=fast_forward)) for fast_forward in (True, False))
    assert_same(fast, plain)
    server = server_of(fast)
    assert server.busy_s == pytest.approx(server_of(plain).busy_s, abs=1e-9)
    assert server.busy_s <= server.gpus * fast.clock.now * (1 + 1e-9)
    assert fast.recorder.adapter_loads == 0
    if case.until_s is None:
        all_requests_end(fast)


def test_quantised_adapters_are_loaded_faster():
    """64 bytes a rank become 32 and a scale of 2 for every 64 weights."""
    rows = (Row(0.0, 1, 10, 4, 4),)
    waits = [Case(rows=rows, adapter_bits=bits).table().cold_start_s[0] for bits in (None, 8, 4)]
    c = COEFFICIENTS
    sizes = [128, 64 + 2, 32 + 2]
    assert waits == [c["adapter_load.latency_s"] + size / c["adapter_load.bytes_per_s"] for size in sizes]


def test_adapters_that_the_server_cannot_hold_are_refused():
    gpu = Gpu("small", 200, 1e9, 1e12, Link("host", 0, 1), Link("peer", 0, 1))
    scenario = replace(ALONE.scenario(), gpu=gpu)
    with pytest.raises(InputError, match="must be at least 3: the adapters have 0"):
        Simulation(scenario)


def test_hosts_hold_no_adapters_beside_a_server():
    facts = adapter_facts(ALONE.but(replicas=2).simulation(), 1.0)
    assert (facts["host_adapters"], facts["host_bytes"], facts["loads"]) == ([0, 0], [0, 0], 0)
    assert facts["server_gpus"] == 1
