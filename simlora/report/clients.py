"""The section of report.html on clients that react: what became of the workload's requests over all attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.report.format import METRIC_NAMES, count, counted, percent, seconds
from simlora.report.markup import EMPTY, Html
from simlora.report.parts import section, table
from simlora.report.results import RunResults
from simlora.report.terminal import STATISTICS

TIMES = ("ttft_s", "latency_s")


def clients(results: RunResults) -> Html:
    """Return what clients had for their calls, and after how many attempts; nothing where each call is one request."""
    facts = results.summary.get("clients")
    if not facts:
        return EMPTY
    note = (
        f"A call is a request of the workload, over all attempts to have it answered; its times are from the first one "
        f"on. {percent(facts['attainment'])} of the calls were answered within the SLO. "
        f"{_sent(facts)}. All other sections are of the single requests."
    )
    times = ([METRIC_NAMES[name], *(seconds(facts[name][each]) for each in STATISTICS)] for name in TIMES)
    return section("Clients", note, _attempts(results), table(["", *STATISTICS], times))


def _sent(facts: Mapping[str, Any]) -> str:
    """Return how many requests were sent for the calls, and how many of them clients abandoned."""
    sent = f"Clients sent {counted(facts['attempts'], 'request')} for {counted(facts['calls'], 'call')}"
    return (
        f"{sent}, and abandoned {count(facts['abandoned'])} of the requests" if facts["abandoned"] else sent
    )


def _attempts(results: RunResults) -> Html:
    """Return how many calls ended with each number of attempts, and how."""
    calls = results.calls
    if calls.empty:
        return EMPTY
    found = calls.groupby(["attempts", "status"]).size().unstack(fill_value=0)
    body = (
        [count(attempts), *map(count, numbers)]
        for attempts, numbers in zip(found.index.tolist(), found.to_numpy().tolist(), strict=True)
    )
    return table(["attempts", *map(str, found.columns)], body, texts=0)
