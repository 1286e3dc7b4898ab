"""The scheduler slot: what does this replica run next, and until when does that stand?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.views import ReplicaView

NEVER = 1 << 60
"""As a number of decode steps: not before something else ends the run."""


class SchedulerOutput(NamedTuple):
    """Give these requests up, with a reason each; prefill those, or else decode the running batch.

    With `chunks`, the i-th request of the prefill has only that many of its tokens processed; what is not
    whole then shows in the view's `prefilling` and is named again. With `decode`, the running batch takes
    a step in the same iteration. `unmerge` takes the merged adapter out of the weights before the
    iteration, and `merge` puts one in: from then on its requests cost no LoRA work, and no others may run.
    `pause` takes requests out of the running batch, with their KV where it is, and `resume` puts them back: who is
    paused makes way, his KV to the host or dropped (replica.preemption), when others need the memory.
    `skipped` counts the waiting requests that were looked at and left where they are: each step costs the
    time of looking at them, where a calibration says how long that takes.
    `notes` are numbers by name that a reader of the results may want to see over time: thresholds, and what is an
    adapter's with its name behind a colon, `credit:<adapter>`. `merged` the engine notes itself.

    A decode decision stands for `steps` steps, and ends at the first iteration boundary not before
    `until_s`. An arrival ends it at the first boundary not before the arrival, but never within its
    first `on_arrival` steps. A request that finishes, memory that runs out, a migration or a fault
    end it in any case.
    """

    prefill: tuple[Request, ...] = ()
    steps: int = NEVER
    on_arrival: int = NEVER
    until_s: float = inf
    abort: tuple[tuple[Request, str], ...] = ()
    chunks: tuple[int, ...] = ()
    decode: bool = False
    unmerge: bool = False
    merge: Adapter | None = None
    skipped: int = 0
    pause: tuple[Request, ...] = ()
    resume: tuple[Request, ...] = ()
    notes: tuple[tuple[str, float], ...] = ()


class Scheduler(ABC):
    """One instance a replica. Asked at iteration boundaries while there is anything to run.

    A scheduler that merges says so, so that a run without the cost of it in its calibration stops early;
    one that prefills in chunks says so, so that no prompt is too long for one iteration. One that pauses says so too:
    nobody can be paused in a batch of one shape (replica.reserve=padded).
    """

    merges = False
    pauses = False
    chunks = False

    @abstractmethod
    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        """Decide the next iteration; never called without work.

        An empty prefill means decode. Waiting requests that could run may not be left beside an idle
        replica: start some, or give them up.
        """

    def order(self, view: ReplicaView) -> Iterable[Request]:
        """The waiting requests in the order in which they would start; by arrival, unless said otherwise."""
        return view.waiting
