"""What is shown on stderr while something takes its time: a bar, or a line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(
    total: int, what: str, shown: bool | None = None, doing: str = "simulating"
) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many of `total` requests, or `what` it is, are done.

    `shown`: whether there is a bar; None: on a terminal.
    """
    if not _is_shown(shown):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.update(task, completed=done)


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
