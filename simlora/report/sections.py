"""The parts of report.html, in the order in which a reader asks: did it hold, how long, where, why, how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from simlora.metrics.slo import SloTargets, attainment_curve, column
from simlora.report import charts, modes
from simlora.report.charts import Spec
from simlora.report.curves import ALL, by_adapter, losses, timelines
from simlora.report.format import (
    ABSENT,
    METRIC_NAMES,
    clock,
    count,
    counted,
    digits,
    headline,
    is_number,
    percent,
    rate,
    seconds,
    size,
    targets_in_words,
    workload_in_words,
)
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.results import RunResults
from simlora.report.table import STATISTICS

TOP_ADAPTERS = 30
TOP_REPLICAS = 16
TOP_REASONS = 20
TOP_CREDITS = 8
STRETCHES = 300
_LOAD_COLOURS = {"below": "good", "near": "warn", "past": "bad"}


def header(summary: Mapping[str, Any]) -> Html:
    """Return the headline, and the banner of a run that was stopped."""
    system, place = headline(dict(summary))
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
        return _section("SLO attainment", "No request was submitted.")
    stated = results.summary["slo"]["targets"]
    curves = [_attainment(results, metric, specs) for metric in dict.fromkeys(["ttft_s", *stated])]
    others = " The other targets stay as they were set." if len(stated) > 1 else ""
    return _section("SLO attainment", f"{note}count as missed.{others}", *curves)


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
    return _chart(f"attainment-{metric}", f"SLO attainment against the {METRIC_NAMES[metric]} target")


def latency(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return three distributions over finished requests, and the percentiles of everything."""
    shown = []
    done = results.requests[results.requests["status"] == "finished"]
    for metric in ("ttft_s", "tpot_s", "latency_s"):
        values = done[metric].to_numpy(dtype=np.float64)
        if np.isfinite(values).any():
            specs[f"cdf-{metric}"] = charts.latency_cdf(values)
            body = _chart(f"cdf-{metric}", f"{METRIC_NAMES[metric]} distribution")
        else:
            body = tag("p", "No request has one.", class_="note")
        shown.append(tag("div", tag("h3", METRIC_NAMES[metric]), body))
    percentiles = (
        [name, *(seconds(results.summary[metric][statistic]) for statistic in STATISTICS)]
        for metric, name in METRIC_NAMES.items()
    )
    return _section(
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
    specs["timeline-running"] = charts.timeline("running", times_s, charts.BLUE)
    specs["timeline-waiting"] = charts.timeline("waiting", times_s, charts.TEAL)
    specs["timeline-hbm"] = charts.hbm(times_s)
    total = int(results.timeline["replica"].nunique())
    keys = _keys(("bg-blue", "KV"), ("bg-amber", "adapters"), ("dash", "capacity"))
    own = EMPTY
    if results.timeline["region_capacity_tokens"].any():
        specs["timeline-region"] = charts.region(times_s)
        own = join(
            [
                tag("h3", "Adapters' own memory (token slots) ", *_REGION_KEYS),
                _chart("timeline-region", "Adapters' own memory and its fragmentation over time"),
            ]
        )
    return _section(
        "Replicas over time",
        f"Mean over each of {len(times_s)} equal stretches of time.",
        _choice("timeline", list(levels), total),
        tag("h3", "Running batch (requests)"),
        _chart("timeline-running", "Running batch over time"),
        tag("h3", "Queue (requests waiting)"),
        _chart("timeline-waiting", "Queue length over time"),
        tag("h3", "HBM pool (token slots) ", *keys),
        _chart("timeline-hbm", "KV and adapters in the HBM pool over time"),
        own,
        _replica_table(results.summary.get("replicas") or []),
    )


def _keys(*keys: tuple[str, str]) -> list[Html]:
    return [tag("span", tag("i", class_=colour), name, class_="key") for colour, name in keys]


_REGION_KEYS = _keys(
    ("bg-amber", "held"), ("bg-red", "free, in pieces"), ("bg-faint", "free, the longest run")
)


def _choice(series: str, keys: list[str], total: int) -> Html:
    """Return the selector of the replica whose `series` are drawn; nothing where there is no choice."""
    if len(keys) < 2:
        return EMPTY
    options = [
        tag("option", f"all {total} replicas together" if key == ALL else f"replica {key}", value=key)
        for key in keys
    ]
    shown = len([key for key in keys if key != ALL])
    note = f" the {shown} busiest of {total} can be chosen" if shown < total else ""
    select = tag("select", *options, data_of=series, aria_label="replica")
    return tag("p", select, tag("span", note, class_="note"))


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
    return _folded("Figures per replica", join([rows([_label(n) for n in names], body), more]))


def adapters(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return who was asked for, and what waiting for weights cost."""
    table = by_adapter(results.requests)
    if table.empty:
        return EMPTY
    specs["popularity"] = charts.popularity(table)
    facts = results.summary.get("adapters") or {}
    body = (
        [
            row.adapter or "(base model)",
            count(row.rank),
            count(row.requests),
            seconds(row.ttft_s),
            seconds(row.cold_start_s),
            seconds(row.blocked_s),
        ]
        for row in table.head(TOP_ADAPTERS).itertuples()
    )
    most = f", the {TOP_ADAPTERS} most requested in the table" if len(table) > TOP_ADAPTERS else ""
    return _section(
        "Adapters",
        f"{count(len(table))} in this run{most}. Times are means over finished requests: cold start is the wait for "
        "their own adapter before they began, blocked what they stood still while those of others were loaded.",
        tag(
            "div",
            tag("div", tag("h3", "Popularity"), _chart("popularity", "Requests per adapter"), _facts(facts)),
            tag(
                "div",
                rows(["adapter", "rank", "requests", "TTFT", "cold start", "blocked"], body),
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
    own, others = (results.summary[metric]["mean"] for metric in ("cold_start_s", "blocked_s"))
    mean = results.summary["cold_start_share"]["mean"]
    specs["cold-starts"] = charts.share_cdf(shares, "of a request's latency")
    return join(
        [
            tag("h3", "Cold starts"),
            tag(
                "p",
                f"On average {percent(mean)} of a request's latency: {seconds(own)} for its own adapter and "
                f"{seconds(others)} because of others.",
                class_="note",
            ),
            _chart("cold-starts", "Share of requests at or below each share of latency lost to loads"),
        ]
    )


def _facts(facts: Mapping[str, Any]) -> Html:
    plain = [(name, value) for name, value in facts.items() if not isinstance(value, dict | list)]
    return (
        rows(["", ""], ([_label(name), quantity(name, value)] for name, value in plain)) if plain else EMPTY
    )


def merging_and_moving(results: RunResults, specs: dict[str, Spec], page: dict[str, Any]) -> Html:
    """Return which adapter was merged when and why, and which requests moved; nothing where neither happened."""
    parts = [*_merging(results, specs, page), *_moves(results), *_vain(results.plans)]
    if not parts:
        return EMPTY
    return _section("Merging and moving", _merged_in_words(results.summary), *parts)


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
    parts.append(_choice("thresholds credits", keys, total))
    columns = {key: {name: charts.known(level) for name, level in limits[key].items()} for key in keys}
    page["series"]["thresholds"] = charts.series(times_s, columns)
    specs["thresholds"] = charts.thresholds(end_s)
    legend = _keys(("bg-blue", "alpha: merge above"), ("bg-amber", "beta: take out below"))
    parts += [
        tag("h3", "Thresholds (requests of the adapter for one in order of arrival) ", *legend),
        _chart("thresholds", "Thresholds of merging over time"),
    ]
    if any(credits.values()):
        lines = {key: [charts.credit_columns(*found, colours) for found in credits[key]] for key in keys}
        page["series"]["credits"] = charts.series(times_s, lines)
        specs["credits"] = charts.credits(end_s, colours)
        drawn = dict.fromkeys(name for key in keys for name, _ in credits[key])
        parts += [
            tag("h3", "Credits, beyond the start ", *_adapter_keys(drawn, colours)),
            _chart("credits", "Credits of adapters over time"),
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
    specs["modes"] = charts.modes(spans, end_s, colours)
    lanes = "" if len(spans) < 2 else ", a lane a replica" if len(spans) == total else _busiest(spans, total)
    return [
        tag("h3", f"Merged adapter{lanes} ", *_adapter_keys(merged, colours), *_keys(("bg-faint", "none"))),
        _chart("modes", "Merged adapter over time"),
    ]


def _busiest(spans: Mapping[str, pd.DataFrame], total: int) -> str:
    return f", the {len(spans)} busiest of {total} replicas"


def _adapter_keys(names: Iterable[str], colours: Mapping[str, str]) -> list[Html]:
    """Return the colours of those adapters that have one, and that of the others if there are any."""
    names = set(names)
    own = [(name or "base model", colour) for name, colour in colours.items() if name in names]
    rest = [("other adapters", modes.OTHER)] if names - set(colours) else []
    return [
        tag("span", tag("i", style=f"background:{colour}"), name, class_="key")
        for name, colour in (*own, *rest)
    ]


def _moves(results: RunResults) -> list[Html]:
    """Return what moved and what it cost, a row a reason; nothing if nothing moved."""
    moves, facts = results.moves, results.summary.get("migration") or {}
    if moves.empty:
        return []
    table = moves.groupby("reason").agg(
        first_s=("decided_s", "min"),
        moves=("request_id", "size"),
        tokens=("recomputed_tokens", "sum"),
        loaded=("loaded", "sum"),
    )
    table = (
        table.sort_values("moves", ascending=False, kind="stable").head(TOP_REASONS).sort_values("first_s")
    )
    body = (
        [reason or ABSENT, clock(row.first_s), count(row.moves), count(row.tokens), count(row.loaded)]
        for reason, row in zip(table.index, table.itertuples(), strict=True)
    )
    planned = facts.get("planned_moves", len(moves))
    stayed = f"; {count(planned)} were planned, but who ended first stayed" if planned > len(moves) else ""
    requests = counted(moves["request_id"].nunique(), "request")
    more = _more(moves["reason"].nunique(), "moves.parquet")
    return [
        tag("h3", "Moves"),
        tag("p", f"{counted(len(moves), 'move')} of {requests}{stayed}.", class_="note"),
        tag(
            "div",
            rows(["reason", "first at", "moves", "tokens recomputed", "adapters loaded"], body),
            class_="wrap",
        ),
        more,
    ]


def _vain(plans: pd.DataFrame) -> list[Html]:
    """Return the plans that changed nothing, and why."""
    vain = plans[~plans["solved"] | (plans["moves"] == 0)]
    if vain.empty:
        return []
    table = vain.groupby(["reason", "solved"]).agg(first_s=("time_s", "min"), plans=("reason", "size"))
    body = (
        [reason, "nothing to move" if solved else "not solved", clock(first_s), count(times)]
        for (reason, solved), first_s, times in table.sort_values("first_s").head(TOP_REASONS).itertuples()
    )
    titles = ["reason", "outcome", "first at", "plans"]
    head = f"{counted(len(vain), 'plan')} of {count(len(plans))} moved nothing"
    return [
        _folded(
            head,
            join(
                [tag("div", rows(titles, body, texts=2), class_="wrap"), _more(len(table), "plans.parquet")]
            ),
        )
    ]


def _more(reasons: int, file: str) -> Html:
    rest = reasons - TOP_REASONS
    return tag("p", f"and {count(rest)} more in {file}", class_="note") if rest > 0 else EMPTY


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
    return _section("Requests that did not finish", "", tag("div", table, class_="wrap"))


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
    return _section(
        "Calibration",
        f"The latency model: {where}.",
        tag("p", _kind(provenance), " ", provenance.get("source", ABSENT)),
        _provenance(about),
        tag("div", rows([*titles, "value"], body, texts=len(titles)), class_="wrap"),
    )


def _provenance(about: list[tuple[str, Any]]) -> Html:
    lines = ([name, quantity(name, value)] for name, value in about)
    table = tag("div", rows(["provenance", ""], lines, texts=2), class_="wrap")
    return _folded("Provenance and quality of the fit", table if about else EMPTY)


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
    return _section(
        "How it was made",
        "",
        tag("pre", summary["command"], class_="command") if summary.get("command") else EMPTY,
        tag("p", f"seed {summary.get('seed', ABSENT)} · {versions}", class_="note"),
        _folded("What was run", _facts(dict(_leaves(summary.get("run") or {})))),
        _folded("Simulation and KV cache figures", _facts(cost)),
        _folded("Full configuration", tag("pre", results.config) if results.config else EMPTY),
    )


def _folded(title: str, content: Html) -> Html:
    return tag("details", tag("summary", title), content) if content else EMPTY


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


def _chart(name: str, title: str) -> Html:
    return tag("div", class_="chart", id=name, role="img", aria_label=title)


def _section(title: str, note: str, *children: Html) -> Html:
    return tag("section", tag("h2", title), tag("p", note, class_="note") if note else EMPTY, join(children))
