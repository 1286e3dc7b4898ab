"""The hooks of a replica's parts, gathered once: each is a tuple of bound methods, empty where no part defines it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from simlora.core.request import Request
from simlora.engine.replica.adapter_loader import LoadPlan
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.part import HOOKS, Part
from simlora.policies.scheduling.base import SchedulerOutput


class Hooks:
    """One attribute for each hook of `Part`, in the order of the `parts`; `bounds` bound the decode window."""

    __slots__ = (*HOOKS, "bounds", "parts")

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
        self.bounds = tuple(
            part
            for part in parts
            if type(part).next_s is not Part.next_s or type(part).steps is not Part.steps
        )
        for name in HOOKS:
            setattr(self, name, tuple(_defined(parts, name)))


def _defined(parts: tuple[Part, ...], name: str) -> Iterator[object]:
    """Yield the hook of that name of each part whose class defines it."""
    for part in parts:
        if getattr(type(part), name) is not getattr(Part, name):
            yield getattr(part, name)


NO_HOOKS = Hooks()
