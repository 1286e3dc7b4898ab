"""A decode window: the decode steps between two changes of the running batch."""

from __future__ import annotations

from math import sqrt

from mypy_extensions import mypyc_attr


@mypyc_attr(acyclic=True)  # many are made, none is part of a cycle: nothing to collect
class DecodeWindow:
    """Step i = 0, 1, … takes base + i * slope, so the end of the first k steps has a closed form.

    `done` steps are over, and the next boundary that the replica waits for is the end of the first `stop` steps. The
    first `finish` steps finish a member of the batch; after `full` steps KV may have outgrown the free slots. The plain
    loop and fast-forward read their boundaries from the same window, so they agree to the last bit, also where an
    arrival falls exactly on a boundary.
    """

    __slots__ = ("base_s", "done", "finish", "full", "slope_s", "start_s", "stop")

    def __init__(self, start_s: float, base_s: float, slope_s: float, stop: int = 0) -> None:
        self.start_s = start_s
        self.base_s = base_s
        self.slope_s = slope_s
        self.done = 0
        self.stop = stop
        self.finish = self.full = 0

    def end_s(self, steps: int) -> float:
        """Return the time at which the first `steps` steps are over."""
        return self.start_s + steps * (self.base_s + self.slope_s * (0.5 * (steps - 1)))

    def first_boundary(self, time_s: float) -> int:
        """Return the fewest steps (at least 1) whose end is not before `time_s`."""
        elapsed = time_s - self.start_s
        # end(k) = half * k + slope / 2 * k^2 solved for k, in the form that does not cancel.
        half = self.base_s - 0.5 * self.slope_s
        root = half + sqrt(half * half + 2.0 * self.slope_s * max(elapsed, 0.0))
        steps = max(int(2.0 * elapsed / root), 1) if root > 0.0 else 1
        while steps > 1 and self.end_s(steps - 1) >= time_s:
            steps -= 1
        while self.end_s(steps) < time_s:
            steps += 1
        return steps
