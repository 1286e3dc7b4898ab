"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(requests: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many requests have ended."""
    if not shown:
        yield lambda ended: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("requests"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=requests)
        yield lambda ended: progress.update(task, completed=ended)
