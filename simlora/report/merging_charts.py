"""Charts of merging over simulated time: which adapter was in the weights, thresholds, and credits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from simlora.report.format import clock_unit
from simlora.report.modes import OTHER, THRESHOLDS
from simlora.report.vega import AMBER, BLUE, FAINT, Numbers, Spec, hover, known, rounded, time_axis


def modes(spans: Mapping[str, pd.DataFrame], end_s: float, colours: Mapping[str, str]) -> Spec:
    """Return a lane per replica, with a bar for each time that an adapter was merged."""
    _, factor = clock_unit(end_s)
    bars = [
        {"replica": key, "from": start, "to": end, "adapter": name, "colour": _group(name, colours)}
        for key, some in spans.items()
        for start, end, name in zip(
            rounded(some["start_s"].to_numpy() * factor),
            rounded(some["end_s"].to_numpy() * factor),
            some["adapter"].tolist(),
            strict=True,
        )
    ]
    x = time_axis(np.array([end_s]))
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
    empty = [{"replica": key, "from": 0, "to": rounded(np.array([end_s * factor]))[0]} for key in spans]
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
    x = time_axis(np.array([end_s]))
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
            hover({"x": x, "y": y | {"field": THRESHOLDS[0]}}, tips),
        ],
    }


def credits(end_s: float, colours: Mapping[str, str]) -> Spec:
    """Return the credits of adapters over time, a line each."""
    x = time_axis(np.array([end_s]))
    y = {"field": "credit", "type": "quantitative", "title": None, "axis": {"minExtent": 56}}
    lines = {"x": x, "y": y, "color": _colour(colours), "detail": {"field": "adapter"}}
    near = hover(lines, [("t", x["title"], ",.4~g"), ("credit", "credit", ",.5~g")])
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


def _group(name: str, colours: Mapping[str, str]) -> str:
    """Return what an adapter is in the scale of colours: a position, as names may be anything."""
    return str(list(colours).index(name)) if name in colours else "other"


def _colour(colours: Mapping[str, str]) -> Spec:
    domain = [*(str(i) for i in range(len(colours))), "other"]
    scale = {"domain": domain, "range": [*colours.values(), OTHER]}
    return {"field": "colour", "type": "nominal", "scale": scale, "legend": None}
