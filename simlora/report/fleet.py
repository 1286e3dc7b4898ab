"""The sections of report.html on what tenants got, what it cost, and how many replicas there were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.report import time_charts
from simlora.report.format import (
    ABSENT,
    JOULES_A_KWH,
    clock,
    count,
    counted,
    digits,
    percent,
    seconds,
    targets_in_words,
)
from simlora.report.markup import EMPTY, Html, rows, tag
from simlora.report.parts import chart, folded, more, section, table
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_CHANGES = 40


def tenants(summary: Mapping[str, Any]) -> Html:
    """Return a row a class of tenants; nothing where all were promised the same."""
    classes = summary["slo"].get("classes") or {}
    if not classes:
        return EMPTY
    body = (
        [
            name,
            targets_in_words(own["targets"]),
            percent(own["attainment"]),
            count(own["requests"]),
            count(own["adapters"]),
            seconds(own["ttft_s"]["p50"]),
            seconds(own["ttft_s"]["p99"]),
            seconds(own["latency_s"]["p50"]),
        ]
        for name, own in classes.items()
    )
    titles = [
        "class",
        "promised",
        "attainment",
        "requests",
        "adapters",
        "TTFT, median",
        "TTFT, p99",
        "latency, median",
    ]
    note = (
        "What each was promised, and got. The curve above is what one target for all would give; attainment "
        "counts each request against what its own tenant was promised."
    )
    return section("Tenants", note, table(titles, body, texts=2))


def cost(summary: Mapping[str, Any]) -> Html:
    """Return what each kind of GPU cost, and what a token did; nothing for a run that does not say."""
    known = summary.get("cost") or {}
    if not known:
        return EMPTY
    body = [
        [
            one["gpu"] or ABSENT,
            digits(one["gpus"]),
            digits(one["gpu_hours"]),
            _usd(one["usd"]),
            _kwh(one["energy_j"]),
        ]
        for one in known["each"]
    ]
    if len(body) > 1:
        body.append(["together", "", digits(known["gpu_hours"]), _usd(known["usd"]), _kwh(known["energy_j"])])
    tokens, output = known["usd_per_million_tokens"], known["usd_per_million_output_tokens"]
    joules = known["energy_j_per_output_token"]
    each = [
        f"{_usd(tokens)} a million tokens, prompts included" if tokens is not None else "",
        f"{_usd(output)} a million output tokens" if output is not None else "",
        f"at most {digits(joules)} J an output token" if joules is not None else "",
    ]
    note = (
        "Rent is paid while a replica is on, whether it has work or not. Energy takes a GPU at its limit during "
        "iterations, which decoding does not reach: an upper bound."
    )
    return section(
        "Cost",
        note,
        table(["GPU", "GPUs", "GPU hours", "rent", "energy, at most"], body),
        tag("p", "; ".join(filter(None, each)), class_="note") if any(each) else EMPTY,
    )


def scaling(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return how many replicas there were over time; nothing without an autoscaler."""
    facts, changes = results.summary.get("scaling"), results.scaling
    if not facts or changes.empty:
        return EMPTY
    specs["scaling"] = time_charts.scaling(changes, results.summary["makespan_s"])
    note = (
        f"{facts['least_on']} to {facts['most_on']} replicas, {digits(facts['mean_on'])} on average; "
        f"{counted(facts['boots'], 'boot')}, each of {seconds(facts['boot_s'])} before adapters are loaded. "
        "Filled: those that take requests; the line: with those that boot."
    )
    listed = rows(
        ["at", "on", "serving", "booting", "draining", "why"],
        (
            [
                clock(one.time_s),
                *(count(value) for value in (one.on, one.serving, one.booting, one.draining)),
                one.reason,
            ]
            for one in changes.head(TOP_CHANGES).itertuples()
        ),
    )
    return section(
        "Replicas that come and go",
        note,
        chart("scaling", "Replicas that take requests, and those that boot, over time"),
        folded(
            "Changes",
            tag("div", listed, more(len(changes) - TOP_CHANGES, "scaling.parquet"), class_="wrap"),
        ),
    )


def _usd(amount: float | None) -> str:
    return ABSENT if amount is None else f"{digits(amount)} USD"


def _kwh(joules: float | None) -> str:
    return ABSENT if joules is None else f"{digits(joules / JOULES_A_KWH)} kWh"
