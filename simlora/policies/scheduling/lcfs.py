"""Last come, first served."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.request import Request
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class Lcfs(Fcfs):
    """Admit the newest request first, up to the first that does not fit. Source: S-LoRA §7.5."""

    def order(self, view: ReplicaView) -> Iterable[Request]:
        return reversed(view.waiting)

    def on_arrival(self) -> int:
        """Return `on_arrival` after a refusal: a newer request may fit where this one did not."""
        return 0
