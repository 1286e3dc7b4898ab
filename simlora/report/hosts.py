"""The sections of report.html on hosts: what each held and fetched, how long it was down, and what plans changed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from simlora.report import time_charts
from simlora.report.format import ABSENT, clock, count, counted, digits, size
from simlora.report.markup import EMPTY, Html, join, tag
from simlora.report.parts import chart, folded, more, section, table
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_HOSTS = 32
TOP_PLANS = 20
TOP_FAILURES = 20


def outages(summary: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return each time that a host was down: its name, from when and until when, inf for good."""
    found = (summary.get("failures") or {}).get("each") or []
    return [
        (f"host {one['host']}", one["time_s"], inf if one["until_s"] is None else one["until_s"])
        for one in found
    ]


def hosts(results: RunResults) -> Html:
    """Return a row a host; nothing where all hold everything, stay up and are asked for the same all the time."""
    summary = results.summary
    adapters, failures = summary.get("adapters") or {}, summary.get("failures")
    distributed = "host_remote_loads" in adapters
    if not (distributed or failures or summary.get("placement")) or not adapters.get("host_adapters"):
        return EMPTY
    columns = [("most adapters", count, adapters["host_adapters"])]
    columns += [("most held", size, adapters["host_bytes"])]
    if distributed:
        columns += [
            ("at the end", count, adapters["host_adapters_at_end"]),
            ("held at the end", size, adapters["host_bytes_at_end"]),
            ("from other hosts", count, adapters["host_remote_loads"]),
            ("from storage", count, adapters["host_storage_loads"]),
        ]
    if failures:
        down_s = _down_s(len(adapters["host_adapters"]), summary)
        columns += [("down for", clock, down_s)]
    body = (
        [f"host {host}", *(words(values[host]) for _, words, values in columns)]
        for host in range(min(len(adapters["host_adapters"]), TOP_HOSTS))
    )
    rest = len(adapters["host_adapters"]) - TOP_HOSTS
    return section(
        "Hosts",
        "Adapters in the memory of each host, and loads of those that it did not hold."
        if distributed
        else f"Every host holds {count(max(adapters['host_adapters']))} adapters in its memory.",
        table(["", *(title for title, _, _ in columns)], body),
        more(rest, "summary.json"),
        _failures(failures or {}),
    )


def _down_s(hosts: int, summary: Mapping[str, Any]) -> list[float]:
    """Return how long each host was down."""
    down_s = [0.0] * hosts
    for one, (_, from_s, until_s) in zip(summary["failures"]["each"], outages(summary), strict=True):
        down_s[one["host"]] += min(until_s, summary["makespan_s"]) - from_s
    return down_s


def _failures(failures: Mapping[str, Any]) -> Html:
    """Return what each failure cost; nothing where there was none."""
    found = failures.get("each") or []
    if not found:
        return EMPTY
    titles = [
        "host",
        "failed at",
        "back at",
        "requests there",
        "begun anew",
        "tokens recomputed",
        "adapters that no other held",
    ]
    body = (
        [
            f"host {one['host']}",
            clock(one["time_s"]),
            ABSENT if one["until_s"] is None else clock(one["until_s"]),
            *(count(one[name]) for name in ("requests", "restarted", "recomputed_tokens", "lost_adapters")),
        ]
        for one in found[:TOP_FAILURES]
    )
    rest = len(found) - TOP_FAILURES
    return join(
        [
            tag("h3", "Failures"),
            tag(
                "p",
                "Requests go on at other hosts with the tokens that they have; the KV of those that had begun is "
                "computed anew.",
                class_="note",
            ),
            table(titles, body),
            more(rest, "summary.json"),
        ]
    )


def slowness(summary: Mapping[str, Any]) -> Html:
    """Return when replicas straggled and links were slow; nothing where they never were."""
    known = summary.get("slowness") or {}
    found = [(f"replica {one['replica']}", "iterations", one) for one in known.get("stragglers") or []]
    found += [(f"host {one['host']}", "PCIe and network", one) for one in known.get("slow_links") or []]
    if not found:
        return EMPTY
    body = (
        [
            whose,
            what,
            f"{digits(one['factor'])} times",
            clock(one["at_s"]),
            ABSENT if one["until_s"] is None else clock(one["until_s"]),
        ]
        for whose, what, one in found[:TOP_FAILURES]
    )
    rest = len(found) - TOP_FAILURES
    return section(
        "What was slow",
        "No policy is told: a router sees only that the work does not get done.",
        table(["", "what", "took", "from", "until"], body, texts=2),
        more(rest, "summary.json"),
    )


def plans(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return what the placement changed by planning anew, and when; nothing where it did not plan."""
    planned, facts = results.placements, results.summary.get("placement") or {}
    if planned.empty or not facts:
        return EMPTY
    note = (
        f"{counted(facts['plans'], 'plan')}, of which {count(facts['changes'])} changed something: "
        f"{counted(facts['adapters_assigned'], 'time')} a host was given an adapter, "
        f"{counted(facts['adapters_given_up'], 'time')} one was taken from it."
    )
    changed = planned[planned["assigned"] + planned["given_up"] > 0]
    if changed.empty:
        return section("Plans", note)
    has_bytes = bool(planned["size_bytes"].any())
    specs["placements"] = time_charts.placements(changed, results.summary["makespan_s"])
    top = changed.nlargest(TOP_PLANS, ["size_bytes", "assigned"]).sort_values("time_s")
    body = (
        [clock(plan.time_s), count(plan.assigned), count(plan.given_up), size(plan.size_bytes)]
        for plan in top.itertuples()
    )
    title = "Adapters to be fetched (GB a plan)" if has_bytes else "Adapters newly assigned (a plan)"
    largest = "Plans" if len(top) == len(changed) else f"The {TOP_PLANS} largest plans"
    listed = table(["at", "newly assigned", "given up", "to be fetched"], body)
    return section(
        "Plans",
        note,
        tag("h3", title),
        chart("placements", "Adapters that each plan newly gave to hosts, over time"),
        folded(largest, listed),
    )
