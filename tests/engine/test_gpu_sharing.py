"""Engines that share a GPU: alone as ever, together as long as all their parts on the GPU."""

import pandas as pd
import pytest

from simlora.engine.parts.gpu_sharing import SharedGpu
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


def test_engines_together_take_the_sum_of_their_parts_on_the_gpu():
    shared = Gpu(0, 1, 2)
    assert shared.launch(0, 10.0, 0.5, 4.0, DECODES) == (10.0, 0.5), "the others ran nothing yet"
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES) == (6.0 + 5.0, 0.25 * 3)
    assert shared.launch(2, 3.0, 0.0, 1.0, DECODES) == (6.0 + 5.0 + 2.0, 0.0)
    again = shared.launch(0, 2.0, 0.5, 1.0, DECODES)
    assert again == (1.0 + 5.0 + 2.0, 0.5 * 3), "in place of its last iteration"


@pytest.mark.parametrize(
    "others, then, own, took",
    [
        ((2.0, 0.0, 1.0), (), (10.0, 0.5, 9.0), (10.0, 0.5)),
        ((10.0, 0.5, 4.0), (False,), (8.0, 0.25, 3.0), (8.0, 0.25)),
        ((10.0, 0.5, 4.0), (False, True), (8.0, 0.25, 3.0), (8.0, 0.25)),
        ((1.0, 0.0, 3.0), (), (8.0, 0.25, 3.0), (8.0, 0.25)),
    ],
    ids=[
        "never shorter than alone: 2 on the GPU hide behind its own host",
        "an engine without work takes no time",
        "what it ran before it was idle is forgotten",
        "host time is at most the whole iteration",
    ],
)
def test_an_iteration_beside_another_engine(others, then, own, took):
    """The other one is then idle, or busy again."""
    shared = Gpu(0, 1)
    shared.launch(0, *others, DECODES)
    for busy in then:
        shared.set_busy(0, busy)
    assert shared.launch(1, *own, DECODES) == took


def test_the_others_hear_of_a_change_and_of_nothing_else():
    """Between work and idleness, and between prefill and decode."""
    shared = Gpu(1)
    for busy in (True, False, False):
        shared.set_busy(1, busy)
    assert shared.heard == [[1, 1], [], [1, 1]]
    shared = Gpu()
    for prefilling in (PREFILLS, PREFILLS, DECODES, DECODES, PREFILLS):
        shared.launch(2, 10.0, 0.5, 4.0, prefilling)
    assert shared.heard == [[2, 2, 2], [2, 2, 2], []]


def test_asking_for_a_price_launches_nothing():
    shared = Gpu(0, 1)
    shared.launch(0, 10.0, 0.5, 4.0, DECODES)
    before = [list(heard) for heard in shared.heard]
    assert shared.priced_s(1, 8.0, 3.0) == 6.0 + 5.0
    assert shared.priced_s(0, 2.0, 1.0) == 2.0, "in place of its last iteration, beside an idle one"
    assert shared.heard == before
    assert shared.launch(1, 8.0, 0.25, 3.0, DECODES)[0] == 6.0 + 5.0


# In the engine

TWO = Case(replicas=2, engines_per_gpu=2, max_wait_tokens=0)


def ran(*rows: tuple[float, int, int], **changes: object) -> pd.DataFrame:
    """Serve requests of the base model: arrival, prompt, output."""
    of = TWO.but(
        rows=tuple(Row(at_s, None, prompt, output, output) for at_s, prompt, output in rows), **changes
    )
    return of.table()


def test_together_both_take_the_sum_of_their_parts_and_then_each_its_own_time_again():
    """The second comes while the first makes its first step, and has its only token after one prefill."""
    comes_s = P + TICK_S
    table = ran((0.0, 4, 4), (comes_s, 4, 1))
    assert table.finish_s[1] == comes_s + (P - H) + (step_s(5) - H)
    crowded_s = (step_s(6) - H) + (P - H)
    assert comes_s < table.finish_s[1] < P + step_s(5) + crowded_s
    assert table.finish_s[0] == P + step_s(5) + crowded_s + step_s(7)


def test_from_the_next_step_on_each_counts_what_the_other_has_gone_over_to():
    """Both start at once, the lower number first: it does not know of the other's prefill before its first step.

    During that step the other goes over to decode, and during the next one it is done.
    """
    table = ran((0.0, 4, 4), (0.0, 4, 2))
    second_s = 2 * (P - H)
    assert table.first_token_s.tolist() == [P, second_s]
    done_s = second_s + 2 * (step_s(5) - H)
    assert table.finish_s[1] == done_s
    beside_prefill_s = P + (step_s(5) - H) + (P - H)
    beside_decode_s = beside_prefill_s + (step_s(6) - H) + (step_s(5) - H)
    assert second_s < beside_prefill_s < done_s < beside_decode_s
    assert table.finish_s[0] == pytest.approx(beside_decode_s + step_s(7), abs=1e-12)


def test_engines_on_different_gpus_do_not_meet_and_the_last_gpu_may_have_fewer():
    alone_s = P + steps_s(3, 5)
    table = ran(*((0.0, 4, 4),) * 4, replicas=4)
    assert table.latency_s[0] == table.latency_s[2] > alone_s
    assert table.latency_s[1] == table.latency_s[3]
    assert ran(*((0.0, 4, 4),) * 3, replicas=3).latency_s[2] == alone_s
