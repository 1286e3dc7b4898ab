"""Never merged: run requests of all adapters together, in order of arrival."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.picking import Picking, admitted, first
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class UnmergedOnly(Picking):
    """Run the batch B_fcfs of Algorithm 1, in order of arrival. Source: dLoRA (OSDI'24) §7.3, Unmerged-only."""

    merges: ClassVar[bool] = False

    def pick(self, view: ReplicaView) -> tuple[list[Request], Adapter | None]:
        return first(admitted(view), view.waiting, view.max_num_seqs), None
