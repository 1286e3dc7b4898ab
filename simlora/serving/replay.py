"""A recorded run once more, offline: the same arrivals, and what else was asked for, at the same times."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Submitted
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.scenario import Scenario
from simlora.workload.file import events_path

INCIDENTS = {each.__name__.lower(): each for each in (Failure, Straggler, SlowLink)}


def replay(scenario: Scenario, path: Path) -> DrivenSimulation:
    """Serve a recorded trace and its events; return the run, which is closed.

    `scenario` is the one that was served live. A trace without events may as well be simulated with `workload=file`.
    """
    cluster = replace(scenario.cluster, faults_on_request=True)
    driven = DrivenSimulation(replace(scenario, cluster=cluster), _nothing)
    requests: list[Request] = []
    happens = sorted(
        [*_rows(path, driven, requests), *_events(path, driven, requests)], key=lambda each: each[:2]
    )
    for time_s, _, happen in happens:
        driven.advance(max(time_s, driven.clock.now))
        happen()
    driven.close()
    return driven


def _rows(
    path: Path, driven: DrivenSimulation, requests: list[Request]
) -> Iterator[tuple[float, int, Callable[[], None]]]:
    """Yield when each request arrives, and what submits it; adapters are looked up then."""

    def submitting(row: dict[str, str]) -> Callable[[], None]:
        def submit() -> None:
            numbers = {each.name: each.id for each in driven.adapters}
            adapter = numbers[row["adapter"]] if row["adapter"] else BASE_MODEL
            hashes = tuple(map(int, row.get("block_hashes", "").split()))
            lengths = int(row["prompt_tokens"]), int(row["output_tokens"])
            submitted = Submitted(*lengths, adapter, int(row["max_output_tokens"]), None, hashes)
            requests.append(driven.submit(submitted))

        return submit

    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield float(row["arrival_s"]), 1, submitting(row)


def _events(
    path: Path, driven: DrivenSimulation, requests: list[Request]
) -> Iterator[tuple[float, int, Callable[[], None]]]:
    """Yield when something else was asked for, and what does it; a client leaves after its request has come."""

    def asking(what: str, event: dict[str, Any]) -> Callable[[], None]:
        def ask() -> None:
            if what == "load":
                driven.add_adapter(event["name"], event["rank"])
            elif what == "leave":
                driven.cancel(requests[event["request"]])
            else:
                driven.begin(INCIDENTS[what](**event))

        return ask

    events = events_path(path)
    if not events.exists():
        return
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        what, time_s = event.pop("what"), event.pop("time_s")
        yield time_s, 0 if what == "load" else 2, asking(what, event)


def _nothing(request: Request, token: int, now_s: float) -> None:
    """Listen, so that every decode step has a boundary, as it has live."""
