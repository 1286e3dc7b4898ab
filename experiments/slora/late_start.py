"""S-LoRA's workload for a server that takes longer with its very first request, as one that has just started does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simlora.core.checks import number
from simlora.core.trace import Trace
from simlora.workload.slora import SLora


@dataclass(frozen=True)
class LateStart(SLora):
    """The trace of SLora, seen from the end of the first request, which takes `late_s` longer.

    To all other requests that is as if they came so much earlier; those that came within that time of the first come
    together with it.
    """

    late_s: float = 0.0

    def build(self, seed: int) -> Trace:
        """Return the trace. `seed` counts only when the workload's own is None."""
        late_s = number("workload.late_s", self.late_s, "seconds", least=0)
        trace = super().build(seed)
        arrival_s = np.maximum(trace.arrival_s - late_s, trace.arrival_s[0])
        return replace(
            trace, arrival_s=arrival_s, source=f"{trace.source}, first request {late_s:g} s longer"
        )
