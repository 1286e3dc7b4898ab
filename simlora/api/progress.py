"""A progress bar on stderr."""

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
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TextColumn(what))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.update(task, completed=done)
