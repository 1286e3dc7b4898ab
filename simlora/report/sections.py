"""The parts of report.html, in the order in which a reader asks: did it hold, how long, where, why, how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from simlora.metrics.slo import SloTargets, attainment_curve, column
from simlora.report import charts
from simlora.report.charts import Spec
from simlora.report.curves import by_adapter, losses, timelines
from simlora.report.format import (
    ABSENT,
    METRIC_NAMES,
    clock,
    count,
    digits,
    headline,
    is_number,
    percent,
    rate,
    seconds,
    size,
    targets_in_words,
    window_in_words,
    workload_in_words,
)
from simlora.report.hosts import outages
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import TOP_REASONS, TOP_REPLICAS, chart, choice, colour_keys, folded, section
from simlora.report.results import RunResults
from simlora.report.table import STATISTICS

TOP_ADAPTERS = 30
_LOAD_COLOURS = {"below": "good", "near": "warn", "past": "bad"}


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
    slo, load = summary["slo"], summary.get("load") or {"label": "unknown"}
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
            "too few requests to tell" if unknown else drained,
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
    lost = [f"{count(requests[n])} {n}" for n in ("aborted", "rejected", "unfinished") if requests.get(n)]
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
    if results.requests.empty:
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
    limits_s, shares = attainment_curve(results.requests, metric, targets)
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
    done = results.requests[results.requests["status"] == "finished"]
    for metric in ("ttft_s", "tpot_s", "latency_s"):
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
    )
    return section(
        "How long it took",
        "Share of finished requests at or below each time, drawn up to the 99.5th percentile. "
        "TBT is over all tokens, everything else over finished requests.",
        tag("div", *shown, class_="three"),
        rows(["", *STATISTICS], percentiles),
    )


def replicas(results: RunResults, specs: dict[str, Spec], page: dict[str, Any]) -> Html:
    """Return batch, queue and HBM over time, for all replicas together and for the busiest ones."""
    times_s, levels = timelines(results.timeline)
    if not levels:
        return EMPTY
    page["series"]["timeline"] = charts.timeline_data(times_s, levels)
    down = outages(results.summary)
    running, waiting = (
        charts.timeline(level, times_s, colour)
        for level, colour in (("running", charts.BLUE), ("waiting", charts.TEAL))
    )
    specs["timeline-running"] = charts.with_bands(running, times_s, down)
    specs["timeline-waiting"] = charts.with_bands(waiting, times_s, down)
    cache = bool(results.timeline[["idle_kv_tokens", "host_kv_tokens"]].to_numpy().any())
    specs["timeline-hbm"] = charts.with_bands(charts.hbm(times_s, cache), times_s, down)
    total = int(results.timeline["replica"].nunique())
    kv = _CACHE_KEYS if cache else (("bg-blue", "KV"),)
    keys = colour_keys(*kv, ("bg-amber", "adapters"), ("dash", "capacity"))
    own = EMPTY
    if results.timeline["region_capacity_tokens"].any():
        specs["timeline-region"] = charts.region(times_s)
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


_CACHE_KEYS = (
    ("bg-blue", "KV of running requests"),
    ("bg-teal", "history KV"),
    ("bg-pale", "history KV without its adapter"),
)
_REGION_KEYS = colour_keys(
    ("bg-amber", "held"), ("bg-red", "free, in pieces"), ("bg-faint", "free, the longest run")
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
    return join([tag("h3", "Cached KV"), tag("p", words, class_="note"), _facts(facts)])


def _replica_table(found: list[Mapping[str, Any]]) -> Html:
    """Return whatever plain numbers the summary has of each replica."""
    names = dict.fromkeys(
        name for one in found for name, value in one.items() if not isinstance(value, dict | list)
    )
    if not names:
        return EMPTY
    body = ([quantity(name, one.get(name)) for name in names] for one in found[:TOP_REPLICAS])
    rest = len(found) - TOP_REPLICAS
    more = tag("p", f"and {count(rest)} more in summary.json", class_="note") if rest > 0 else EMPTY
    return folded("Figures per replica", join([rows([_label(n) for n in names], body), more]))


def adapters(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return who was asked for, and what waiting for weights cost."""
    table = by_adapter(results.requests)
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
            tag("div", tag("h3", "Popularity"), chart("popularity", "Requests per adapter"), _facts(facts)),
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
    done = results.requests[results.requests["status"] == "finished"]
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


def _facts(facts: Mapping[str, Any]) -> Html:
    plain = [(name, value) for name, value in facts.items() if not isinstance(value, dict | list)]
    return (
        rows(["", ""], ([_label(name), quantity(name, value)] for name, value in plain)) if plain else EMPTY
    )


def lost(results: RunResults) -> Html:
    """Return why requests did not finish; nothing when all did."""
    found = losses(results.requests)
    if found.empty:
        return EMPTY
    body = (
        [row.status, row.reason or ABSENT, count(row.requests)]
        for row in found.head(TOP_REASONS).itertuples()
    )
    table = rows(["status", "reason", "requests"], body, texts=2)
    return section("Requests that did not finish", "", tag("div", table, class_="wrap"))


def calibration(summary: Mapping[str, Any]) -> Html:
    """Return every coefficient with where it came from.

    A coefficient takes the provenance of the longest dotted prefix in `provenance.coefficients`, else that
    of the whole calibration.
    """
    known = summary.get("calibration") or {}
    provenance = known.get("provenance") or {}
    origins = [(*leaf, _origin(leaf[0], provenance)) for leaf in _leaves(known.get("coefficients") or {})]
    alone = all(origin.get("source") == provenance.get("source") for _, _, origin in origins)
    body = (
        [name, _kind(origin), *([] if alone else [origin.get("source", ABSENT)]), quantity(name, value)]
        for name, value, origin in origins
    )
    titles = ["coefficient", "kind", *([] if alone else ["source"])]
    about = [leaf for leaf in _leaves(provenance) if not leaf[0].startswith("coefficients.")]
    where = f"{known.get('model', ABSENT)} on {known.get('gpu', ABSENT)}, TP {known.get('tp', ABSENT)}"
    others = [kind["calibration"] for kind in (summary.get("run") or {}).get("others") or []]
    more = "".join(f"; {one['model']} on {one['gpu']}, TP {one['tp']}" for one in others)
    return section(
        "Calibration",
        f"The latency model{'s' if others else ''}: {where}{more}.",
        tag("p", _kind(provenance), " ", provenance.get("source", ABSENT)),
        _provenance(about),
        tag("div", rows([*titles, "value"], body, texts=len(titles)), class_="wrap"),
        join(folded(f"{one['model']} on {one['gpu']}", calibration({"calibration": one})) for one in others),
    )


def _provenance(about: list[tuple[str, Any]]) -> Html:
    lines = ([name, quantity(name, value)] for name, value in about)
    table = tag("div", rows(["provenance", ""], lines, texts=2), class_="wrap")
    return folded("Provenance and quality of the fit", table if about else EMPTY)


def _origin(name: str, provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    special = provenance.get("coefficients") or {}
    prefixes = [key for key in special if name == key or name.startswith(f"{key}.")]
    return dict(provenance) | (dict(special[max(prefixes, key=len)]) if prefixes else {})


def _kind(origin: Mapping[str, Any]) -> Html:
    kind = str(origin.get("kind", "unknown"))
    return tag("span", kind, class_=f"kind {kind}")


def _leaves(node: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the dotted name and value of everything in a nested mapping that is not a mapping itself."""
    if not isinstance(node, Mapping):
        yield prefix, ", ".join(map(str, node)) if isinstance(node, list) else node
        return
    for key, value in node.items():
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))


def origin(results: RunResults) -> Html:
    """Return how this run was made, and how to make it again."""
    summary = results.summary
    cost = {**(summary.get("simulation") or {}), **(summary.get("kv") or {})}
    versions = " · ".join(f"{name} {version}" for name, version in (summary.get("versions") or {}).items())
    return section(
        "How it was made",
        "",
        tag("pre", summary["command"], class_="command") if summary.get("command") else EMPTY,
        tag("p", f"seed {summary.get('seed', ABSENT)} · {versions}", class_="note"),
        folded("What was run", _facts(dict(_leaves(summary.get("run") or {})))),
        folded("Simulation and KV cache figures", _facts(cost)),
        folded("Full configuration", tag("pre", results.config) if results.config else EMPTY),
    )


def quantity(name: str, value: Any) -> str:
    """Return a value as its name says: `load_s` a time, `load_bytes` a size, `hit_rate` a share."""
    if not is_number(value):
        return ABSENT if value is None else str(value)
    if name.endswith("bytes_per_s"):
        return f"{size(value)}/s"
    if name.endswith("per_wall_s"):
        return f"{digits(value)} /s"
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("bytes"):
        return size(value)
    if name.endswith(("_rate", "_share", "utilisation")):
        return percent(value)
    return count(value) if isinstance(value, int) else digits(value)


def _label(name: str) -> str:
    """Return a key of the summary as words, without `_s`: the value says its unit."""
    return name.removesuffix("_s").replace("_", " ")
