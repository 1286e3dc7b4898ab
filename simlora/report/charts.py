"""Vega-Lite specifications, as plain dictionaries; page.js adds fonts and sizes.

Colours are the page's CSS variables, so that charts follow its light and dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.report.curves import LEVELS, cdf, thinned_ranks
from simlora.report.format import METRIC_NAMES, clock_unit, limit, percent, time_unit
from simlora.report.modes import OTHER, THRESHOLDS

BLUE, TEAL, AMBER, RED = "var(--blue)", "var(--teal)", "var(--amber)", "var(--red)"
INK, PAPER, FAINT = "var(--ink)", "var(--card)", "var(--wash)"
Spec = dict[str, Any]
Numbers = NDArray[np.float64]

_SHARE = {"field": "y", "type": "quantitative", "title": None, "axis": {"format": "%", "tickCount": 5}}


def attainment(metric: str, limits_s: Numbers, shares: Numbers, target_s: float | None) -> Spec:
    """Return the share of requests that would meet each limit, with the target that was set marked."""
    unit, factor = time_unit(float(limits_s.max(initial=0.0)))
    curve = _curve(limits_s * factor, shares, f"{METRIC_NAMES[metric]} target ({unit})", [0, 1])
    if target_s is not None:
        share = float(np.interp(target_s, limits_s, shares))
        label = f"{percent(share)} at {limit(target_s)}"
        curve["layer"] += _mark_target(target_s * factor, share, label, float(limits_s.max()) * factor)
    return curve


def _mark_target(x: float, y: float, label: str, x_max: float) -> list[Spec]:
    left = x > 0.6 * x_max
    at = {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
    }
    rule = {"type": "rule", "color": AMBER, "strokeDash": [4, 3], "strokeWidth": 1.5}
    text = {
        "type": "text",
        "text": label,
        "align": "right" if left else "left",
        "dx": -9 if left else 9,
        "dy": 14 if y > 0.15 else -12,
        "color": INK,
        "fontWeight": 600,
        "fontSize": 12,
    }
    point = {"type": "point", "filled": True, "size": 70, "color": AMBER, "opacity": 1}
    data = {"values": _rows(x=[x], y=[y])}
    return [
        {"data": data, "mark": rule, "encoding": {"x": at["x"]}},
        {"data": data, "mark": point, "encoding": at},
        {"data": data, "mark": text, "encoding": at},
    ]


def latency_cdf(values_s: Numbers) -> Spec:
    """Return the share of finished requests at or below each time, up to the 99.5th percentile."""
    at_s, shares = cdf(values_s, points=300)
    unit, factor = time_unit(float(at_s.max(initial=0.0)))
    return _curve(at_s * factor, shares, unit, [0, 1], height=170)


def share_cdf(values: Numbers, title: str) -> Spec:
    """Return the share of finished requests at or below each share, in per cent."""
    at, shares = cdf(values, points=300)
    return _curve(100.0 * at, shares, f"% {title}", [0, 1], height=170)


def _curve(x: Numbers, y: Numbers, title: str, domain: list[float], height: int = 260) -> Spec:
    # Of an area whose points coincide Vega finds wrong bounds, and makes room for them: 45,000 pixels, once.
    pixel = np.floor(x * (1000.0 / (x.max(initial=0.0) or 1.0)))
    apart = np.diff(pixel, append=-1.0) != 0.0
    axes = {
        "x": {"field": "x", "type": "quantitative", "title": title, "scale": {"nice": False, "zero": True}},
        "y": _SHARE | {"scale": {"domain": domain}},
    }
    line = {"type": "line", "color": BLUE, "strokeWidth": 2, "interpolate": "step-after"}
    area = {"type": "area", "color": BLUE, "opacity": 0.1, "interpolate": "step-after"}
    return {
        "height": height,
        "data": {"values": _rows(x=x, y=y)},
        "layer": [
            {"data": {"values": _rows(x=x[apart], y=y[apart])}, "mark": area, "encoding": axes},
            {"mark": line, "encoding": axes},
            _hover({"x": axes["x"], "y": axes["y"]}, [("x", title, ",.4~g"), ("y", "share", ".1%")]),
        ],
    }


def _hover(axes: Spec, tips: list[tuple[str, str, str]]) -> Spec:
    """Return a layer that shows the point nearest to the pointer, and its numbers."""
    near: Spec = {"param": "near", "empty": False}
    return {
        "params": [
            {
                "name": "near",
                "select": {
                    "type": "point",
                    "on": "pointermove",
                    "clear": "pointerout",
                    "nearest": True,
                    "encodings": ["x"],
                },
            }
        ],
        "mark": {"type": "point", "filled": True, "size": 45, "color": BLUE},
        "encoding": axes
        | {
            "opacity": {"condition": near | {"value": 1}, "value": 0},
            "tooltip": [{"field": f, "title": t, "type": "quantitative", "format": n} for f, t, n in tips],
        },
    }


def timeline_data(times_s: Numbers, levels: Mapping[str, Mapping[str, Numbers]]) -> Spec:
    """Return the columns that the timeline charts read: `t` in clock units and, per replica, LEVELS."""
    columns = {key: {name: _rounded(level[name]) for name in LEVELS} for key, level in levels.items()}
    return series(times_s, columns)


def series(times_s: Numbers, levels: Mapping[str, Any]) -> Spec:
    """Return data by replica for charts that show one at a time, the first to begin with.

    `levels` are columns by name, or a list of several such; a column that is no list holds for all rows.
    """
    _, factor = clock_unit(float(times_s.max(initial=0.0)))
    return {"shown": next(iter(levels)), "t": _rounded(times_s * factor), "levels": dict(levels)}


def timeline(level: str, times_s: Numbers, colour: str) -> Spec:
    """Return a filled line of one level over time."""
    x, y = (
        _time_axis(times_s),
        {"field": level, "type": "quantitative", "title": None, "axis": {"minExtent": 56}},
    )
    mark = {"interpolate": "step-after", "color": colour}
    return {
        "height": 120,
        "data": {"name": "timeline"},
        "layer": [
            {"mark": mark | {"type": "area", "opacity": 0.15}, "encoding": {"x": x, "y": y}},
            {"mark": mark | {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
            _hover({"x": x, "y": y}, [("t", x["title"], ",.4~g"), (level, level, ",.1f")]),
        ],
    }


def with_bands(chart: Spec, times_s: Numbers, bands: Iterable[tuple[str, float, float]]) -> Spec:
    """Return a chart over time with a band behind it for each (name, from, until), in seconds, that lies in it."""
    end_s = float(times_s.max(initial=0.0))
    _, factor = clock_unit(end_s)
    drawn = [
        dict(zip(("from", "to"), _rounded(np.array([from_s, min(until_s, end_s)]) * factor), strict=True))
        | {"name": name}
        for name, from_s, until_s in bands
        if from_s < end_s
    ]
    if not drawn:
        return chart
    at = {"x": _time_axis(times_s) | {"field": "from"}, "x2": {"field": "to"}}
    mark = {"type": "rect", "color": RED, "opacity": 0.13}
    tips = {"tooltip": [{"field": "name", "title": "down"}, {"field": "from"}, {"field": "to"}]}
    band = {"data": {"values": drawn}, "mark": mark, "encoding": at | tips}
    return chart | {"layer": [band, *chart["layer"]]}


def placements(plans: pd.DataFrame, end_s: float) -> Spec:
    """Return the bytes of adapters that each plan newly gave to hosts; where there are none to move, the adapters."""
    _, factor = clock_unit(end_s)
    has_bytes = bool(plans["size_bytes"].any())
    level = plans["size_bytes"] / 1e9 if has_bytes else plans["assigned"]
    x = _time_axis(np.array([end_s])) | {"field": "x"}
    values = _rows(
        x=plans["time_s"] * factor, y=level, assigned=plans["assigned"], given_up=plans["given_up"]
    )
    title = "GB" if has_bytes else "adapters"
    axis = {"field": "y", "type": "quantitative", "title": None, "axis": {"minExtent": 56}}
    tips = [
        {"field": "x", "title": x["title"], "format": ",.4~g"},
        {"field": "y", "title": title, "format": ",.4~g"},
        {"field": "assigned", "title": "newly assigned"},
        {"field": "given_up", "title": "given up"},
    ]
    return {
        "height": 120,
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "rule", "color": AMBER, "strokeWidth": 2}, "encoding": {"x": x, "y": axis}},
            {
                "mark": {"type": "point", "filled": True, "size": 28, "color": AMBER, "opacity": 1},
                "encoding": {"x": x, "y": axis, "tooltip": tips},
            },
        ],
    }


def scaling(changes: pd.DataFrame, end_s: float) -> Spec:
    """Return replicas over time: filled those that take requests, as a line with those that boot."""
    _, factor = clock_unit(end_s)
    changes = changes.drop_duplicates("time_s", keep="last")
    last = changes.iloc[-1]
    x = _time_axis(np.array([end_s])) | {"field": "x"}
    columns = {
        name: np.append(changes[name].to_numpy(), last[name])
        for name in ("on", "serving", "booting", "draining")
    }
    values = _rows(x=np.append(changes["time_s"].to_numpy(), max(end_s, last["time_s"])) * factor, **columns)
    tips = [{"field": "x", "title": x["title"], "format": ",.4~g"}]
    tips += [{"field": name} for name in ("on", "serving", "booting", "draining")]

    def level(name: str) -> Spec:
        return {
            "field": name,
            "type": "quantitative",
            "title": None,
            "stack": None,
            "axis": {"minExtent": 56, "tickMinStep": 1},
        }

    step = {"interpolate": "step-after"}
    return {
        "height": 120,
        "data": {"values": values},
        "layer": [
            {
                "mark": step | {"type": "area", "color": BLUE, "opacity": 0.2},
                "encoding": {"x": x, "y": level("serving")},
            },
            {
                "mark": step | {"type": "line", "color": AMBER, "strokeWidth": 1.5},
                "encoding": {"x": x, "y": level("on")},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 22, "color": AMBER, "opacity": 1},
                "encoding": {"x": x, "y": level("on"), "tooltip": tips},
            },
        ],
    }


def hbm(times_s: Numbers, cache: bool = False) -> Spec:
    """Return the pool over time: adapters and KV stacked, below the capacity.

    Of a `cache`, KV that no request holds lies above the rest, and above that, in a paler tone, what has no adapter.
    """
    x = _time_axis(times_s)

    def level(name: str, *below: str) -> Spec:
        value = {"as": "top", "calculate": " + ".join(f"datum.{field}" for field in (name, *below))}
        base = {"as": "base", "calculate": " + ".join(f"datum.{field}" for field in below) or "0"}
        return {"transform": [value, base]}

    axis = {"format": ",.0f", "tickCount": 5, "minExtent": 56}
    y = {"field": "top", "type": "quantitative", "title": None, "axis": axis}
    area = {"type": "area", "interpolate": "step-after", "opacity": 0.75}
    pale = area | {"opacity": 0.3, "line": {"color": TEAL, "strokeWidth": 1, "interpolate": "step-after"}}
    capacity = {"type": "line", "color": INK, "strokeDash": [5, 4], "strokeWidth": 1.2}
    stack = {"x": x, "y": y | {"stack": None}, "y2": {"field": "base"}}
    marks = {"adapter_tokens": area | {"color": AMBER}}
    if cache:
        marks |= {name: area | {"color": colour} for name, colour in (("running", BLUE), ("history", TEAL))}
        marks["invalid_kv_tokens"] = pale | {"color": TEAL}
    else:
        marks["kv_tokens"] = area | {"color": BLUE}
    names = list(marks)
    bands = [
        level(name, *names[:index]) | {"mark": marks[name], "encoding": stack}
        for index, name in enumerate(names)
    ]
    shown = _CACHE if cache else _POOL
    tips = [("t", x["title"], ",.4~g"), *((name, title, ",.0f") for name, title in shown.items())]
    return {
        "height": 170,
        "data": {"name": "timeline"},
        **({"transform": _PARTS} if cache else {}),
        "layer": [
            *bands,
            level("capacity_tokens") | {"mark": capacity, "encoding": {"x": x, "y": y}},
            level("kv_tokens", "adapter_tokens") | _hover({"x": x, "y": y}, tips),
        ],
    }


_POOL = {"kv_tokens": "kv", "adapter_tokens": "adapter", "capacity_tokens": "capacity"}
_CACHE = {
    "running": "KV of running requests",
    "history": "history KV",
    "invalid_kv_tokens": "history KV without its adapter",
    "host_kv_tokens": "KV on the host",
    "adapter_tokens": "adapters",
    "capacity_tokens": "capacity",
}
_PARTS = [
    {"as": "running", "calculate": "datum.kv_tokens - datum.idle_kv_tokens"},
    {"as": "history", "calculate": "datum.idle_kv_tokens - datum.invalid_kv_tokens"},
]


def region(times_s: Numbers) -> Spec:
    """Return the adapters' own memory over time: what is held, the longest free run, and what is free in pieces."""
    x = _time_axis(times_s)
    used, run, whole = (f"datum.region_{name}_tokens" for name in ("used", "largest_free", "capacity"))
    axis = {"format": ",.0f", "tickCount": 5, "minExtent": 56}
    y = {"field": "top", "type": "quantitative", "title": None, "axis": axis, "stack": None}
    area = {"type": "area", "interpolate": "step-after", "opacity": 0.75}

    def band(base: str, top: str, colour: str) -> Spec:
        steps = [{"as": "base", "calculate": base}, {"as": "top", "calculate": top}]
        encoding = {"x": x, "y": y, "y2": {"field": "base"}}
        return {"transform": steps, "mark": area | {"color": colour}, "encoding": encoding}

    tips = [
        ("t", x["title"], ",.4~g"),
        ("region_used_tokens", "held", ",.0f"),
        ("region_largest_free_tokens", "longest free run", ",.0f"),
        ("pieces", "free in pieces", ",.0f"),
    ]
    shown = [{"as": "pieces", "calculate": f"{whole} - {used} - {run}"}, {"as": "top", "calculate": whole}]
    return {
        "height": 150,
        "data": {"name": "timeline"},
        "layer": [
            band("0", used, AMBER),
            band(used, f"{whole} - {run}", RED),
            band(f"{whole} - {run}", whole, FAINT),
            {"transform": shown} | _hover({"x": x, "y": y}, tips),
        ],
    }


def modes(spans: Mapping[str, pd.DataFrame], end_s: float, colours: Mapping[str, str]) -> Spec:
    """Return a lane per replica, with a bar for each time that an adapter was merged."""
    _, factor = clock_unit(end_s)
    bars = [
        {"replica": key, "from": start, "to": end, "adapter": name, "colour": _group(name, colours)}
        for key, some in spans.items()
        for start, end, name in zip(
            _rounded(some["start_s"].to_numpy() * factor),
            _rounded(some["end_s"].to_numpy() * factor),
            some["adapter"].tolist(),
            strict=True,
        )
    ]
    x = _time_axis(np.array([end_s]))
    lane = {
        "field": "replica",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(spans)},
        "axis": {"labelExpr": "'replica ' + datum.value", "minExtent": 56},
    }
    tips = [
        {"field": "adapter"},
        *({"field": name, "title": f"{name} ({x['title']})", "format": ",.5~g"} for name in ("from", "to")),
    ]
    empty = [{"replica": key, "from": 0, "to": _rounded(np.array([end_s * factor]))[0]} for key in spans]
    at = {"x": x | {"field": "from"}, "x2": {"field": "to"}, "y": lane}
    bar = {"type": "bar", "height": {"band": 0.8}}
    return {
        "height": 30 * max(len(spans), 2),
        "data": {"values": bars},
        "layer": [
            {"data": {"values": empty}, "mark": bar | {"color": FAINT}, "encoding": at},
            {"mark": bar, "encoding": at | {"color": _colour(colours), "tooltip": tips}},
        ],
    }


def thresholds(end_s: float) -> Spec:
    """Return the thresholds of merging over time."""
    x = _time_axis(np.array([end_s]))
    y = {"type": "quantitative", "title": None, "axis": {"minExtent": 56}}
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8}
    tips = [("t", x["title"], ",.4~g"), *((name, name, ",.3~f") for name in THRESHOLDS)]
    return {
        "height": 140,
        "data": {"name": "thresholds"},
        "layer": [
            *(
                {"mark": line | {"color": colour}, "encoding": {"x": x, "y": y | {"field": name}}}
                for name, colour in zip(THRESHOLDS, (BLUE, AMBER), strict=True)
            ),
            _hover({"x": x, "y": y | {"field": THRESHOLDS[0]}}, tips),
        ],
    }


def credits(end_s: float, colours: Mapping[str, str]) -> Spec:
    """Return the credits of adapters over time, a line each."""
    x = _time_axis(np.array([end_s]))
    y = {"field": "credit", "type": "quantitative", "title": None, "axis": {"minExtent": 56}}
    lines = {"x": x, "y": y, "color": _colour(colours), "detail": {"field": "adapter"}}
    near = _hover(lines, [("t", x["title"], ",.4~g"), ("credit", "credit", ",.5~g")])
    near["params"][0]["select"]["encodings"] = ["x", "y"]
    near["encoding"]["tooltip"] = [{"field": "adapter"}, *near["encoding"]["tooltip"]]
    del near["mark"]["color"]
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8}
    return {
        "height": 200,
        "data": {"name": "credits"},
        "layer": [{"mark": line, "encoding": lines}, near],
    }


def credit_columns(name: str, values: Numbers, colours: Mapping[str, str]) -> Spec:
    """Return an adapter's credit as the columns that the chart reads; whose it is holds for all rows."""
    shown = name or "base model"
    return {"adapter": shown, "colour": _group(name, colours), "credit": known(values)}


def known(values: Numbers) -> list[float | None]:
    """Return numbers as a screen can show them, None where there is none."""
    return [
        None if np.isnan(value) else rounded for value, rounded in zip(values, _rounded(values), strict=True)
    ]


def _group(name: str, colours: Mapping[str, str]) -> str:
    """Return what an adapter is in the scale of colours: a position, as names may be anything."""
    return str(list(colours).index(name)) if name in colours else "other"


def _colour(colours: Mapping[str, str]) -> Spec:
    domain = [*(str(i) for i in range(len(colours))), "other"]
    scale = {"domain": domain, "range": [*colours.values(), OTHER]}
    return {"field": "colour", "type": "nominal", "scale": scale, "legend": None}


def _time_axis(times_s: Numbers) -> Spec:
    unit, factor = clock_unit(float(times_s.max(initial=0.0)))
    end = float(times_s.max(initial=0.0)) * factor
    scale = {"nice": False, "domain": [0, end or 1]}
    return {"field": "t", "type": "quantitative", "title": f"simulated time ({unit})", "scale": scale}


def popularity(adapters: pd.DataFrame) -> Spec:
    """Return requests per adapter, the most popular first.

    Bars for few adapters, a line for many; logarithmic axes if the most popular one has 30 times
    the requests of the least popular one.
    """
    some = adapters.iloc[thinned_ranks(len(adapters))]
    names = [name or "base model" for name in some["adapter"]]
    values = [
        {"x": int(i) + 1, "y": int(n), "name": name}
        for i, n, name in zip(some.index, some["requests"], names, strict=True)
    ]
    many = len(adapters) > 60
    skewed = many and adapters["requests"].max() >= 30 * adapters["requests"].min()
    plain: Spec = {"type": "quantitative", "axis": {"format": "~s", "tickCount": 5}}
    bars: Spec = {"type": "bar", "color": TEAL, "cornerRadiusEnd": 2}
    dots: Spec = {"type": "line", "color": TEAL, "strokeWidth": 2, "point": {"color": TEAL, "size": 18}}
    x, y = {"field": "x", "title": "adapter, by popularity"}, {"field": "y", "title": "requests"}
    tips = [{"field": "name", "title": "adapter"}, {"field": "y", "title": "requests", "format": ","}]
    return {
        "height": 220,
        "data": {"values": values},
        "mark": dots if many else bars,
        "encoding": {
            "x": x | (_LOGARITHMIC if skewed else plain if many else _ordinal(len(adapters))),
            "y": y | (_LOGARITHMIC if skewed else plain),
            "tooltip": tips,
        },
    }


_LOGARITHMIC: Spec = {
    "type": "quantitative",
    "scale": {"type": "log", "nice": False},
    "axis": {"format": "~s", "values": [10**power for power in range(10)]},
}


def _ordinal(length: int) -> Spec:
    step = 1 if length <= 20 else 5
    shown = [i for i in range(1, length + 1) if i == 1 or i % step == 0]
    return {"type": "ordinal", "axis": {"values": shown, "labelAngle": 0}}


def _rows(**columns: Any) -> list[dict[str, float]]:
    names = list(columns)
    lists = [_rounded(np.asarray(column, dtype=np.float64)) for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _rounded(values: Numbers) -> list[float]:
    """Return numbers of five significant digits: what a screen can show."""
    return [float(f"{value:.5g}") for value in values.tolist()]
