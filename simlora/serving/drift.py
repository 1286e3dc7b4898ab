"""How far what clients see lags behind simulated time, and whether the machine keeps up."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from simlora.serving.live_clock import LiveClock
from simlora.serving.tally import Tally

BOUNDS_S = (
    0.0005,
    0.001,
    0.002,
    0.003,
    0.004,
    0.005,
    0.0075,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
    30.0,
)
LIMIT_S = 0.005
"""Wall seconds by which 1 % of the tokens of a second may be late; past it the server falls behind."""
WINDOW_S, LOG_EVERY_S = 1.0, 10.0

log = logging.getLogger("simlora.serving")


class Drift:
    """Wall seconds from when a token is due until it is handed to its connection, or its whole answer is made.

    Percentiles are rounded up to BOUNDS_S. `behind_windows` counts the seconds in which `p99_s` was above LIMIT_S: then
    the log says so, at most every ten seconds, as measured times are no longer those of the modelled cluster.
    """

    def __init__(self, clock: LiveClock) -> None:
        self._clock = clock
        self._before, self._window = (
            Tally(BOUNDS_S),
            Tally(BOUNDS_S),
        )  # of windows that are over, and of this one
        self._window_until_s = clock.wall_s() + WINDOW_S
        self._logged_s = -LOG_EVERY_S
        self._p99_s = 0.0
        self.behind_windows = 0

    def add(self, due_s: Sequence[float]) -> None:
        """What was due at these simulated times is done now."""
        now_s, speed, window = self._clock.now_s(), self._clock.speed, self._window
        for (
            each_s
        ) in due_s:  # one by one: twenty thousand counted together, once a second, held up streams for 6 ms
            window.add((now_s - each_s) / speed)
        if self._clock.wall_s() >= self._window_until_s:
            self._end_window()

    @property
    def tally(self) -> Tally:
        """Of all tokens so far."""
        found = Tally(BOUNDS_S)
        found.add_all(self._before)
        found.add_all(self._window)
        return found

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the last whole second."""
        self._end_window()
        return self._p99_s

    @property
    def behind(self) -> bool:
        """Whether the last second was too late."""
        return self.p99_s > LIMIT_S

    def _end_window(self) -> None:
        """End the seconds that are over; one in which nothing was due has no drift."""
        wall_s = self._clock.wall_s()
        if wall_s < self._window_until_s:
            return
        over = wall_s >= self._window_until_s + WINDOW_S
        self._p99_s = self._window.quantile(0.99)
        self._tell_late(wall_s)
        self._before.add_all(self._window)
        self._window, self._window_until_s = Tally(BOUNDS_S), wall_s + WINDOW_S
        if over:
            self._p99_s = 0.0

    def _tell_late(self, wall_s: float) -> None:
        """Say that the second that is over was too late, if it was."""
        if self._p99_s <= LIMIT_S:
            return
        self.behind_windows += 1
        if wall_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = wall_s
            log.warning(
                "falls behind: 1 %% of the tokens of the last second came more than %g ms after they were due; "
                "times that clients measure are too long until this stops (seconds so far: %d)",
                1000 * max((bound for bound in BOUNDS_S if bound < self._p99_s), default=0.0),
                self.behind_windows,
            )
