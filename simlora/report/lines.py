"""Vega-Lite specifications of comparisons: a colour a configuration, named outside of the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from simlora.report.format import METRIC_NAMES, time_unit
from simlora.report.modes import PALETTE
from simlora.report.vega import INK, PAPER, Numbers, Spec, known

WHOLE_PX, THIRD_PX, LABEL_PX = 900, 240, 40
"""Approximate widths of charts, and the least room that a label needs to be readable."""


TITLES = {None: "over seeds", False: "median", True: "99th percentile"}


def over(means: pd.DataFrame, names: Sequence[str], x: str | None, share: bool = False) -> Spec:
    """Return means with their intervals over `x`, or side by side where nothing numeric is varied."""
    y: Spec = {"field": "estimate", "type": "quantitative", "title": None}
    least, most = -np.inf, np.inf
    if share:
        y |= {"axis": {"format": "%", "tickCount": 5}, "scale": {"domain": [0, 1]}}
        least, most = 0.0, 1.0
    elif _spans(means["estimate"], 50):
        y |= {"scale": {"type": "log"}}
        least = float(means["estimate"].min()) / 3  # or an axis of logarithms ends nowhere
    means = means.assign(low=means["low"].clip(least, most), high=means["high"].clip(least, most))
    return {
        "height": 280,
        "data": {"values": _values(means, names)},
        "layer": _layers(_x(means, x), y, share, intervals=bool(means["low"].notna().any())),
    }


def quantiles(median: pd.DataFrame, tail: pd.DataFrame, names: Sequence[str], x: str | None) -> Spec:
    """Return two figures, in seconds, over `x`."""
    unit, factor = time_unit(
        float(np.nan_to_num(tail["estimate"].to_numpy(dtype=np.float64)).max(initial=0.0))
    )
    both = pd.concat([median["estimate"], tail["estimate"]])
    y: Spec = {"field": "estimate", "type": "quantitative", "title": unit}
    if _spans(both, 30):
        y |= {"scale": {"type": "log"}}
    axis = _x(median, x, THIRD_PX)
    layers = []
    for frame, dashed in ((median, False), (tail, True)):
        scaled = frame.assign(**{name: frame[name] * factor for name in ("estimate", "low", "high")})
        data = {"values": _values(scaled, names)}
        layers += [layer | {"data": data} for layer in _layers(axis, y, False, dashed, intervals=False)]
    return {"height": 220, "data": {"values": []}, "layer": layers}


def _layers(x: Spec, y: Spec, share: bool, dashed: bool | None = None, intervals: bool = True) -> list[Spec]:
    """Return points with their intervals, and lines between them; hollow points are past saturation.

    `dashed` says that there are two figures in the chart, and whether it is the second: then its points are hollow.
    """
    at = {"x": x, "y": y, "color": _colour()}
    number = ".1%" if share else ",.4~g"
    tips = [
        {"field": "name", "title": "configuration"},
        {"field": "x", "title": x["title"] or "at"},
        {"field": "estimate", "title": TITLES[dashed], "format": number},
        {"field": "low", "title": "from", "format": number},
        {"field": "high", "title": "to", "format": number},
        {"field": "runs", "title": "seeds"},
        {"field": "load", "title": "load, against saturation"},
    ]
    line: Spec = {"type": "line", "strokeWidth": 1.8} | ({"strokeDash": [5, 4]} if dashed else {})
    ends = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    numeric = x["type"] == "quantitative"
    hollow = "datum.load == 'past'" if dashed is None else str(dashed).lower()
    point = {"type": "point", "size": 42, "strokeWidth": 1.8, "opacity": 1}
    fill = {"condition": {"test": hollow, "value": PAPER}, **_colour()}
    interval = (
        {"mark": {"type": "area", "opacity": 0.15}}
        if numeric
        else {"mark": {"type": "rule", "strokeWidth": 2}}
    )
    band = {"transform": [{"filter": "isValid(datum.low)"}], **interval, "encoding": at | ends}
    return [
        # Of two figures in one chart the intervals would hide each other: the table has them.
        *([band] if intervals else []),
        *([{"mark": line, "encoding": at}] if numeric else []),
        {"mark": point, "encoding": at | {"fill": fill, "tooltip": tips}},
    ]


def with_cost(cost: pd.DataFrame, attainment: pd.DataFrame) -> pd.DataFrame:
    """Return attainment with the columns `cost`, and `front`: none that costs no more meets the SLO as often."""
    both = attainment.assign(cost=cost["estimate"].to_numpy()).dropna(subset=["estimate", "cost"])
    order = both.sort_values(["cost", "estimate"], ascending=[True, False], kind="stable")
    best_before = order["estimate"].cummax().shift(fill_value=-np.inf)
    front = (order["estimate"] > best_before).reindex(both.index)
    return both.assign(front=front)


def pareto(both: pd.DataFrame, names: Sequence[str], x: str | None, title: str) -> Spec:
    """Return cost against attainment, a point a row, the front among them joined."""
    values = _values(both, names)
    front = _values(both[both["front"]].sort_values("cost"), names, others=True)
    scale = {"type": "log"} if _spans(both["cost"], 30) else {"zero": False, "padding": 12}
    at: Spec = {
        "x": {"field": "cost", "type": "quantitative", "title": title, "scale": scale},
        "y": {
            "field": "estimate",
            "type": "quantitative",
            "title": None,
            "axis": {"format": "%", "tickCount": 5},
            "scale": {"domain": [0, 1]},
        },
    }
    tips = [
        {"field": "name", "title": "configuration"},
        *([{"field": "x", "title": x}] if x else []),
        {"field": "cost", "title": title, "format": ",.4~g"},
        {"field": "estimate", "title": "attainment", "format": ".1%"},
        {"field": "load", "title": "load, against saturation"},
    ]
    line = {
        "type": "line",
        "interpolate": "step-after",
        "color": INK,
        "strokeDash": [5, 4],
        "strokeWidth": 1.2,
    }
    ring = {"type": "point", "color": INK, "size": 130, "strokeWidth": 1.4, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    return {
        "height": 300,
        "data": {"values": values},
        "layer": [
            {"data": {"values": front}, "mark": line, "encoding": at},
            {"data": {"values": front}, "mark": ring, "encoding": at},
            {"mark": point, "encoding": at | {"color": _colour(), "tooltip": tips}},
        ],
    }


def cdf_series(
    found: Mapping[str, Mapping[str, Mapping[str, Numbers]]], names: Sequence[str], shares: Numbers
) -> Spec:
    """Return the columns that `cdf` draws: by x, a set of columns a line, with a column a metric."""
    levels = {
        at: [
            {"line": str(place), "name": name, **_columns(at, name, found)}
            for place, name in enumerate(names)
            if any(name in metric for metric in found[at].values())
        ]
        for at in found
    }
    return {"shown": next(iter(levels)), "t": known(shares), "levels": levels}


def _columns(at: str, name: str, found: Mapping[str, Mapping[str, Mapping[str, Numbers]]]) -> Spec:
    columns: Spec = {}
    for metric, by_line in found[at].items():
        _, factor = _unit(metric, found)
        columns[metric] = known(by_line[name] * factor) if name in by_line else None
    return columns


def _unit(metric: str, found: Mapping[str, Mapping[str, Mapping[str, Numbers]]]) -> tuple[str, float]:
    longest_s = [values.max(initial=0.0) for own in found.values() for values in own.get(metric, {}).values()]
    return time_unit(float(max(longest_s, default=0.0)))


def cdf(metric: str, found: Mapping[str, Mapping[str, Mapping[str, Numbers]]]) -> Spec:
    """Return the share of requests at or below each time, a line a configuration."""
    unit, _ = _unit(metric, found)
    at = {
        "x": {"field": metric, "type": "quantitative", "title": unit},
        "y": {
            "field": "t",
            "type": "quantitative",
            "title": None,
            "axis": {"format": "%"},
            "scale": {"domain": [0, 1]},
        },
        "color": _colour(),
        "order": {"field": "t"},
    }
    tips = [
        {"field": "name", "title": "configuration"},
        {"field": metric, "title": f"{METRIC_NAMES[metric]} ({unit})", "format": ",.4~g"},
        {"field": "t", "title": "share", "format": ".1%"},
    ]
    line = {"type": "line", "strokeWidth": 1.8}
    return {
        "height": 220,
        "data": {"name": "cdf"},
        "transform": [{"filter": f"isValid(datum.{metric})"}],
        "mark": line,
        "encoding": at | {"tooltip": tips},
    }


def _x(means: pd.DataFrame, x: str | None, width_px: float = WHOLE_PX) -> Spec:
    """Return the axis; names are written where there is room for them, and always in the legend."""
    if x is None:
        room_px = width_px / max(means["line"].nunique(), 1) - 8
        axis = {"labelAngle": 0, "labelLimit": room_px, "labels": room_px >= LABEL_PX}
        return {"field": "name", "type": "nominal", "title": None, "sort": None, "axis": axis}
    scale: Spec = (
        {"type": "log", "nice": False}
        if _spans(means["x"], 20)
        else {"zero": False, "nice": False, "padding": 12}
    )
    return {"field": "x", "type": "quantitative", "title": x, "scale": scale}


def _spans(values: pd.Series[Any], factor: float) -> bool:
    """Return whether numbers, all above 0, spread over more than a factor, so that an axis has to be logarithmic."""
    seen = values.dropna()
    return bool(len(seen) and seen.min() > 0 and seen.max() > factor * seen.min())


def _colour() -> Spec:
    """Return the colours by the place of a line among all: names may be anything."""
    domain = [str(place) for place in range(len(PALETTE))]
    return {
        "field": "line",
        "type": "nominal",
        "scale": {"domain": domain, "range": list(PALETTE)},
        "legend": None,
    }


def _values(means: pd.DataFrame, names: Sequence[str], others: bool = False) -> list[dict[str, Any]]:
    """Return rows of the lines that are drawn, or of all of them."""
    place = {name: str(index) for index, name in enumerate(names)}
    numbers = [name for name in ("x", "estimate", "low", "high", "cost") if name in means]
    columns = {
        name: known(pd.to_numeric(means[name], errors="coerce").to_numpy(dtype=np.float64))
        for name in numbers
    }
    texts = zip(means["line"], means["load"], means["runs"], strict=True)
    return [
        {"line": place.get(line, "other"), "name": line, "load": load, "runs": int(runs)}
        | {name: column[row] for name, column in columns.items() if column[row] is not None}
        for row, (line, load, runs) in enumerate(texts)
        if others or line in place
    ]
