"""A recorded run once more, offline: the same arrivals, and what else was asked for, at the same times."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Submitted
from simlora.engine.incidents import Failure, Incident, SlowLink, Straggler
from simlora.engine.scenario import Scenario
from simlora.workload.file import File, events_path
from simlora.workload.table import read_table

INCIDENTS = {each.__name__.lower(): each for each in (Failure, Straggler, SlowLink)}
FIRST, BETWEEN, LAST = 0, 1, 2
"""What happens at one time: an adapter comes, a request arrives, a client leaves or a fault begins or ends."""
Happening = tuple[float, int, Callable[[], None]]


class _Event(msgspec.Struct, tag_field="what", forbid_unknown_fields=True):
    """A line of the events beside a record."""

    time_s: float


class _Load(_Event, tag="load"):
    """An adapter came."""

    name: str
    rank: int


class _Leave(_Event, tag="leave"):
    """The client of a request left; requests count from 0, as their rows do."""

    request: Annotated[int, msgspec.Meta(ge=0)]


class _End(_Event, tag="end"):
    """A fault was ended before its time, at a host or replica."""

    kind: Literal["failure", "straggler", "slowlink"]
    of: int


class _Failure(_Event, tag="failure"):
    """A host failed."""

    host: int
    at_s: float
    until_s: float | None

    def incident(self, now_s: float) -> Incident:
        """Return the incident, which begins now."""
        return Failure(host=self.host, at_s=now_s, until_s=self.until_s)


class _Slow(_Event):
    at_s: float
    factor: float
    until_s: float | None


class _Straggler(_Slow, tag="straggler", kw_only=True):
    """A replica was slow."""

    replica: int

    def incident(self, now_s: float) -> Incident:
        """Return the incident, which begins now."""
        return Straggler(replica=self.replica, at_s=now_s, factor=self.factor, until_s=self.until_s)


class _SlowLink(_Slow, tag="slowlink", kw_only=True):
    """The links of a host were slow."""

    host: int

    def incident(self, now_s: float) -> Incident:
        """Return the incident, which begins now."""
        return SlowLink(host=self.host, at_s=now_s, factor=self.factor, until_s=self.until_s)


Event = _Load | _Leave | _End | _Failure | _Straggler | _SlowLink


def replay(scenario: Scenario, path: Path) -> DrivenSimulation:
    """Serve a recorded trace and its events; return the run, which is closed.

    `scenario` is composed anew as the one that was served live: policies keep a state. A trace without events may as
    well be simulated with `workload=file`. Raises InputError, naming the row or line, for a file that is no such
    record, or has adapters that the scenario does not have.
    """
    if len(read_table(str(path))):
        File(str(path), scenario.trace.hash_block_tokens).build(
            seed=0
        )  # so that it says what is wrong with a row
    run = _Run(scenario, path)
    for time_s, _, happen in sorted([*run.rows(), *run.events()], key=lambda each: each[:2]):
        run.driven.advance(max(time_s, run.driven.clock.now))
        happen()
    run.driven.close()
    return run.driven


class _Run:
    """The run, its requests so far in the order of their rows, and the numbers of its adapters by name."""

    def __init__(self, scenario: Scenario, path: Path) -> None:
        cluster = replace(scenario.cluster, faults_on_request=True)
        self.driven = DrivenSimulation(replace(scenario, cluster=cluster), _nothing)
        self._path, self._requests = path, list[Request]()
        self._numbers = {each.name: each.id for each in self.driven.adapters}

    def rows(self) -> Iterator[Happening]:
        """Yield when each request arrives, and what submits it."""
        with self._path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                yield float(row["arrival_s"]), BETWEEN, partial(self._submit, number, row)

    def _submit(self, number: int, row: dict[str, str]) -> None:
        name = row["adapter"]
        adapter = self._numbers.get(name) if name else BASE_MODEL
        if adapter is None:
            raise InputError(
                f"{self._path} row {number}: adapter {name!r} is not known then, must be one of the workload's, or "
                f"come before in {events_path(self._path).name}"
            )
        if name and int(row["rank"]) != (rank := self.driven.adapters[adapter].rank):
            raise InputError(
                f"{self._path} row {number}: adapter {name!r} has rank {row['rank']}, must have {rank}, as in this "
                "configuration"
            )
        hashes = tuple(map(int, row.get("block_hashes", "").split()))
        lengths = int(row["prompt_tokens"]), int(row["output_tokens"])
        most = int(row.get("max_output_tokens") or lengths[1])
        self._requests.append(self.driven.submit(Submitted(*lengths, adapter, most, None, hashes)))

    def events(self) -> Iterator[Happening]:
        """Yield when something else was asked for, and what does it. Raises InputError, naming the line."""
        path = events_path(self._path)
        if not path.exists():
            return
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                event = msgspec.json.decode(line, type=Event)
            except msgspec.DecodeError as error:
                raise InputError(
                    f"{path} line {number}: {error}; must be an event that simlora-serve recorded"
                ) from None
            order = FIRST if isinstance(event, _Load) else LAST
            yield event.time_s, order, partial(self._happen, f"{path} line {number}", event)

    def _happen(self, where: str, event: Event) -> None:
        try:
            self._do(event)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def _do(self, event: Event) -> None:
        driven = self.driven
        if isinstance(event, _Load):
            self._numbers[event.name] = driven.add_adapter(event.name, event.rank)
        elif isinstance(event, _Leave):
            if event.request >= len(self._requests):
                raise InputError(f"request {event.request} has not come, must have come before")
            driven.cancel(self._requests[event.request])
        elif isinstance(event, _End):
            driven.end(INCIDENTS[event.kind], event.of)
        else:
            driven.begin(event.incident(driven.clock.now))


def _nothing(request: Request, token: int, now_s: float) -> None:
    """Listen, so that every decode step has a boundary, as it has live."""
