"""The cluster: which requests are rejected and why, where they may go, what an interrupt leaves behind."""

from math import isnan, nan

import numpy as np
import pytest

from simlora.engine.cluster.simulation import Simulation
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

FULL = "prompt, output and adapter do not fit replica.kv_token_budget 100"


@pytest.mark.parametrize(
    "changes, prompt, says",
    [
        ({"max_num_batched_tokens": 9}, 9, ""),
        ({"max_num_batched_tokens": 9}, 10, "the prompt is longer than replica.max_num_batched_tokens 9"),
        ({"reserve": "full"}, 72, ""),
        ({"reserve": "full"}, 73, FULL),
        ({"reserve": "padded"}, 72, ""),
        ({"reserve": "padded"}, 73, FULL),
        ({"reserve": "peak"}, 71, ""),
        ({"reserve": "peak"}, 72, FULL),
        ({"reserve": "paged", "block_size": 16}, 72, ""),
        ({"reserve": "paged", "block_size": 20}, 57, FULL),
    ],
)
def test_what_could_never_run_is_rejected_at_arrival_with_the_reason(changes, prompt, says):
    row = Case(rows=(Row(3.0, 0, prompt, 20, 24),), capacity=100).but(**changes).table().loc[0]
    assert (row.status, row.reason) == ("rejected" if says else "finished", says)
    assert (row.finish_s == 3.0) == np.isnan(row.admitted_s) == bool(says)


def test_an_interrupt_leaves_the_finished_and_marks_the_rest_unfinished():
    rows = tuple(Row(float(i), None, 5, 5, 5) for i in range(2000))
    simulation = Simulation(Case(rows=rows).scenario())

    def interrupt(ended: int) -> None:
        if ended:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulation.run(progress=interrupt)
    status = simulation.recorder.requests().status
    assert set(status) == {"finished", "unfinished"}
    assert (status == "finished").sum() == simulation.recorder.ended == 1024


# A run that is stopped ------------------------------------------------------------------------


P = prefill_s(9)
FAILS_S = P + steps_s(5, 10) + 0.01


@pytest.mark.parametrize(
    "adapter, until_s, changes, admitted_s, first_token_s",
    [
        (None, P + steps_s(2, 10), {}, 0.0, P),
        (None, P / 2, {}, 0.0, nan),
        (0, load_s(1) / 2, {"loader": "asynchronous"}, nan, nan),
        (0, load_s(1) / 2, {"loader": "blocking"}, nan, nan),
        (0, load_s(1) + P / 2, {"loader": "blocking"}, load_s(1), nan),
        (None, P / 2, {"scheduler": "chunked_prefill"}, 0.0, nan),
        (None, FAILS_S + prefill_s(15) / 2, {"replicas": 2, "failures": ((0, FAILS_S, None),)}, 0.0, P),
    ],
    ids=[
        "it decodes",
        "its prefill is under way",
        "it is deferred",
        "it would begin after the stop, when the replica has waited for weights",
        "its prefill is under way behind a load",
        "its prefill in chunks is",
        "it has moved",
    ],
)
def test_a_request_has_been_admitted_once_its_first_prefill_has_begun(
    adapter, until_s, changes, admitted_s, first_token_s
):
    known = {"kernel": "merged", "reserve": "full", "eviction": "lru", "ranks": (1,)}
    of = Case(rows=(Row(0.0, adapter, 9, 40, 40),), until_s=until_s).but(**(known | changes))
    row = of.table().loc[0]
    moves = int("failures" in changes)
    assert (row.status, row.replica, row.migrations) == ("unfinished", moves, moves)
    assert isnan(row.finish_s)
    found = (row.admitted_s, row.queue_s, row.first_token_s)
    assert found == pytest.approx((admitted_s, admitted_s, first_token_s), nan_ok=True)
