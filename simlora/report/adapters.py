"""The section of report.html on adapters: who was asked for, and what waiting for weights cost."""

from __future__ import annotations

import numpy as np

from simlora.metrics.slo import column, is_finished
from simlora.report import charts
from simlora.report.curves import by_adapter
from simlora.report.format import count, percent, seconds
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import chart, facts_table, section
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_ADAPTERS = 30


def adapters(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return who was asked for, and what waiting for weights cost."""
    table = by_adapter(results.rows)
    if table.empty:
        return EMPTY
    specs["popularity"] = charts.popularity(table)
    facts = results.summary.get("adapters") or {}
    kv = bool(table["kv_cold_start_s"].any())
    titles = [
        "adapter",
        "rank",
        "requests",
        "TTFT",
        "cold start",
        *(["KV cold start"] if kv else []),
        "blocked",
    ]
    body = (
        [
            row.adapter or "(base model)",
            count(row.rank),
            count(row.requests),
            seconds(row.ttft_s),
            seconds(row.cold_start_s),
            *([seconds(row.kv_cold_start_s)] if kv else []),
            seconds(row.blocked_s),
        ]
        for row in table.head(TOP_ADAPTERS).itertuples()
    )
    most = f", the {TOP_ADAPTERS} most requested in the table" if len(table) > TOP_ADAPTERS else ""
    return section(
        "Adapters",
        f"{count(len(table))} in this run{most}. Times are means over finished requests: cold start is the wait for "
        "their own adapter before they began"
        + (", KV cold start that for KV on the host besides" if kv else "")
        + ", blocked what they stood still while those of others were loaded.",
        tag(
            "div",
            tag(
                "div",
                tag("h3", "Popularity"),
                chart("popularity", "Requests per adapter"),
                facts_table(facts),
            ),
            tag(
                "div",
                rows(titles, body),
                class_="tall",
            ),
            class_="two",
        ),
        _cold_starts(results, specs),
    )


def _cold_starts(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return how much of their time requests lost to loads; nothing where they lost none."""
    done = results.rows[is_finished(results.rows)]
    shares = column(done, "cold_start_share")
    if not np.nansum(shares):
        return EMPTY
    own, kv, others = (
        results.summary[metric]["mean"] for metric in ("cold_start_s", "kv_cold_start_s", "blocked_s")
    )
    parts = f"{seconds(own)} for its own adapter" + (f", {seconds(kv)} for its KV on the host" if kv else "")
    mean = results.summary["cold_start_share"]["mean"]
    specs["cold-starts"] = charts.share_cdf(shares, "of a request's latency")
    return join(
        [
            tag("h3", "Cold starts"),
            tag(
                "p",
                f"On average {percent(mean)} of a request's latency: {parts} and {seconds(others)} because of others.",
                class_="note",
            ),
            chart("cold-starts", "Share of requests at or below each share of latency lost to loads"),
        ]
    )
