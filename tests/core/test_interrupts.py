"""Signals wait for what must not be left half done."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from simlora.core.interrupts import held_back


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_when_the_work_is_done(number):
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


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("most", "acts"), [(None, [0, 0, 0, 0]), (0, [1, 1, 1, 1]), (1, [0, 2, 2, 2])])
def test_one_acts_at_once_when_so_many_were_held_back_and_those_after_it_wait(most, acts, inside):
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    seen = []
    try:
        with held_back() if inside else nullcontext(), held_back(most) as let_through:
            for _ in range(4):
                os.kill(os.getpid(), signal.SIGINT)
                seen.append(len(came))
            let_through()
            assert len(came) == (0 if inside else 4)
        assert len(came) == 4
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ([0] * 4 if inside else acts)


def test_what_an_inner_one_lets_through_an_outer_one_counts():
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    seen = []
    try:
        with held_back(1):
            for _ in range(2):
                with held_back():
                    os.kill(os.getpid(), signal.SIGINT)
                    seen.append(len(came))
                seen.append(len(came))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [0, 0, 0, 2]


def test_processes_may_be_started_that_never_get_one():
    code = """
from signal import SIG_BLOCK, SIGINT, pthread_sigmask
from joblib import Parallel, delayed
from simlora.core.interrupts import unheard
with unheard():
    masks = Parallel(n_jobs=2, return_as="generator")(delayed(pthread_sigmask)(SIG_BLOCK, []) for _ in range(2))
assert SIGINT not in pthread_sigmask(SIG_BLOCK, [])
assert all(SIGINT in mask for mask in masks)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_other_threads_get_no_signals_and_have_nothing_to_hold_back():
    done: list[bool] = []

    def work() -> None:
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
