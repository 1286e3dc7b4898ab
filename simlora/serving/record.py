"""The requests that were seen, as a trace of our own schema that grows while the server runs."""

from __future__ import annotations

import csv
import json
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from simlora.core.errors import InputError
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.ticket import Ticket
from simlora.workload.file import events_path

COLUMNS = (
    "arrival_s",
    "adapter",
    "rank",
    "prompt_tokens",
    "output_tokens",
    "max_output_tokens",
    "block_hashes",
)


class Record:
    """Writes a row for each request in order of arrival, once it and all before it have ended.

    What the columns cannot say, that adapters came, clients left and faults were asked for, goes into a file beside it,
    a JSON object a line. Numbers are written in full, so that a replay has the same times.
    """

    def __init__(self, cluster: LiveCluster, path: Path) -> None:
        """Raise InputError for a file that is no .csv or cannot be written."""
        if path.suffix.lower() != ".csv":
            raise InputError(f"--record {path} has the suffix {path.suffix!r}, must be .csv")
        self._cluster, self.path = cluster, path
        self._rows: deque[Ticket] = deque()
        self._events: TextIO | None = None
        self.written = 0
        try:
            self._file = path.open("w", encoding="utf-8", newline="")
            events_path(path).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"--record {path} cannot be written: {error.strerror or error}") from None
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._hashes = cluster.scenario.replica.prefix_caching
        self._csv.writerow(COLUMNS if self._hashes else COLUMNS[:-1])
        cluster.on_submit += (self._rows.append,)
        cluster.on_end += (self._ended,)
        cluster.on_event += (self._happened,)

    def beside(self) -> str:
        """Return the words for the file of events, if there is one."""
        return "" if self._events is None else f", and what else happened: {events_path(self.path)}"

    def close(self) -> None:
        """Write what is left, of requests that have not ended with the length that they would have."""
        while self._rows:
            self._write(self._rows.popleft())
        self._file.close()
        if self._events is not None:
            self._events.close()

    def _ended(self, ticket: Ticket) -> None:
        wrote = False
        while self._rows and self._rows[0].status:
            self._write(self._rows.popleft())
            wrote = True
        if wrote:
            self._file.flush()

    def _write(self, ticket: Ticket) -> None:
        simulation, request = self._cluster.simulation, ticket.request
        adapter = request.adapter
        row: list[Any] = [
            repr(simulation.arrival_s(request)),
            "" if adapter is None else adapter.name,
            "" if adapter is None else adapter.rank,
            request.prompt_tokens,
            simulation.output_tokens(request),
            request.max_output_tokens,
        ]
        if self._hashes:
            row.append(" ".join(map(str, request.block_hashes)))
        self._csv.writerow(row)
        self.written += 1

    def _happened(self, what: str, at_s: float, particulars: dict[str, Any]) -> None:
        if self._events is None:
            self._events = events_path(self.path).open("w", encoding="utf-8")
        self._events.write(json.dumps({"what": what, "time_s": at_s, **particulars}) + "\n")
        self._events.flush()
