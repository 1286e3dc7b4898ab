"""An adapter that leaves HBM while it is still on its way: its slots are written to until its load would have ended."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from tests.engine.by_hand import prefill_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row
from tests.engine.observing import observed
from tests.engine.test_fast_forward import abandoning
from tests.examples import share

SLOW = {**COEFFICIENTS, "adapter_load.bytes_per_s": 2.0**9}
"""64 bytes, an adapter of rank 1, in an eighth of a second: several steps."""


class Strict(Part):
    """Counts the slots of abandoned loads that have not ended among those that are taken, at each launch."""

    abandoned = 0
    """Launches while an abandoned load was still under way."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self._cache = replica, replica.kv.adapters
        self._loads: dict[int, tuple[float, int]] = {}  # when each resident adapter is there, and its slots
        self._abandoned: list[tuple[float, int]] = []
        self._cache.on_change += (self._adapter,)

    def _adapter(self, id: int, resident: bool) -> None:
        if resident:
            self._loads[id] = self._cache.ready_s[id], self._cache.adapter(id).kv_tokens
        else:
            self._abandoned.append(self._loads.pop(id))

    def sample(self) -> tuple[int, ...]:
        if not self._replica.idle:
            self._check()
        return ()

    def _check(self) -> None:
        """Iterations have just been launched."""
        table, kv = self._replica.table, self._replica.kv
        window, step = table.window, table.batch.step
        start_s = self._replica.start_s if window is None else window.end_s(window.done)
        Strict.abandoned += any(until_s > self._replica.clock.now for until_s, _ in self._abandoned)
        self._abandoned = [(until_s, tokens) for until_s, tokens in self._abandoned if until_s > start_s]
        waits = table.held[RequestStatus.LOADING_ADAPTER]
        kv_tokens = kv.running_tokens(step) - sum(kv.own_tokens(request, step) for request in waits.values())
        there = sum(tokens for ready_s, tokens in self._loads.values() if ready_s <= start_s)
        abandoned = sum(tokens for _, tokens in self._abandoned)
        assert kv_tokens + there + abandoned <= self._replica.config.kv_token_budget, (
            "KV is written to slots that an adapter is still being copied to"
        )


def strict(case: Case, fast_forward: bool = True) -> int:
    """Run a case; return at how many launches an abandoned load was still under way."""
    Strict.abandoned = 0
    observed(case.scenario(fast_forward=fast_forward), Strict)
    return Strict.abandoned


AHEAD = Case(
    rows=(Row(0.0, None, 4, 20, 20), Row(2**-7, None, 90, 2, 4), Row(2**-7, 0, 4, 2, 2)),
    ranks=(1,),
    capacity=120,
    kernel="merged",
    reserve="full",
    eviction="lru",
    loader="prefetching",
    max_wait_tokens=3,
    coefficients=SLOW,
)
"""While the first runs, the adapter of the third is sent for; then the second needs its slots."""


def test_a_request_that_takes_the_slots_of_an_abandoned_load_waits_until_that_would_have_ended():
    """The first has 24 slots and the second takes 94 of 120: the adapter, of 4, has to go after three steps."""
    sent_s = prefill_s(4)
    ready_s = sent_s + 2**-8 + 64 / 2**9
    assert sent_s + steps_s(3, 5) < ready_s
    assert AHEAD.table().admitted_s[1] == pytest.approx(ready_s)
    assert strict(AHEAD) > 0


@given(abandoning(), st.booleans())
@share(2 / 3)
def test_no_slot_is_written_to_that_a_load_still_writes_to(case, fast_forward):
    event(f"abandoned: {strict(case, fast_forward) > 0}")
