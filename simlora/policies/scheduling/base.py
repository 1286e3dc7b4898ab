"""The scheduler slot: what a replica runs next, and for how long that decision holds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.policies.views import ReplicaView

NEVER: Final = 1 << 60
"""As a number of decode steps: until something else ends the decode window."""


class Abort(NamedTuple):
    """Abort a waiting request, with a reason for its row."""

    request: Request
    reason: str


class Pause(NamedTuple):
    """Take a request out of the running batch, and leave its KV in HBM.

    A paused request is preempted when others need the memory: its KV goes to the host or is dropped
    (replica.preemption).
    """

    request: Request


class Resume(NamedTuple):
    """Put a paused request back into the running batch."""

    request: Request


class Note(NamedTuple):
    """Record a named number over time, such as a threshold.

    A number of one adapter has the adapter's name behind a colon, `credit:<adapter>`. The engine itself notes `merged`.
    """

    name: str
    value: float


Action = Abort | Pause | Resume | Note


_FIELDS = (
    "actions",
    "chunks",
    "decode",
    "merge",
    "on_arrival",
    "prefill",
    "skipped",
    "steps",
    "unmerge",
    "until_s",
)


class SchedulerOutput:
    """What a replica runs next: the `prefill` requests, or else a decode of the running batch.

    The `actions` are applied first, in their order. With `chunks`, only `chunks[i]` tokens of the i-th prefill
    request are processed; a request whose prompt is not complete then is in the view's `prefilling` and has to be
    named again. With `decode`, the running batch takes a step in the same iteration.
    `unmerge` takes the merged adapter out of the base weights before the iteration, and `merge` puts one in: from
    then on its requests cost no LoRA work, and no other requests may run.
    `skipped` is the number of waiting requests that were looked at and not chosen. Each step costs the time of
    looking at them, if the calibration has that coefficient.

    A decode decision holds for `steps` steps, and ends at the first iteration boundary not before `until_s`. An
    arrival ends it at the first boundary not before the arrival, but never within its first `on_arrival` steps. A
    finished request, memory running out, a migration or a fault ends it in any case.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        prefill: Sequence[Request] = (),
        steps: int = NEVER,
        on_arrival: int = NEVER,
        until_s: float = inf,
        chunks: Sequence[int] = (),
        decode: bool = False,
        unmerge: bool = False,
        merge: Adapter | None = None,
        skipped: int = 0,
        actions: Sequence[Action] = (),
    ) -> None:
        self.prefill, self.chunks, self.actions = tuple(prefill), tuple(chunks), tuple(actions)
        self.steps, self.on_arrival, self.until_s = steps, on_arrival, until_s
        self.decode, self.skipped, self.unmerge, self.merge = decode, skipped, unmerge, merge

    def replace(self, **changes: Any) -> SchedulerOutput:
        """Return a copy with other values of these fields."""
        kept = {name: getattr(self, name) for name in _FIELDS}
        return SchedulerOutput(**(kept | changes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchedulerOutput):
            return False
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"SchedulerOutput({', '.join(shown)})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """Decides what one replica runs. Each replica has its own instance, called at iteration boundaries.

    Three class attributes declare what a scheduler does. `merges`: a calibration without the cost of merging is
    refused before the run. `chunks`: prompts are prefilled in chunks, so that none is too long for one iteration.
    `pauses`: it pauses requests, which a batch of one shape (replica.reserve=padded) does not allow.
    """

    merges: ClassVar[bool] = False
    pauses: ClassVar[bool] = False
    chunks: ClassVar[bool] = False

    @abstractmethod
    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        """Return the next iteration's output; never called without work.

        An empty prefill means decode. A replica may not idle while waiting requests could run: the scheduler has to
        start or abort some.
        """
        raise not_defined(self, "schedule")

    def order(self, view: ReplicaView) -> Iterable[Request]:
        """The waiting requests in the order in which they would start; by default in order of arrival."""
        return view.waiting
