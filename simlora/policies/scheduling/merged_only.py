"""Always merged: the oldest request's adapter, and all of its requests."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.picking import Picking, admitted, first
from simlora.policies.views import ReplicaView


class MergedOnly(Picking):
    """The oldest request says which adapter is merged, and requests of that adapter run with it, oldest first.

    Source: dLoRA (OSDI'24) §7.3, Merged-only, "always uses merged inference". The paper does not say whose turn it is;
    first come, first served is its default everywhere else. As in Algorithm 1 those of other adapters are paused when
    the oldest request has ended and the next oldest is for another adapter.
    """

    def pick(self, view: ReplicaView) -> tuple[list[Request], Adapter | None]:
        here = admitted(view)
        oldest = first(here, view.waiting, 1)[0]
        ours = [request for request in here if request.adapter is oldest.adapter]
        waiting = view.waiting.of(oldest.adapter_id)
        return first(ours, waiting, view.max_num_seqs), oldest.adapter
