"""What is shown on stderr while something takes its time: a bar, or lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

EVERY_S = 60.0


@contextmanager
def bar(
    total: int, what: str, shown: bool | None = None, doing: str = "simulating"
) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many of `total` requests, or `what` it is, are done.

    `shown`: whether there is a bar; None: on a terminal, and elsewhere a line every EVERY_S.
    """
    if not _is_shown(shown):
        yield (lambda done: None) if shown is False else _lines(total, what, doing)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.update(task, completed=done)


def _lines(total: int, what: str, doing: str) -> Callable[[int], None]:
    """Return what prints how far it is, for a log: nothing before the first EVERY_S."""
    began_s = told_s = monotonic()

    def tell(done: int) -> None:
        nonlocal told_s
        now_s = monotonic()
        if done and now_s - told_s >= EVERY_S:
            told_s = now_s
            left_s = (now_s - began_s) / done * (total - done)
            line = f"simlora: {doing} {done:,} of {total:,} {what}, about {left_s / 60:.0f} minutes left"
            with suppress(OSError):
                print(line, file=sys.stderr, flush=True)

    return tell


@contextmanager
def working(what: str, shown: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Say what takes its time, and give a function that is told how far it is, in words.

    `shown`: whether anything is said; None: on a terminal.
    """
    if not _is_shown(shown):
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda words: status.update(f"{what}: {words}")


def _is_shown(shown: bool | None) -> bool:
    return sys.stderr.isatty() if shown is None else shown
