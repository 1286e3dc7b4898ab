"""Reports on the waiting queue, for routers that know how much work waits where."""

from __future__ import annotations

from collections.abc import Callable

from simlora.core.request import Request
from simlora.engine.replica.part import Part

Report = Callable[[int, Request], None]
"""Hears of a request at the replica of that number."""


class QueueReports(Part):
    """Reports each request that joins or leaves the waiting queue."""

    __slots__ = ("_add", "_id", "_remove")

    def __init__(self, id: int, add: Report, remove: Report) -> None:
        self._id, self._add, self._remove = id, add, remove

    def on_queue(self, request: Request, waits: bool) -> None:
        (self._add if waits else self._remove)(self._id, request)
