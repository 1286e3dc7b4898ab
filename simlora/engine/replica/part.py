"""A part of a replica: one mechanism, with the hooks that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.request import Request
from simlora.engine.replica.adapter_loader import LoadPlan
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.scenario import Scenario
from simlora.policies.scheduling.base import SchedulerOutput


@mypyc_attr(allow_interpreted_subclasses=True)
class Part:
    """Defines only the hooks that its mechanism needs; a hook that no part defines costs an empty loop.

    The order within a boundary; hooks in brackets are called for each request concerned:

    * output: on_ran; before_last_step [before_finish, on_release] on_sweep; on_prefilled [after_prefill, then
      hold_back, or before_finish and on_release] on_sweep; after_decode;
    * schedule: at_boundary; take_ready, or before_admit [on_queue] on_plan; ask_again; awaits; on_turn;
    * launch: prepare; assist, or steps and next_s; sample.

    on_sweep is called if requests have finished or have gone to other replicas. An arrival calls on_queue and, while a
    batch decodes, on_arrival.
    A preemption calls on_release and on_queue, a handoff too, and an abort on_queue, wherever they happen.

    A part registers in `__init__` whatever is not a hook: the scheduler's actions that it applies (`replica.actions`),
    how a request leaves a status (`table.stops`), a wrapper of `replica.ask`, and listeners of loader, cache and links.
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

    def awaits(self) -> bool:
        """Return whether requests may wait beside an idle batch, as something will end that the part waits for."""
        return False

    def on_turn(self, now_s: float) -> None:
        """The replica has decided what it does until the next boundary."""

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        """An iteration is about to begin, or a window continues; return the seconds that pass before it does."""
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
        """Return more levels for the timeline, whose columns are fixed: for simlora's own parts."""
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


class Hooks:
    """The hooks of a replica's parts, gathered once: each is a tuple of bound methods, in the order of the `parts`.

    It is empty where no part defines the hook. `bounds` are the parts that bound the decode window.
    """

    parts: tuple[Part, ...]
    bounds: tuple[Part, ...]
    on_arrival: tuple[Callable[[], bool], ...]
    on_ran: tuple[Callable[[float], None], ...]
    before_last_step: tuple[Callable[[DecodeWindow, int, float], None], ...]
    on_prefilled: tuple[Callable[[Sequence[Request], Sequence[int]], Sequence[Request]], ...]
    after_prefill: tuple[Callable[[Request, float], None], ...]
    hold_back: tuple[Callable[[Request, float], bool], ...]
    after_decode: tuple[Callable[[float], None], ...]
    at_boundary: tuple[Callable[[float], None], ...]
    take_ready: tuple[Callable[[float], tuple[Request, ...]], ...]
    before_admit: tuple[Callable[[Sequence[Request]], Sequence[Request]], ...]
    on_plan: tuple[Callable[[LoadPlan, float], None], ...]
    ask_again: tuple[Callable[[SchedulerOutput, float], bool], ...]
    on_turn: tuple[Callable[[float], None], ...]
    prepare: tuple[Callable[[SchedulerOutput, float], float], ...]
    assist: tuple[Callable[[Sequence[Request], Sequence[int], float, float], tuple[float, float]], ...]
    sample: tuple[Callable[[], tuple[int, ...]], ...]
    on_queue: tuple[Callable[[Request, bool], None], ...]
    before_finish: tuple[Callable[[Request, float], None], ...]
    on_release: tuple[Callable[[Request, float], None], ...]
    on_sweep: tuple[Callable[[float], None], ...]

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts = parts = tuple(parts)
        self.bounds = tuple(part for part in parts if _defines(part, "steps") or _defines(part, "next_s"))
        for name in HOOKS:
            setattr(self, name, tuple(getattr(part, name) for part in parts if _defines(part, name)))


def _defines(part: Part, name: str) -> bool:
    return getattr(type(part), name) is not getattr(Part, name)


NOT_HOOKS = ("outlives_requests", "requires", "awaits", "steps", "next_s", "inherit_counters")
HOOKS = tuple(name for name in vars(Part) if not name.startswith("_") and name not in NOT_HOOKS)
NO_HOOKS = Hooks()
