"""The section of report.html on replicas over time: batch, queue, HBM, and what became of cached KV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.report import time_charts
from simlora.report.curves import timelines
from simlora.report.format import KV_NAMES, is_number, percent
from simlora.report.hosts import outages
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import (
    TOP_REPLICAS,
    chart,
    choice,
    colour_keys,
    facts_table,
    folded,
    label,
    more,
    quantity,
    section,
)
from simlora.report.results import RunResults
from simlora.report.vega import BLUE, TEAL, Spec

_CACHE_KEYS = [
    (colour, KV_NAMES[name])
    for colour, name in (("bg-blue", "running"), ("bg-teal", "history"), ("bg-pale", "invalid_kv_tokens"))
]
_REGION_KEYS = colour_keys(
    ("bg-amber", "held"), ("bg-red", "free, in pieces"), ("bg-faint", "free, the longest run")
)


def replicas(results: RunResults, specs: dict[str, Spec], page: dict[str, Any]) -> Html:
    """Return batch, queue and HBM over time, for all replicas together and for the busiest ones."""
    times_s, levels = timelines(results.timeline)
    if not levels:
        return EMPTY
    page["series"]["timeline"] = time_charts.timeline_data(times_s, levels)
    down = outages(results.summary)
    running, waiting = (
        time_charts.timeline(level, times_s, colour)
        for level, colour in (("running", BLUE), ("waiting", TEAL))
    )
    specs["timeline-running"] = time_charts.with_bands(running, times_s, down)
    specs["timeline-waiting"] = time_charts.with_bands(waiting, times_s, down)
    cache = bool(results.timeline[["idle_kv_tokens", "host_kv_tokens"]].to_numpy().any())
    specs["timeline-hbm"] = time_charts.with_bands(time_charts.hbm(times_s, cache), times_s, down)
    total = int(results.timeline["replica"].nunique())
    kv = _CACHE_KEYS if cache else [("bg-blue", "KV")]
    keys = colour_keys(*kv, ("bg-amber", "adapters"), ("dash", "capacity"))
    own = EMPTY
    if results.timeline["region_capacity_tokens"].any():
        specs["timeline-region"] = time_charts.region(times_s)
        own = join(
            [
                tag("h3", "Adapters' own memory (token slots) ", *_REGION_KEYS),
                chart("timeline-region", "Adapters' own memory and its fragmentation over time"),
            ]
        )
    return section(
        "Replicas over time",
        f"Mean over each of {len(times_s)} equal stretches of time."
        + (" Red bands: a host is down." if down else ""),
        choice("timeline", list(levels), total),
        tag("h3", "Running batch (requests)"),
        chart("timeline-running", "Running batch over time"),
        tag("h3", "Queue (requests waiting)"),
        chart("timeline-waiting", "Queue length over time"),
        tag("h3", "HBM pool (token slots) ", *keys),
        chart("timeline-hbm", "KV and adapters in the HBM pool over time"),
        own,
        _kv_facts(results.summary.get("kv") or {}),
        _replica_table(results.summary.get("replicas") or []),
    )


def _kv_facts(facts: Mapping[str, Any]) -> Html:
    """Return what became of cached KV in a line, and all that is known of it below."""
    if not is_number(facts.get("hit_rate")):
        return EMPTY
    invalid = facts.get("invalid_share")
    words = f"{percent(facts['hit_rate'])} of prompt tokens were cached."
    if is_number(facts.get("idle_share")):
        words += f" History KV, which no running request holds, took {percent(facts['idle_share'])} of HBM on average."
    if is_number(invalid):
        words += f" Of that, {percent(invalid)} was of no use: its adapter was not there."
    return join([tag("h3", "Cached KV"), tag("p", words, class_="note"), facts_table(facts)])


def _replica_table(found: list[Mapping[str, Any]]) -> Html:
    """Return whatever plain numbers the summary has of each replica."""
    names = dict.fromkeys(
        name for one in found for name, value in one.items() if value and not isinstance(value, dict | list)
    )
    if not names:
        return EMPTY
    body = ([quantity(name, one.get(name)) for name in names] for one in found[:TOP_REPLICAS])
    listed = rows([label(name) for name in names], body)
    rest = more(len(found) - TOP_REPLICAS, "summary.json")
    return folded("Figures per replica", join([listed, rest]))
