"""Replicas of a mixed pool that keep KV for each other, none of which has room for what the others keep."""

from __future__ import annotations

from collections.abc import Iterable

from simlora.engine.clock import STORE
from simlora.engine.parts.kv_transfer import KvTransfers, Transfer
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica


class CircularWaits(Part):
    """Drops KV that replicas keep for each other when none of them can go on: see `longest_in_circle`.

    The request computes its prompt anew where it waits to decode, and counts as preempted. The replica that kept its KV
    has room again. A request loses its KV this way at most once.

    Source: vLLM's NixlConnector. The instance that prefills frees KV that was not fetched in time
    (VLLM_NIXL_ABORT_REQUEST_TIMEOUT, in later versions kv_lease_duration), and the one that decodes computes it again
    (kv_load_failure_policy=recompute). Differs: KV is dropped as soon as replicas wait in a circle, and never
    otherwise.
    """

    def __init__(self, replica: Replica, transfers: KvTransfers) -> None:
        self._replica, self._transfers = replica, transfers

    def on_turn(self, now_s: float) -> None:
        table = self._replica.table
        if table.queue.count and not table.prefill and not table.batch.members:
            # Once the replica is idle, and after what else the links do at this moment.
            self._replica.clock.call(now_s, STORE, self._replica.id, self._break)

    def _break(self) -> None:
        kept = longest_in_circle(self._transfers.unfetched())
        if kept is not None and kept.receiver is not None:
            kept.receiver.compute_anew(kept.request)


def longest_in_circle(unfetched: Iterable[Transfer]) -> Transfer | None:
    """Return the KV that was computed first among replicas that wait for each other; None if there are none.

    A replica waits if nothing runs there, and nothing can start before KV that it keeps is fetched. It is in a circle
    if all KV that it keeps is for replicas of the circle, and one of these keeps KV for it.
    """
    kept = [each for each in unfetched if each.source.stands_still]
    targets: dict[int, set[int]] = {}
    for each in kept:
        assert each.receiver is not None, f"request {each.request.id} waits nowhere"
        targets.setdefault(each.source.replica_id, set()).add(each.receiver.replica_id)
    left = -1
    while left != len(targets):
        left, waited_for = len(targets), {id for some in targets.values() for id in some}
        targets = {id: some for id, some in targets.items() if id in waited_for and some <= targets.keys()}
    found = (each for each in kept if each.source.replica_id in targets)
    return min(found, key=lambda each: each.place, default=None)
