"""A timer of the event loop that is precise to some ten microseconds."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import weakref
from collections.abc import Callable

CLOCK_MONOTONIC, TFD_NONBLOCK, TFD_CLOEXEC = 1, 0o4000, 0o2000000
"""Of Linux, on all processors that it runs on here."""
LEAST_S = 1e-6
"""A wait of 0 would switch the timer off."""


class Alarm:
    """Calls `ring` once, in the running event loop, so many wall seconds after it was set last.

    Timers of uvloop have whole milliseconds, and those of less than half of one are over at once: most steps of a live
    cluster came too early and found nothing to do. So Linux's timerfd is used where it is there.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None)
            self._fd = self._libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
            self._spec = (ctypes.c_long * 4)()  # struct itimerspec: no interval, then seconds and nanoseconds
            self._settime = self._libc.timerfd_settime
            self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        if self._fd >= 0:
            weakref.finalize(self, os.close, self._fd)

    def set(self, wait_s: float) -> None:
        """Ring after so many seconds, and not when it was set for before."""
        loop = asyncio.get_running_loop()
        if self._fd < 0:
            self.cancel()
            self._handle = loop.call_later(wait_s, self._ring)
            return
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._fd, self._rung)
        self._set_fd(max(wait_s, LEAST_S))

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
        if self._loop is not None:
            self._set_fd(0.0)

    def _set_fd(self, wait_s: float) -> None:
        whole_s = int(wait_s)
        self._spec[2], self._spec[3] = whole_s, int(1e9 * (wait_s - whole_s))
        failed = self._settime(self._fd, 0, self._spec, None)
        assert not failed, f"the timer cannot be set to {wait_s} s"

    def _rung(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew after it was over
        self._ring()
