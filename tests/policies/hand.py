"""A replica made by hand: what a scheduler sees of it, and who fits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.views import Refusal

RETRY_STEPS = 7
A, B, C = (Adapter(i, name, 2, 128, 8) for i, name in enumerate("abc"))


def requests(*adapters: Adapter | None, start: int = 0, prompt_tokens: int = 10) -> tuple[Request, ...]:
    """Requests that arrive a second apart, the first of them number `start` at second `start`."""
    return tuple(
        Request(id, adapter, float(id), prompt_tokens, 10) for id, adapter in enumerate(adapters, start)
    )


class Queue(tuple[Request, ...]):
    """Waiting requests, in order."""

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        behind = self[self.index(after) + 1 :]
        return (request for request in behind if request.adapter is None or request.adapter.id in adapters)

    def place(self, request: Request) -> int:
        return self.index(request)


class Trial:
    """Admits everybody but those with a refusal of their own, as long as there are seats."""

    def __init__(self, seats: int, refuses: Mapping[Request, Refusal], in_use: Collection[Adapter]) -> None:
        self.seats = seats
        self.adapters = {adapter.id for adapter in in_use}
        self.refuses = refuses
        self.tried: list[Request] = []
        self.refusal: Refusal | None = None

    def admit(self, request: Request) -> bool:
        self.tried.append(request)
        refusal = Refusal.SEATS if self.seats < 1 else self.refuses.get(request)
        if refusal is not None:
            self.refusal = refusal
            return False
        self.seats -= 1
        if request.adapter is not None:
            self.adapters.add(request.adapter.id)
        return True

    def retry_steps(self) -> int:
        return RETRY_STEPS


class View:
    """A replica at a boundary; `in_use` are the adapters of the batch."""

    def __init__(
        self,
        waiting: Sequence[Request] = (),
        *,
        now_s: float = 9.0,
        running: int = 0,
        steps: int = 0,
        admit_every: int = 0,
        in_use: Collection[Adapter] = (),
        prefilling: Sequence[Request] = (),
        merged: Adapter | None = None,
        seats: int = 1000,
        refuses: Mapping[Request, Refusal] | None = None,
        preempted: bool = False,
    ) -> None:
        self.waiting = Queue(waiting)
        self.now_s = now_s
        self.running = running
        self.steps_since_prefill = steps
        self.admit_every = admit_every
        self.adapters = len(in_use)
        self.prefilling = prefilling
        self.merged = merged
        self.preempted = preempted
        self.last_trial = Trial(seats, refuses or {}, in_use)
        self._in_use = in_use

    def in_use(self, adapter: Adapter) -> bool:
        return adapter in self._in_use

    def trial(self) -> Trial:
        return self.last_trial

    @property
    def tried(self) -> tuple[Request, ...]:
        """Whom the scheduler asked for, in this order."""
        return tuple(self.last_trial.tried)
