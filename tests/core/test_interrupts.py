"""Signals wait for what must not be left half done."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from simlora.core.interrupts import held_back


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_when_the_work_is_done(number: signal.Signals):
    done = []

    def interrupt(number: int, frame: object) -> None:
        assert done, "the work was under way"
        raise KeyboardInterrupt

    def work() -> None:
        with held_back():
            os.kill(os.getpid(), number)
            done.append(True)

    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)


def test_other_threads_get_no_signals_and_have_nothing_to_hold_back():
    done: list[bool] = []

    def work() -> None:
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
