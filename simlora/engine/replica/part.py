"""A part of a replica: one mechanism, with the hooks that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import ClassVar

from simlora.core.request import Request
from simlora.engine.replica.adapter_loader import LoadPlan
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.scenario import Scenario
from simlora.policies.scheduling.base import SchedulerOutput


class Part:
    """Defines only the hooks that its mechanism needs; a hook that no part defines costs an empty loop.

    The order within a boundary: on_ran, before_last_step, on_prefilled, after_prefill, hold_back,
    after_decode; at_boundary; take_ready, before_admit, on_plan, ask_again; on_turn; prepare, assist or
    steps and next_s; sample.
    """

    __slots__ = ()

    outlives_requests: ClassVar[bool] = False
    """Whether `next_s` wakes an idle replica even when all requests have ended."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        """Yield a sentence for each setting with which a scenario that uses the part cannot run."""
        yield from ()

    def on_arrival(self) -> bool:
        """Return whether the next step boundary is wanted because of the request that has just arrived."""
        return False

    def on_ran(self, now_s: float) -> None:
        """The launched iterations have just ended; the replica has not counted them yet."""

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        """All but the last of so many steps of a window are counted: the batch's step is the last but one."""

    def on_prefilled(self, requests: Sequence[Request], chunks: Sequence[int]) -> Sequence[Request]:
        """A prefill has ended; return the requests whose prompt is complete."""
        return requests

    def hold_back(self, request: Request, now_s: float) -> bool:
        """Return whether a request whose prefill has just ended does not join the running batch yet."""
        return False

    def after_decode(self, now_s: float) -> None:
        """Decode steps have ended, and everything that is held fits."""

    def at_boundary(self, now_s: float) -> None:
        """An iteration boundary, before the scheduler is asked."""

    def take_ready(self, now_s: float) -> tuple[Request, ...]:
        """Return the admitted requests whose prefill begins now without asking the scheduler."""
        return ()

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The scheduler admits these requests; return the ones that still have to be admitted."""
        return requests

    def on_plan(self, plan: LoadPlan, now_s: float) -> None:
        """Admitted requests have their memory, and `plan` says what they wait for."""

    def ask_again(self, output: SchedulerOutput, now_s: float) -> bool:
        """With nothing to run: return whether something was changed, so that the scheduler is asked once more."""
        return False

    def on_turn(self, now_s: float) -> None:
        """The replica has decided what it does until the next boundary."""

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        """An iteration is about to begin; return the seconds that pass before it does."""
        return 0.0

    def assist(
        self, requests: Sequence[Request], tokens: Sequence[int], start_s: float, pass_s: float
    ) -> tuple[float, float]:
        """Return when a prefill of these requests begins, and its seconds."""
        return start_s, pass_s

    def steps(self, most: int) -> int:
        """Return how many of the next `most` decode steps need no boundary between them, at least 1."""
        return most

    def next_s(self) -> float:
        """Return the time from which the next boundary is needed, also if the replica is idle; inf: none is."""
        return inf

    def sample(self) -> tuple[int, ...]:
        """Return more levels for the timeline, after those that every replica has."""
        return ()

    def after_prefill(self, request: Request, now_s: float) -> None:
        """The prompt of a request is complete."""

    def on_queue(self, request: Request, waits: bool) -> None:
        """A request has joined the waiting queue, or has left it."""

    def before_finish(self, request: Request, now_s: float) -> None:
        """A request has its last token, and still holds its memory."""

    def on_release(self, request: Request, now_s: float) -> None:
        """An admitted request has given back its memory and its hold on its adapter."""

    def on_sweep(self, now_s: float) -> None:
        """Idle adapters that the eviction policy does not keep have just left."""

    def inherit_counters(self, failed: Part) -> None:
        """Count what the same part of a failed replica did, whose place this one takes."""


NOT_GATHERED = ("outlives_requests", "inherit_counters", "next_s", "requires", "steps")
"""Methods that are not gathered into Hooks."""
HOOKS = tuple(name for name in vars(Part) if not name.startswith("_") and name not in NOT_GATHERED)
