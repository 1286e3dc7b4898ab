"""Processes of this machine that simulate independent replicas at the same time."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from simlora.core.errors import InputError
from simlora.core.interrupts import held_back
from simlora.core.request import Request
from simlora.engine.clock import Clock
from simlora.engine.cluster.outcome import Outcome
from simlora.engine.cluster.turns import Turns
from simlora.engine.replica.replica import Replica
from simlora.metrics import shares
from simlora.metrics.recorder import Recorder

MakeRequests = Callable[..., Iterator[Request]]
"""Makes the requests whose `ids` are given, with the adapters of the `replica` that is given."""


def can_fork() -> bool:
    """Whether this process can have workers, which are copies of it; macOS has libraries that do not survive that."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


class Workers:
    """As many processes as there are `cores`, each with some of the replicas, which it advances in turn.

    Replicas, and all that they refer to, are as they were when the processes began. Only what plain values say comes
    back: rows after each slice of time, the rest at the end. While the workers simulate a slice, this process goes on
    to dispatch the requests of the next.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        replicas: Sequence[Replica],
        requests: MakeRequests,
        cores: int,
    ) -> None:
        self._clock, self._recorder = clock, recorder
        self._busy = False  # after the last slice, a replica has something scheduled
        self._given: list[list[int]] = [[] for _ in replicas]  # ids of requests, by replica
        self._pipes: list[Connection] = []
        self._parts = [replicas[place::cores] for place in range(cores)]
        self._simulating = False  # the workers have not answered yet,
        self._broken = False  # and their answers cannot be told from each other any more
        fork = multiprocessing.get_context("fork")
        self._processes = []
        for part in self._parts:
            ours, theirs = multiprocessing.Pipe()
            self._pipes.append(ours)
            arguments = (theirs, self._pipes, Turns(clock, part), part, recorder, requests)
            process = fork.Process(target=_work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)

    def give(self, replica: Replica, request: Request) -> None:
        """Have a request arrive at a replica, not before the time that was reached; in order of time."""
        self._given[replica.id].append(request.id)

    def advance(self, until_s: float | None) -> None:
        """Let everything happen that happens before that time; None: everything."""
        questions = []
        for part in self._parts:
            given = [(replica.id, np.array(self._given[replica.id], dtype=np.int64)) for replica in part]
            questions.append(([(id, ids) for id, ids in given if len(ids)], until_s))
        for some in self._given:
            some.clear()
        self._collect()
        self._ask(questions)
        if until_s is not None:
            self._clock.now = until_s

    def _collect(self) -> None:
        """Take over the rows of the last slice, once it is simulated."""
        if self._simulating:
            with self._whole():
                answers = self._answers()
                with held_back():
                    self._busy = any(busy for _, busy in answers)
                    for rows, _ in answers:
                        self._recorder.take_rows(rows)

    @property
    def busy(self) -> bool:
        """Whether a replica has something scheduled."""
        self._collect()
        return self._busy

    def end(self, finalizes: bool) -> list[Outcome]:
        """Take over all that was recorded, of requests that run too if it `finalizes`; return what the replicas did.

        Nothing is returned if the answers to a slice of time were given up.
        """
        if self._broken:
            return []
        self._collect()
        self._ask([finalizes] * len(self._pipes))
        outcomes: dict[int, Outcome] = {}
        with self._whole():
            answers = self._answers()
            with held_back():
                for rows, share, did in answers:
                    self._recorder.take_rows(rows)
                    shares.add(self._recorder, share)
                    outcomes |= did
        return [outcomes[id] for id in sorted(outcomes)]

    def close(self) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()

    def _ask(self, questions: Sequence[Any]) -> None:
        """Ask each worker something; all have answered what they were asked before."""
        with self._whole():
            for pipe, question in zip(self._pipes, questions, strict=True):
                # Not send(): interrupted, its traceback keeps a buffer at whose collection CPython 3.12 crashes.
                pipe.send_bytes(bytes(ForkingPickler.dumps(question)))
        self._simulating = True

    def _answers(self) -> list[Any]:
        """Return what each worker answers. Raises what a worker raised."""
        found = [pipe.recv() for pipe in self._pipes]
        self._simulating = False
        for answer in found:
            if isinstance(answer, Exception):
                raise answer
        return found

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Do what is inside with all workers, or have them `_broken`. Raises RuntimeError if one is gone."""
        self._broken = True
        try:
            yield
        except (EOFError, ConnectionError):
            raise RuntimeError("a process that simulates some of the replicas was killed") from None
        self._broken = False


def _work(
    pipe: Connection,
    others: Sequence[Connection],
    turns: Turns,
    replicas: Sequence[Replica],
    recorder: Recorder,
    requests: MakeRequests,
) -> None:
    """Answer what the pipe asks until its other end is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first process decides what they mean
    for other in others:
        other.close()  # or this process would not see them closed
    rows = recorder.log_rows()
    by_id = {replica.id: replica for replica in replicas}
    try:
        while True:
            question = pipe.recv()
            if isinstance(question, bool):
                did = dict(zip(by_id, turns.end(question), strict=True))
                pipe.send((rows.share(), shares.share(recorder, list(by_id)), did))
                continue
            given, until_s = question
            for id, ids in given:
                for request in requests(ids=ids, replica=id):
                    turns.give(by_id[id], request)
            turns.advance(until_s)
            pipe.send((rows.share(), turns.busy))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        pipe.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent, with a note of where it comes from."""
    kind = next((kind for kind in (InputError, AssertionError) if isinstance(error, kind)), None)
    found = RuntimeError(f"{type(error).__name__}: {error}") if kind is None else kind(str(error))
    found.add_note(f"In a process that simulates some of the replicas:\n{traceback.format_exc()}")
    return found
