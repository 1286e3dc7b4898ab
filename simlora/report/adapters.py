"""The section of report.html on adapters: which were asked for, and what waiting for weights cost."""

from __future__ import annotations

import numpy as np

from simlora.metrics.slo import SloTargets, column, is_finished
from simlora.report import charts
from simlora.report.curves import by_adapter
from simlora.report.format import count, percent, seconds
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import chart, facts_table, section, without_zeros
from simlora.report.rates import by_rank
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_ADAPTERS = 30
KEPT = ("count", "loads", "load_bytes", "hit_rate")
"""Facts that say something where they are 0, too; others are of what a system has not got."""


def adapters(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return which were asked for, and what waiting for weights cost."""
    table = by_adapter(results.rows)
    if table.empty:
        return EMPTY
    specs["popularity"] = charts.popularity(table)
    facts = results.summary.get("adapters") or {}
    cold, kv, blocked = (bool(table[name].any()) for name in ("cold_start_s", "kv_cold_start_s", "blocked_s"))
    titles = [
        "adapter",
        "rank",
        "requests",
        "TTFT",
        "TTFT p95",
        "latency p95",
        *(["cold start"] if cold else []),
        *(["KV cold start"] if kv else []),
        *(["blocked"] if blocked else []),
    ]
    body = (
        [
            row.adapter or "(base model)",
            count(row.rank),
            count(row.requests),
            seconds(row.ttft_s),
            seconds(row.ttft_p95_s),
            seconds(row.latency_p95_s),
            *([seconds(row.cold_start_s)] if cold else []),
            *([seconds(row.kv_cold_start_s)] if kv else []),
            *([seconds(row.blocked_s)] if blocked else []),
        ]
        for row in table.head(TOP_ADAPTERS).itertuples()
    )
    most = f", the {TOP_ADAPTERS} most requested in the table" if len(table) > TOP_ADAPTERS else ""
    return section(
        "Adapters",
        f"{count(len(table))} in this run{most}. Times are means and 95th percentiles over finished requests"
        + (": cold start is the wait for their own adapter before they began" if cold else "")
        + (", KV cold start that for KV on the host besides" if kv else "")
        + (", blocked what they stood still while those of others were loaded" if blocked else "")
        + ".",
        tag(
            "div",
            tag("div", tag("h3", "Popularity"), chart("popularity", "Requests per adapter")),
            tag("div", tag("h3", "Loads"), facts_table(without_zeros(facts, KEPT))),
            class_="two",
        ),
        tag("div", rows(titles, body), class_="tall"),
        _ranks(results),
        _cold_starts(results, specs),
    )


def _ranks(results: RunResults) -> Html:
    """Return the figures of each rank; nothing where there is one."""
    table = by_rank(results.rows, SloTargets(**results.summary["slo"]["targets"]))
    if len(table) < 2:
        return EMPTY
    titles = ["rank", "adapters", "requests", "TTFT", "TTFT p95", "TPOT p95", "latency p95", "within the SLO"]
    body = (
        [
            count(row.rank) if row.rank else "(base model)",
            count(row.adapters),
            count(row.requests),
            *map(seconds, (row.ttft_s, row.ttft_p95_s, row.tpot_p95_s, row.latency_p95_s)),
            percent(row.attainment),
        ]
        for row in table.itertuples()
    )
    return join([tag("h3", "By rank"), rows(titles, body)])


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
