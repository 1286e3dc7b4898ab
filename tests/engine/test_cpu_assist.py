"""CPU cores that compute LoRA while weights are on their way: what a prefill takes with them, and what waits.

Times are sums by hand, from the coefficients of the cases: a load of rank r takes 2^-8 + 64 r / 2^14 seconds.
"""

from __future__ import annotations

import pandas as pd
import pytest

from simlora.engine.parts.cpu_assist import HostCores
from tests.engine.by_hand import prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

SLOW = {**C, "adapter_load.latency_s": 0.5}
"""Half a second a load: several steps."""
MERGED = {"kernel": "merged"}  # LoRA itself costs nothing: iterations and loads remain


def table(*rows: Row, **changes: object) -> pd.DataFrame:
    """The requests of a run in which LoRA itself costs nothing."""
    return Case(rows=rows, **(MERGED | changes)).run().requests()  # type: ignore[arg-type]


def assisted_s(gpu_s: float, tokens: int, rank: int) -> float:
    """A prefill whose only layer is done with the CPU's help."""
    cores = -(-tokens // 8)
    each_s = C["cpu_lora.per_token_s"] + C["cpu_lora.per_token_rank_s"] * rank
    cpu_s = C["cpu_lora.intercept_s"] + each_s * -(-tokens // cores)
    return max(gpu_s, cpu_s) + C["cpu_lora.sync_s"]


def test_a_prefill_begins_at_once_and_takes_what_agreeing_takes_longer() -> None:
    found = table(Row(0.0, 0, 12, 1, 1), loader="cpu_assisted", coefficients=SLOW).loc[0]
    assert found.admitted_s == 0.0
    assert found.cold_start_s == 0.0
    assert found.first_token_s == pytest.approx(assisted_s(prefill_s(12), 12, 1))
    assert found.blocked_s == pytest.approx(assisted_s(prefill_s(12), 12, 1) - prefill_s(12))


def test_it_decodes_once_its_weights_are_there() -> None:
    """First token at once, the second half a second later; that wait is its cold start's rest."""
    found = table(Row(0.0, 0, 12, 3, 3), loader="cpu_assisted", coefficients=SLOW).loc[0]
    ready_s = 0.5 + 64 / 2**14
    assert found.finish_s == pytest.approx(ready_s + step_s(13) + step_s(14))
    assert found.blocked_s == pytest.approx(ready_s - prefill_s(12))


def test_the_gaps_between_tokens_know_of_the_wait() -> None:
    recorder = Case(rows=(Row(0.0, 0, 12, 3, 3),), loader="cpu_assisted", coefficients=SLOW, **MERGED).run()
    found = recorder.requests().loc[0]
    assert recorder.token_gaps.count == 2
    assert recorder.token_gaps.mean() == pytest.approx((found.finish_s - found.first_token_s) / 2, rel=1e-6)


def test_others_go_on_decoding_meanwhile() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 12, 3, 3)
    found = table(*rows, max_wait_tokens=0, coefficients=SLOW, loader="cpu_assisted")
    alone = table(rows[0], max_wait_tokens=0, coefficients=SLOW)
    late = assisted_s(prefill_s(12), 12, 1)
    together = sum(step_s(0, context) - step_s(0) for context in (13, 14))  # its two steps
    assert found.finish_s[0] == pytest.approx(alone.finish_s[0] + late + together)
    assert found.blocked_s[0] == pytest.approx(late - prefill_s(12))


def test_without_cores_the_replica_waits_as_with_a_blocking_loader() -> None:
    rows = Row(0.0, None, 4, 30, 30), Row(2**-6, 0, 12, 3, 3)
    one = table(*rows, coefficients=SLOW, loader="cpu_assisted", host_cores=1)  # 12 tokens need two
    other = table(*rows, coefficients=SLOW, loader="blocking")
    for column in ("admitted_s", "first_token_s", "finish_s", "cold_start_s", "blocked_s"):
        assert one[column].tolist() == other[column].tolist(), column


def test_replicas_of_a_host_share_its_cores_and_get_them_back_when_the_prefill_is_over() -> None:
    """Three prompts of two cores at once on three cores: one is helped, two wait for their weights."""
    rows = tuple(Row(0.0, 0, 12, 1, 1) for _ in range(3))
    chosen = {"replicas": 3, "loader": "cpu_assisted", "coefficients": SLOW, "host_cores": 3}
    apart = table(*rows, **chosen)
    assert (apart.admitted_s == 0.0).all()
    shared = table(*rows, **chosen, replicas_per_host=3)
    assert shared.admitted_s.tolist() == [0.0] + [0.5 + 64 / 2**14] * 2
    later = table(rows[0], rows[1]._replace(arrival_s=1.0), **(chosen | {"replicas": 2}), replicas_per_host=2)
    assert later.admitted_s.tolist() == [0.0, 1.0]


def test_a_request_whose_weights_are_there_needs_no_help() -> None:
    rows = Row(0.0, 0, 12, 9, 9), Row(1.0, 0, 12, 1, 1)
    slow = {"coefficients": SLOW, "loader": "cpu_assisted", "eviction": "lru"}
    found = table(*rows, **slow).loc[1]
    assert found.first_token_s == pytest.approx(1.0 + prefill_s(12))


def test_a_request_that_could_have_been_helped_and_waits_for_another_is_blocked() -> None:
    """Two cores: the first prompt gets one, the second needs two; both wait for the second's weights."""
    rows = Row(0.0, 0, 8, 2, 2), Row(0.0, 1, 12, 2, 2)
    found = table(*rows, loader="cpu_assisted", host_cores=2, coefficients=SLOW)
    assert found.cold_start_s[0] == 0.0
    assert found.blocked_s[0] == pytest.approx(found.queue_s[0])
    assert found.cold_start_s[1] == pytest.approx(found.queue_s[1])


def test_a_host_counts_cores_until_they_are_given_back() -> None:
    cores = HostCores(4)
    cores.hold(3, now_s=1.0, until_s=2.0)
    assert (cores.free(1.0), cores.free(1.9), cores.free(2.0)) == (1, 1, 4)
    cores.hold(4, now_s=2.0, until_s=3.0)
    assert cores.most_busy == 4
    with pytest.raises(AssertionError, match="5 cores are held of 4"):
        cores.hold(1, now_s=2.5, until_s=3.0)
