"""Always merged: run the requests of the oldest request's adapter."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.picking import Picking, admitted, first
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class MergedOnly(Picking):
    """Merge the adapter of the oldest request, and run requests of that adapter, oldest first.

    When the oldest request ends and the next oldest is for another adapter, the requests of the first adapter are
    paused, as in Algorithm 1.
    Source: dLoRA (OSDI'24) §7.3, Merged-only, "always uses merged inference". The paper does not say which adapter is
    next; first come, first served is its default everywhere else.
    """

    def pick(self, view: ReplicaView) -> tuple[list[Request], Adapter | None]:
        here = admitted(view)
        oldest = first(here, view.waiting, 1)[0]
        ours = [request for request in here if request.adapter is oldest.adapter]
        waiting = view.waiting.of(oldest.adapter_id)
        return first(ours, waiting, view.max_num_seqs), oldest.adapter
