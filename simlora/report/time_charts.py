"""Charts over simulated time: levels of replicas, what HBM holds, plans of the placement, and how many are on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from simlora.metrics.timeline import LEVELS
from simlora.report.format import KV_NAMES, clock_unit
from simlora.report.vega import (
    AMBER,
    BLUE,
    FAINT,
    INK,
    RED,
    TEAL,
    Numbers,
    Spec,
    hover,
    known,
    rounded,
    rows,
    series,
    time_axis,
)


def timeline_data(times_s: Numbers, levels: Mapping[str, Mapping[str, Numbers]]) -> Spec:
    """Return the columns that the timeline charts read: `t` in clock units and, per replica, LEVELS."""
    columns = {key: {name: rounded(level[name]) for name in LEVELS} for key, level in levels.items()}
    return series(times_s, columns)


def timeline(level: str, times_s: Numbers, colour: str) -> Spec:
    """Return a filled line of one level over time."""
    x, y = (
        time_axis(times_s),
        {"field": level, "type": "quantitative", "title": None, "axis": {"minExtent": 56}},
    )
    mark = {"interpolate": "step-after", "color": colour}
    return {
        "height": 120,
        "data": {"name": "timeline"},
        "layer": [
            {"mark": mark | {"type": "area", "opacity": 0.15}, "encoding": {"x": x, "y": y}},
            {"mark": mark | {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y}},
            hover({"x": x, "y": y}, [("t", x["title"], ",.4~g"), (level, level, ",.1f")]),
        ],
    }


def lines(
    frame: pd.DataFrame,
    shown: Mapping[str, tuple[str, str]],
    end_s: float,
    factor: float = 1.0,
    most: float | None = None,
    share: bool = False,
) -> Spec:
    """Return columns of a frame with `time_s` as lines over time, each with its title and colour.

    Values are multiplied by the factor. `most` ends the axis, and is drawn; shares go from 0 to 1.
    """
    _, per_unit = clock_unit(end_s)
    x = time_axis(np.array([end_s]))
    y: Spec = {"type": "quantitative", "title": None, "axis": {"minExtent": 56, "tickCount": 4}}
    if share:
        y |= {"axis": {"minExtent": 56, "format": "%", "tickCount": 4}, "scale": {"domain": [0, 1]}}
    elif most is not None:
        y |= {"scale": {"domain": [0, most]}}
    columns = {name: known(frame[name].to_numpy(dtype=np.float64) * factor) for name in shown}
    t = rounded(frame["time_s"].to_numpy(dtype=np.float64) * per_unit)
    values = [dict(zip(("t", *columns), row, strict=True)) for row in zip(t, *columns.values(), strict=True)]
    number = ".1%" if share else ",.4~g"
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "color": f"var(--{colour})", "strokeWidth": 1.6},
            "encoding": {"x": x, "y": y | {"field": name}},
        }
        for name, (_, colour) in shown.items()
    ]
    tips = [("t", x["title"], ",.4~g"), *((name, title, number) for name, (title, _) in shown.items())]
    layers.append(hover({"x": x, "y": y | {"field": next(iter(shown))}}, tips))
    return {"height": 120, "data": {"values": values}, "layer": layers}


def with_bands(chart: Spec, times_s: Numbers, bands: Iterable[tuple[str, float, float]]) -> Spec:
    """Return a chart over time with a band behind it for each (name, from, until), in seconds, that lies in it."""
    end_s = float(times_s.max(initial=0.0))
    _, factor = clock_unit(end_s)
    drawn = [
        dict(zip(("from", "to"), rounded(np.array([from_s, min(until_s, end_s)]) * factor), strict=True))
        | {"name": name}
        for name, from_s, until_s in bands
        if from_s < end_s
    ]
    if not drawn:
        return chart
    at = {"x": time_axis(times_s) | {"field": "from"}, "x2": {"field": "to"}}
    mark = {"type": "rect", "color": RED, "opacity": 0.13}
    tips = {"tooltip": [{"field": "name", "title": "down"}, {"field": "from"}, {"field": "to"}]}
    band = {"data": {"values": drawn}, "mark": mark, "encoding": at | tips}
    return chart | {"layer": [band, *chart["layer"]]}


def placements(plans: pd.DataFrame, end_s: float) -> Spec:
    """Return the bytes of adapters that each plan newly gave to hosts; where there are none to move, the adapters."""
    _, factor = clock_unit(end_s)
    has_bytes = bool(plans["size_bytes"].any())
    level = plans["size_bytes"] / 1e9 if has_bytes else plans["assigned"]
    x = time_axis(np.array([end_s])) | {"field": "x"}
    values = rows(x=plans["time_s"] * factor, y=level, assigned=plans["assigned"], given_up=plans["given_up"])
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
    x = time_axis(np.array([end_s])) | {"field": "x"}
    columns = {
        name: np.append(changes[name].to_numpy(), last[name])
        for name in ("on", "serving", "booting", "draining")
    }
    values = rows(x=np.append(changes["time_s"].to_numpy(), max(end_s, last["time_s"])) * factor, **columns)
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
    x = time_axis(times_s)

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
            level("kv_tokens", "adapter_tokens") | hover({"x": x, "y": y}, tips),
        ],
    }


_POOL = {"kv_tokens": "kv", "adapter_tokens": "adapter", "capacity_tokens": "capacity"}
_CACHE = KV_NAMES | {"adapter_tokens": "adapters", "capacity_tokens": "capacity"}
_PARTS = [
    {"as": "running", "calculate": "datum.kv_tokens - datum.idle_kv_tokens"},
    {"as": "history", "calculate": "datum.idle_kv_tokens - datum.invalid_kv_tokens"},
]


def region(times_s: Numbers) -> Spec:
    """Return the adapters' own memory over time: what is held, the longest free run, and what is free in pieces."""
    x = time_axis(times_s)
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
            {"transform": shown} | hover({"x": x, "y": y}, tips),
        ],
    }
