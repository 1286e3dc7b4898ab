"""The sections of report.html on what came out: headline, big numbers, SLO, times, and which requests were lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simlora.metrics.saturation import BELOW, NEAR, PAST, UNKNOWN
from simlora.metrics.slo import SloTargets, attainment_curve, is_finished
from simlora.metrics.summary import STATUSES, TIMES
from simlora.report import charts
from simlora.report.curves import losses
from simlora.report.format import (
    ABSENT,
    METRIC_NAMES,
    clock,
    count,
    headline,
    percent,
    rate,
    seconds,
    targets_in_words,
    window_in_words,
    workload_in_words,
)
from simlora.report.markup import EMPTY, Html, rows, tag
from simlora.report.parts import TOP_REASONS, chart, section, table
from simlora.report.results import RunResults
from simlora.report.terminal import STATISTICS
from simlora.report.vega import Spec

_LOAD_COLOURS = {BELOW: "good", NEAR: "warn", PAST: "bad"}


def header(summary: Mapping[str, Any]) -> Html:
    """Return the headline, and the banner of a run that was stopped."""
    system, place = headline(dict(summary))
    window = summary.get("window")
    banner = tag(
        "p",
        tag("strong", "Incomplete run. "),
        "It was stopped before its end: everything below is what had happened until then.",
        class_="banner",
        role="alert",
    )
    return tag(
        "header",
        banner if summary.get("complete") is False else EMPTY,
        tag("p", "simlora · simulated run", class_="eyebrow"),
        tag("h1", system, " ", tag("small", place)),
        tag("p", workload_in_words(dict(summary)), class_="lede"),
        tag("p", f"Counted are {window_in_words(window)}; all are simulated.", class_="note")
        if window
        else EMPTY,
    )


def tiles(summary: Mapping[str, Any]) -> Html:
    """Return the big numbers."""
    slo, load = summary["slo"], summary.get("load") or {"label": UNKNOWN}
    throughput, tokens = rate(summary["throughput_rps"], "req"), rate(summary["throughput_tps"], "tok")
    drained = f"queue empty {seconds(load.get('drain_s'))} after the last arrival"
    unknown = load["label"] not in _LOAD_COLOURS
    return tag(
        "div",
        _tile("SLO attainment", percent(slo["attainment"]), targets_in_words(slo["targets"])),
        _tile("Goodput", rate(slo["goodput_rps"], "req"), f"of {throughput} finished"),
        _median(summary, "ttft_s"),
        _tile(
            "Load, against saturation",
            load["label"],
            "the run is too short to tell" if unknown else drained,
            _LOAD_COLOURS.get(load["label"]),
        ),
        _tile("Throughput", tokens, f"output tokens; makespan {clock(summary['makespan_s'])}"),
        _median(summary, "tpot_s"),
        _median(summary, "latency_s"),
        _finished(summary["requests"]),
        class_="tiles",
    )


def _median(summary: Mapping[str, Any], metric: str) -> Html:
    found = summary[metric]
    return _tile(
        f"{METRIC_NAMES[metric]}, median", seconds(found["p50"]), f"99th percentile {seconds(found['p99'])}"
    )


def _finished(requests: Mapping[str, Any]) -> Html:
    lost = [f"{count(requests[n])} {n}" for n in STATUSES if n != "finished" and requests.get(n)]
    more = "; ".join([f"of {count(requests['submitted'])} submitted", *([", ".join(lost)] if lost else [])])
    return _tile("Requests finished", count(requests["finished"]), more)


def _tile(name: str, value: str, more: str, colour: str | None = None) -> Html:
    parts = (
        tag("div", text, class_=kind) for kind, text in (("name", name), ("value", value), ("more", more))
    )
    return tag("div", *parts, class_=f"tile {colour or ''}".strip())


def slo(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return the attainment that each limit would give: one curve per target set, TTFT always among them."""
    note = (
        "Share of all submitted requests that would meet each target; aborted, rejected and unfinished ones "
    )
    if results.rows.empty:
        return section("SLO attainment", "No request was submitted.")
    stated = results.summary["slo"]["targets"]
    curves = [_attainment(results, metric, specs) for metric in dict.fromkeys(["ttft_s", *stated])]
    others = " The other targets stay as they were set." if len(stated) > 1 else ""
    return section("SLO attainment", f"{note}count as missed.{others}", *curves)


def _attainment(results: RunResults, metric: str, specs: dict[str, Spec]) -> Html:
    """Return one attainment curve.

    Its axis ends at the 99th percentile, but not below 2 nor above 10 times the target.
    """
    targets = SloTargets(**results.summary["slo"]["targets"])
    target_s = targets.set.get(metric)
    limits_s, shares = attainment_curve(results.rows, metric, targets)
    end_s = float(np.quantile(limits_s, 0.99))
    if target_s is not None:
        end_s = min(max(end_s, 2 * target_s), 10 * target_s)
    near = limits_s <= end_s
    limits_s, shares = np.append(limits_s[near], end_s), np.append(shares[near], shares[near][-1])
    specs[f"attainment-{metric}"] = charts.attainment(metric, limits_s, shares, target_s)
    return chart(f"attainment-{metric}", f"SLO attainment against the {METRIC_NAMES[metric]} target")


def latency(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return three distributions over finished requests, and the percentiles of everything."""
    shown = []
    done = results.rows[is_finished(results.rows)]
    for metric in TIMES:
        values = done[metric].to_numpy(dtype=np.float64)
        if np.isfinite(values).any():
            specs[f"cdf-{metric}"] = charts.latency_cdf(values)
            body = chart(f"cdf-{metric}", f"{METRIC_NAMES[metric]} distribution")
        else:
            body = tag("p", "No request has one.", class_="note")
        shown.append(tag("div", tag("h3", METRIC_NAMES[metric]), body))
    percentiles = (
        [name, *(seconds(results.summary[metric][statistic]) for statistic in STATISTICS)]
        for metric, name in METRIC_NAMES.items()
        if metric in TIMES or any(results.summary[metric][statistic] for statistic in STATISTICS)
    )
    return section(
        "How long it took",
        "Share of finished requests at or below each time, drawn up to the 99.5th percentile. "
        "TBT is over all tokens, everything else over finished requests.",
        tag("div", *shown, class_="three"),
        rows(["", *STATISTICS], percentiles),
    )


def lengths(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return the distributions of prompts and answers; nothing without requests."""
    if results.rows.empty:
        return EMPTY
    shown, body = [], []
    for name, title in (("prompt_tokens", "Prompts"), ("output_tokens", "Answers")):
        values = results.rows[name].to_numpy(dtype=np.float64)
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        specs[f"lengths-{name}"] = charts.length_cdf(values)
        drawn = chart(f"lengths-{name}", f"Distribution of {name.replace('_', ' ')}")
        shown.append(tag("div", tag("h3", title), drawn))
        middle = (count(round(float(value))) for value in np.percentile(values, (50, 95, 99)))
        body.append([title, count(round(float(values.mean()))), *middle, count(int(values.max()))])
    return section(
        "Lengths",
        "Share of requests at or below each number of tokens, drawn up to the 99.5th percentile.",
        tag("div", *shown, class_="two"),
        rows(["tokens", "mean", "p50", "p95", "p99", "most"], body),
    )


def lost(results: RunResults) -> Html:
    """Return why requests did not finish; nothing when all did."""
    found = losses(results.rows)
    if found.empty:
        return EMPTY
    body = (
        [row.status, row.reason or ABSENT, count(row.requests)]
        for row in found.head(TOP_REASONS).itertuples()
    )
    return section("Requests that did not finish", "", table(["status", "reason", "requests"], body, texts=2))
