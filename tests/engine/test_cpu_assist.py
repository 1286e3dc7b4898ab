"""CPU cores that compute LoRA while weights are on their way: what a prefill takes with them, and what waits.

Times are sums by hand, from the coefficients of the cases: a load takes half a second, several steps.
"""

import pandas as pd
import pytest

from tests.engine.by_hand import prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

SLOW = {**C, "adapter_load.latency_s": 0.5}
READY_S = 0.5 + 64 / 2**14
"""When weights of rank 1 are there that are sent for at once."""
CASE = Case(kernel="merged", loader="cpu_assisted", coefficients=SLOW)
"""LoRA itself costs nothing: iterations and loads remain."""


def assisted_s(gpu_s: float, tokens: int, rank: int) -> float:
    """A prefill whose only layer is done with the CPU's help."""
    cores = -(-tokens // 8)
    each_s = C["cpu_lora.per_token_s"] + C["cpu_lora.per_token_rank_s"] * rank
    cpu_s = C["cpu_lora.intercept_s"] + each_s * -(-tokens // cores)
    return max(gpu_s, cpu_s) + C["cpu_lora.sync_s"]


HELPED_S = assisted_s(prefill_s(12), 12, 1)


def test_a_prefill_begins_at_once_and_takes_what_agreeing_takes_longer():
    found = CASE.serve(Row(0.0, 0, 12, 1, 1)).loc[0]
    assert (found.admitted_s, found.cold_start_s) == (0.0, 0.0)
    assert found.first_token_s == pytest.approx(HELPED_S)
    assert found.blocked_s == pytest.approx(HELPED_S - prefill_s(12))


def test_it_decodes_once_its_weights_are_there():
    """First token at once, the second half a second later; that wait is its cold start's rest, and a gap of tokens."""
    recorder = CASE.but(rows=(Row(0.0, 0, 12, 3, 3),)).run()
    found, gaps = recorder.requests().loc[0], recorder.token_gaps
    assert found.finish_s == pytest.approx(READY_S + step_s(13) + step_s(14))
    assert found.blocked_s == pytest.approx(READY_S - prefill_s(12))
    assert gaps.count == 2
    assert gaps.mean() == pytest.approx((found.finish_s - found.first_token_s) / 2, rel=1e-6)


def test_without_cores_the_replica_waits_as_with_a_blocking_loader():
    rows = Row(0.0, None, 4, 30, 30), Row(2**-6, 0, 12, 3, 3)
    one, other = CASE.serve(*rows, host_cores=1), CASE.serve(*rows, loader="blocking")  # 12 tokens need two
    columns = ["admitted_s", "first_token_s", "finish_s", "cold_start_s", "blocked_s"]
    pd.testing.assert_frame_equal(one[columns], other[columns], check_exact=True)


@pytest.mark.parametrize(
    "arrivals_s, per_host, admitted_s",
    [
        ((0.0, 0.0, 0.0), 1, [0.0, 0.0, 0.0]),
        ((0.0, 0.0, 0.0), 3, [0.0, READY_S, READY_S]),
        ((0.0, 1.0), 2, [0.0, 1.0]),
    ],
)
def test_replicas_of_a_host_share_its_cores_and_get_them_back_when_the_prefill_is_over(
    arrivals_s, per_host, admitted_s
):
    """Three prompts of two cores at once on three cores: one is helped, two wait for their weights."""
    rows = [Row(arrival_s, 0, 12, 1, 1) for arrival_s in arrivals_s]
    found = CASE.serve(*rows, replicas=len(rows), host_cores=3, replicas_per_host=per_host)
    assert found.admitted_s.tolist() == admitted_s


def test_a_request_that_could_have_been_helped_and_waits_for_another_is_blocked():
    """Two cores: the first prompt gets one, the second needs two; both wait for the second's weights."""
    found = CASE.serve(Row(0.0, 0, 8, 2, 2), Row(0.0, 1, 12, 2, 2), host_cores=2)
    assert found.cold_start_s.tolist() == pytest.approx([0.0, found.queue_s[1]])
    assert found.blocked_s[0] == pytest.approx(found.queue_s[0])
