"""The section of report.html on what was merged, and what moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from simlora.report import merging_charts, modes, vega
from simlora.report.curves import ALL
from simlora.report.format import (
    ABSENT,
    clock,
    count,
    counted,
    percent,
    seconds,
)
from simlora.report.markup import EMPTY, Html, join, tag
from simlora.report.parts import (
    TOP_REASONS,
    TOP_REPLICAS,
    chart,
    choice,
    colour_keys,
    folded,
    legend,
    more,
    section,
    table,
)
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_CREDITS = 8
STRETCHES = 300


def merging_and_moving(results: RunResults, specs: dict[str, Spec], page: dict[str, Any]) -> Html:
    """Return which adapter was merged when and why, and which requests moved; nothing where neither happened."""
    parts = [*_merging(results, specs, page), *_moves(results), *_vain(results.plans)]
    if not parts:
        return EMPTY
    return section("Merging and moving", _merged_in_words(results.summary), *parts)


def _merged_in_words(summary: Mapping[str, Any]) -> str:
    facts = summary.get("adapters") or {}
    if not facts.get("switches"):
        return ""
    return (
        f"An adapter was in the weights for {percent(facts.get('merged_share'))} of the time; "
        f"{counted(facts['switches'], 'switch', 'switches')} took {seconds(facts.get('switch_s'))}."
    )


def _merging(results: RunResults, specs: dict[str, Spec], page: dict[str, Any]) -> list[Html]:
    """Return the modes of the replicas that the timeline shows, and of one at a time thresholds and credits."""
    decisions, end_s = results.decisions, results.summary["makespan_s"]
    if decisions.empty:
        return []
    total = len(results.summary.get("replicas") or [])
    shown = _replicas_shown(decisions, page)
    spans = {key: modes.merged_spans(decisions, int(key), end_s, STRETCHES) for key in shown}
    times_s = np.linspace(0.0, end_s, STRETCHES + 1)
    limits = {key: modes.thresholds(decisions, int(key), times_s) for key in shown}
    credits = {key: modes.credits(decisions, int(key), times_s, TOP_CREDITS) for key in shown}
    colours = modes.colours(spans.values(), (name for found in credits.values() for name, _ in found))
    parts = [*_modes(spans, total, end_s, colours, specs)]
    # Of a replica that never decided there is nothing to choose.
    keys = [key for key in shown if limits[key] or credits[key]]
    if not keys:
        return parts
    parts.append(choice("thresholds credits", keys, total))
    columns = {key: {name: vega.known(level) for name, level in limits[key].items()} for key in keys}
    page["series"]["thresholds"] = vega.series(times_s, columns)
    specs["thresholds"] = merging_charts.thresholds(end_s)
    limits_keys = colour_keys(("bg-blue", "alpha: merge above"), ("bg-amber", "beta: take out below"))
    parts += [
        tag("h3", "Thresholds (requests of the adapter for one in order of arrival) ", *limits_keys),
        chart("thresholds", "Thresholds of merging over time"),
    ]
    if any(credits.values()):
        lines = {
            key: [merging_charts.credit_columns(*found, colours) for found in credits[key]] for key in keys
        }
        page["series"]["credits"] = vega.series(times_s, lines)
        specs["credits"] = merging_charts.credits(end_s, colours)
        drawn = dict.fromkeys(name for key in keys for name, _ in credits[key])
        parts += [
            tag("h3", "Credits, beyond the start ", *_adapter_keys(drawn, colours)),
            chart("credits", "Credits of adapters over time"),
        ]
    return parts


def _replicas_shown(decisions: pd.DataFrame, page: Mapping[str, Any]) -> list[str]:
    timeline = page["series"].get("timeline", {"levels": {}})
    keys = [key for key in timeline["levels"] if key != ALL]
    return keys or [str(replica) for replica in sorted(decisions["replica"].unique())[:TOP_REPLICAS]]


def _modes(
    spans: Mapping[str, pd.DataFrame],
    total: int,
    end_s: float,
    colours: Mapping[str, str],
    specs: dict[str, Spec],
) -> list[Html]:
    merged = dict.fromkeys(name for some in spans.values() for name in some["adapter"])
    if not merged:
        return [tag("p", "No adapter was merged.", class_="note")]
    specs["modes"] = merging_charts.modes(spans, end_s, colours)
    lanes = "" if len(spans) < 2 else ", a lane a replica" if len(spans) == total else _busiest(spans, total)
    return [
        tag(
            "h3",
            f"Merged adapter{lanes} ",
            *_adapter_keys(merged, colours),
            *colour_keys(("bg-faint", "none")),
        ),
        chart("modes", "Merged adapter over time"),
    ]


def _busiest(spans: Mapping[str, pd.DataFrame], total: int) -> str:
    return f", the {len(spans)} busiest of {total} replicas"


def _adapter_keys(names: Iterable[str], colours: Mapping[str, str]) -> list[Html]:
    """Return the colours of those adapters that have one, and that of the others if there are any."""
    names = set(names)
    own = [(name or "base model", colour) for name, colour in colours.items() if name in names]
    rest = [("other adapters", modes.OTHER)] if names - set(colours) else []
    return legend([*own, *rest])


def _moves(results: RunResults) -> list[Html]:
    """Return what moved and what it cost, a row a reason; nothing if nothing moved."""
    moves, facts = results.moves, results.summary.get("migration") or {}
    if moves.empty:
        return []
    why = moves.groupby("reason").agg(
        first_s=("decided_s", "min"),
        moves=("request_id", "size"),
        tokens=("recomputed_tokens", "sum"),
        loaded=("loaded", "sum"),
    )
    why = why.sort_values("moves", ascending=False, kind="stable").head(TOP_REASONS).sort_values("first_s")
    body = (
        [reason or ABSENT, clock(row.first_s), count(row.moves), count(row.tokens), count(row.loaded)]
        for reason, row in zip(why.index, why.itertuples(), strict=True)
    )
    planned = facts.get("planned_moves", len(moves))
    stayed = (
        f"; {count(planned)} were planned, but requests that ended first stayed"
        if planned > len(moves)
        else ""
    )
    requests = counted(moves["request_id"].nunique(), "request")
    return [
        tag("h3", "Moves"),
        tag("p", f"{counted(len(moves), 'move')} of {requests}{stayed}.", class_="note"),
        table(["reason", "first at", "moves", "tokens recomputed", "adapters loaded"], body),
        more(moves["reason"].nunique() - TOP_REASONS, "moves.parquet"),
    ]


def _vain(plans: pd.DataFrame) -> list[Html]:
    """Return the plans that changed nothing, and why."""
    vain = plans[~plans["solved"] | (plans["moves"] == 0)]
    if vain.empty:
        return []
    why = vain.groupby(["reason", "solved"]).agg(first_s=("time_s", "min"), plans=("reason", "size"))
    body = (
        [reason, "nothing to move" if solved else "not solved", clock(first_s), count(times)]
        for (reason, solved), first_s, times in why.sort_values("first_s").head(TOP_REASONS).itertuples()
    )
    titles = ["reason", "outcome", "first at", "plans"]
    head = f"{counted(len(vain), 'plan')} of {count(len(plans))} moved nothing"
    listed = table(titles, body, texts=2)
    return [folded(head, join([listed, more(len(why) - TOP_REASONS, "plans.parquet")]))]
