"""Chunked prefill: 16 tokens an iteration, of which running requests take one each."""

from dataclasses import replace

import pytest
from hypothesis import given

from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.tracing import Ran
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.chunked_slo import ChunkedSlo
from simlora.policies.views import ReplicaView
from tests.engine.by_hand import READ_TWICE_S, chunks_s, load_s, prefill_s, step_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row, family
from tests.examples import share

CASE = Case(scheduler="chunked_prefill", kernel="merged", loader="cached", max_wait_tokens=0)
FIRST = Row(0.0, None, 4, 4, 4)


def test_a_long_prompt_takes_several_iterations_and_leaves_the_rest_of_the_last_to_the_next():
    """20 tokens: 16 and 4. The other prompt of 7 comes along with the 4, and both go on together."""
    found = CASE.serve(Row(0.0, None, 20, 2, 2), Row(0.0, None, 7, 2, 2))
    first_s = chunks_s((0, 16))
    both_s = first_s + chunks_s((16, 4), (0, 7))
    assert found.admitted_s.tolist() == [0.0, first_s]
    assert found.first_token_s.tolist() == [both_s, both_s]
    assert found.finish_s.tolist() == [both_s + step_s(21, 8)] * 2


def test_chunks_pay_for_the_same_attention_as_a_whole_prompt_and_for_the_weights_each_time():
    chunked, whole = (CASE.serve(Row(0.0, None, 40, 1, 1), scheduler=s) for s in ("chunked_prefill", "fcfs"))
    twice_s = 2 * COEFFICIENTS["prefill.intercept_s"]
    assert chunked.latency_s[0] == pytest.approx(whole.latency_s[0] + twice_s, abs=1e-12)


@pytest.mark.parametrize("loader, waits_s", [("cached", 0.0), ("blocking", load_s(1))])
def test_the_running_batch_takes_its_step_in_the_same_pass(loader, waits_s):
    """The second comes during the prefill of the first: a chunk of 7 beside a step of the first, once its weights are
    there.
    """
    found = CASE.serve(FIRST, Row(2**-10, 0, 7, 2, 2), loader=loader)
    mixed_s = prefill_s(4) + waits_s + prefill_s(7) + step_s(5) - READ_TWICE_S
    assert (found.admitted_s[1], found.cold_start_s[1]) == (prefill_s(4) + waits_s, waits_s)
    assert found.first_token_s[1] == mixed_s
    assert found.finish_s[1] == mixed_s + step_s(6, 8)
    assert found.finish_s[0] == mixed_s + step_s(6, 8) + step_s(7)


def test_a_prefill_that_is_not_whole_starts_again_when_it_is_preempted():
    """9 + 31 slots fill the pool of 40. With its next token the older takes the younger's, 15 tokens done."""
    rows = (Row(0.0, None, 8, 20, 20), Row(2**-10, None, 30, 1, 1))
    found = CASE.serve(*rows, capacity=40, reserve="paged", block_size=1, watermark=0.0)
    assert found.preemptions.tolist() == [0, 1]
    assert found.admitted_s[1] == prefill_s(8)
    older_s = prefill_s(8) + chunks_s((0, 15)) + step_s(9) - READ_TWICE_S + steps_s(18, 10)
    younger_s = chunks_s((0, 16)) + chunks_s((16, 14))
    assert found.finish_s.tolist() == pytest.approx([older_s, older_s + younger_s], abs=1e-12)


class Telling(ChunkedSlo):
    """Keeps how long it was told that a pass takes, by when the pass begins."""

    def __init__(self) -> None:
        super().__init__(max_batched_tokens=32, slo_s=0.75, margin_s=0.125, pass_s=2**-4)
        self.told: dict[float, float] = {}

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        output = super().schedule(view)
        if output.prefill:
            self.told[view.now_s] = view.pass_s(output.prefill, output.chunks)
        return output


@given(
    family(schedulers=("chunked_slo",), loaders=("cached",), max_loras=(None,), preemptions=("recompute",))
)
@share(1 / 4)
def test_a_pass_takes_as_long_as_its_scheduler_is_told(case):
    told, ran = passes(case.but(replicas=1, others=0))
    for begin_s, told_s in told.items():
        assert ran[begin_s] == pytest.approx(told_s, rel=1e-9, abs=1e-12)


def test_adapters_that_are_still_loading_are_no_part_of_a_pass():
    """A request decodes without an adapter, two wait for theirs, and then a prompt comes that needs none."""
    slow = COEFFICIENTS | {"lora_manager.per_listed_adapter_s": 2**-10, "adapter_load.latency_s": 4.0}
    loading = (Row(2**-10, 0, 4, 2, 2), Row(2**-10, 1, 4, 2, 2))
    rows = (FIRST._replace(output_tokens=50, max_output_tokens=50), *loading, Row(0.25, None, 9, 1, 1))
    told, ran = passes(CASE.but(rows=rows, loader="asynchronous", coefficients=slow))
    (begin_s,) = (begin_s for begin_s in told if 0.25 <= begin_s < 4.0)
    assert ran[begin_s] == pytest.approx(told[begin_s], abs=1e-12)


def passes(case: Case) -> tuple[dict[float, float], dict[float, float]]:
    """Return how long the scheduler was told that passes take, and how long they took, by when they began."""
    telling = Telling()
    recorder = Simulation(replace(case.scenario(scheduler=lambda: telling), tracing=True)).run()
    happened = recorder.tracing.until(recorder.last_s).happened
    return telling.told, {ran.since_s: ran.until_s - ran.since_s for ran in happened if isinstance(ran, Ran)}
