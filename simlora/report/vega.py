"""What charts are made of: Vega-Lite specifications as plain dictionaries; page.js adds fonts and sizes.

Colours are the page's CSS variables, so that charts follow its light and dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.report.format import clock_unit

BLUE, TEAL, AMBER, RED = "var(--blue)", "var(--teal)", "var(--amber)", "var(--red)"
INK, PAPER, FAINT = "var(--ink)", "var(--card)", "var(--wash)"
Spec = dict[str, Any]
Numbers = NDArray[np.float64]

_SHARE = {"field": "y", "type": "quantitative", "title": None, "axis": {"format": "%", "tickCount": 5}}


def curve(x: Numbers, y: Numbers, title: str, domain: list[float], height: int = 260) -> Spec:
    """Return shares over what they are of, as steps with an area below them."""
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
        "data": {"values": rows(x=x, y=y)},
        "layer": [
            {"data": {"values": rows(x=x[apart], y=y[apart])}, "mark": area, "encoding": axes},
            {"mark": line, "encoding": axes},
            hover({"x": axes["x"], "y": axes["y"]}, [("x", title, ",.4~g"), ("y", "share", ".1%")]),
        ],
    }


def hover(axes: Spec, tips: list[tuple[str, str, str]]) -> Spec:
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


def time_axis(times_s: Numbers) -> Spec:
    """Return the axis of simulated time, in the unit that fits the last of these times."""
    unit, factor = clock_unit(float(times_s.max(initial=0.0)))
    end = float(times_s.max(initial=0.0)) * factor
    scale = {"nice": False, "domain": [0, end or 1]}
    return {"field": "t", "type": "quantitative", "title": f"simulated time ({unit})", "scale": scale}


def series(times_s: Numbers, levels: Mapping[str, Any]) -> Spec:
    """Return data by replica for charts that show one at a time, the first to begin with.

    `levels` are columns by name, or a list of several such; a column that is no list holds for all rows.
    """
    _, factor = clock_unit(float(times_s.max(initial=0.0)))
    return {"shown": next(iter(levels)), "t": rounded(times_s * factor), "levels": dict(levels)}


def known(values: Numbers) -> list[float | None]:
    """Return numbers as a screen can show them, None where there is none."""
    return [
        None if np.isnan(value) else rounded for value, rounded in zip(values, rounded(values), strict=True)
    ]


def rows(**columns: Any) -> list[dict[str, float]]:
    """Return columns as the rows that Vega reads."""
    names = list(columns)
    lists = [rounded(np.asarray(column, dtype=np.float64)) for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def rounded(values: Numbers) -> list[float]:
    """Return numbers of five significant digits: what a screen can show."""
    return [float(f"{value:.5g}") for value in values.tolist()]
