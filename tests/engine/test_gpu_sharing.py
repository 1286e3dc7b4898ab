"""Engines that share a GPU: alone as ever, together as long as all their parts on the GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.gpu_sharing import SharedGpu
from simlora.policies.placement.dedicated import Dedicated
from tests.engine.by_hand import host_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row

P = prefill_s(4)
H = host_s(1)
TICK_S = 2**-10
DECODES, PREFILLS = False, True


class Gpu(SharedGpu):
    """A GPU with three engines, which note the engines that have changed."""

    def __init__(self, *busy: int) -> None:
        super().__init__()
        self.heard: list[list[int]] = [[], [], []]
        self.listeners += [(id, heard.append) for id, heard in enumerate(self.heard)]
        for id in busy:
            self.set_busy(id, True)


def test_an_engine_alone_takes_its_own_time() -> None:
    assert Gpu(0).launch(0, 10.0, 0.5, 4.0, DECODES) == (10.0, 0.5)


def test_engines_together_take_the_sum_of_their_parts_on_the_gpu() -> None:
    shared = Gpu(0, 1, 2)
    assert shared.launch(0, 10.0, 0.5, 4.0, DECODES) == (10.0, 0.5), "the others ran nothing yet"
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES) == (6.0 + 5.0, 0.25 * 3)
    assert shared.launch(2, 3.0, 0.0, 1.0, DECODES) == (6.0 + 5.0 + 2.0, 0.0)
    assert shared.launch(0, 2.0, 0.5, 1.0, DECODES) == (1.0 + 5.0 + 2.0, 0.5 * 3), (
        "in place of its last iteration"
    )


def test_an_iteration_is_never_shorter_than_alone() -> None:
    shared = Gpu(0, 1)
    shared.launch(0, 2.0, 0.0, 1.0, DECODES)
    assert shared.launch(1, 10.0, 0.5, 9.0, DECODES) == (10.0, 0.5), "2 on the GPU hide behind its own host"


def test_an_engine_without_work_takes_no_time_from_the_others() -> None:
    shared = Gpu(0, 1)
    shared.launch(0, 10.0, 0.5, 4.0, DECODES)
    shared.set_busy(0, False)
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES) == (8.0, 0.25)


def test_what_an_engine_ran_before_it_was_idle_is_forgotten() -> None:
    shared = Gpu(0, 1)
    shared.launch(0, 10.0, 0.5, 4.0, DECODES)
    shared.set_busy(0, False)
    shared.set_busy(0, True)
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES) == (8.0, 0.25)


def test_host_time_is_at_most_the_whole_iteration() -> None:
    shared = Gpu(0, 1)
    shared.launch(0, 1.0, 0.0, 3.0, DECODES)
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES) == (8.0, 0.25)
    assert shared.launch(0, 9.0, 0.0, 3.0, DECODES) == (6.0 + 5.0, 0.0)


def test_the_others_hear_of_a_change_and_of_nothing_else() -> None:
    shared = Gpu(1)
    shared.set_busy(1, True)
    shared.set_busy(1, False)
    shared.set_busy(1, False)
    assert shared.heard == [[1, 1], [], [1, 1]]


def test_the_others_hear_of_a_change_between_prefill_and_decode() -> None:
    shared = Gpu()
    for prefilling in (PREFILLS, PREFILLS, DECODES, DECODES, PREFILLS):
        shared.launch(2, 10.0, 0.5, 4.0, prefilling)
    assert shared.heard == [[2, 2, 2], [2, 2, 2], []]


def test_asking_for_a_price_launches_nothing() -> None:
    shared = Gpu(0, 1)
    shared.launch(0, 10.0, 0.5, 4.0, DECODES)
    before = [list(heard) for heard in shared.heard]
    assert shared.priced_s(1, 8.0, 3.0) == 6.0 + 5.0
    assert shared.priced_s(0, 2.0, 1.0) == 2.0, "in place of its last iteration, beside an idle one"
    assert shared.heard == before
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES)[0] == 6.0 + 5.0


# In the engine

TWO = Case(rows=(), replicas=2, engines_per_gpu=2, max_wait_tokens=0)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_an_engine_whose_neighbours_are_idle_runs_as_on_a_gpu_of_its_own(fast_forward: bool) -> None:
    rows = (Row(0.0, None, 4, 4, 4), Row(1.0, None, 4, 4, 4))
    table = TWO.but(rows=rows).run(fast_forward=fast_forward).requests()
    assert table.replica.tolist() == [0, 1]
    assert table.latency_s.tolist() == [P + steps_s(3, 5)] * 2


@pytest.mark.parametrize("fast_forward", [True, False])
def test_together_both_take_the_sum_of_their_parts_and_then_each_its_own_time_again(
    fast_forward: bool,
) -> None:
    """The second comes while the first makes its first step, and has its only token after one prefill."""
    comes_s = P + TICK_S
    rows = (Row(0.0, None, 4, 4, 4), Row(comes_s, None, 4, 1, 1))
    table = TWO.but(rows=rows).run(fast_forward=fast_forward).requests()
    assert table.finish_s[1] == comes_s + (P - H) + (step_s(5) - H)
    crowded_s = (step_s(6) - H) + (P - H)
    assert comes_s < table.finish_s[1] < P + step_s(5) + crowded_s
    assert table.finish_s[0] == P + step_s(5) + crowded_s + step_s(7)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_from_the_next_step_on_each_counts_what_the_other_has_gone_over_to(fast_forward: bool) -> None:
    """Both start at once, the lower number first: it does not know of the other's prefill before its first step.

    During that step the other goes over to decode, and during the next one it is done.
    """
    rows = (Row(0.0, None, 4, 4, 4), Row(0.0, None, 4, 2, 2))
    table = TWO.but(rows=rows).run(fast_forward=fast_forward).requests()
    second_s = 2 * (P - H)
    assert table.first_token_s.tolist() == [P, second_s]
    done_s = second_s + 2 * (step_s(5) - H)
    assert table.finish_s[1] == done_s
    beside_prefill_s = P + (step_s(5) - H) + (P - H)
    beside_decode_s = beside_prefill_s + (step_s(6) - H) + (step_s(5) - H)
    assert second_s < beside_prefill_s < done_s < beside_decode_s
    assert table.finish_s[0] == pytest.approx(beside_decode_s + step_s(7), abs=1e-12)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_long_prefill_is_waited_for_once_and_not_at_every_step_after_it(fast_forward: bool) -> None:
    rows = (Row(0.0, None, 4, 40, 40), Row(0.0, None, 400, 40, 40))
    table = TWO.but(rows=rows).run(fast_forward=fast_forward).requests()
    crowded_s = table.finish_s[0] - table.first_token_s[0]
    assert crowded_s < prefill_s(400) + sum(2 * step_s(400 + k) for k in range(40))
    assert crowded_s < 40 * prefill_s(400)


def test_engines_on_different_gpus_do_not_meet() -> None:
    rows = tuple(Row(0.0, None, 4, 4, 4) for _ in range(4))
    table = TWO.but(rows=rows, replicas=4).run().requests()
    assert table.latency_s[0] == table.latency_s[2] > P + steps_s(3, 5)
    assert table.latency_s[1] == table.latency_s[3]
    apart = TWO.but(rows=rows, replicas=4, engines_per_gpu=1).run().requests()
    assert apart.latency_s.tolist() == [P + steps_s(3, 5)] * 4


def test_the_last_gpu_may_have_fewer_engines() -> None:
    rows = tuple(Row(0.0, None, 4, 4, 4) for _ in range(3))
    table = TWO.but(rows=rows, replicas=3).run().requests()
    assert table.latency_s[2] == P + steps_s(3, 5)


def test_dedicated_engines_serve_their_own_adapter() -> None:
    rows = tuple(Row(float(i), adapter, 4, 2, 2) for i, adapter in enumerate((2, 0, 1, 1, 2)))
    scenario = TWO.but(rows=rows, replicas=3, engines_per_gpu=3, kernel="merged", loader="cached").scenario()
    policies = replace(scenario.policies, placement=Dedicated())
    table = Simulation(replace(scenario, policies=policies)).run().requests()
    assert table.replica.tolist() == [2, 0, 1, 1, 2]
    assert table.latency_s.tolist() == [pytest.approx(P + step_s(5))] * 5


def test_tensor_parallel_replicas_have_their_gpus_to_themselves() -> None:
    with pytest.raises(InputError, match=r"cluster\.engines_per_gpu is 2, must be 1 with replica\.tp 2"):
        Simulation(TWO.but(rows=(Row(0.0, None, 4, 4, 4),), tp=2).scenario())
