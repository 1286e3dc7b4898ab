"""Charts of requests: SLO attainment, distributions, and which adapters were asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd

from simlora.report.curves import cdf, thinned_ranks
from simlora.report.format import METRIC_NAMES, limit, percent, time_unit
from simlora.report.vega import AMBER, INK, TEAL, Numbers, Spec, curve, rows


def attainment(metric: str, limits_s: Numbers, shares: Numbers, target_s: float | None) -> Spec:
    """Return the share of requests that would meet each limit, with the target that was set marked."""
    unit, factor = time_unit(float(limits_s.max(initial=0.0)))
    drawn = curve(limits_s * factor, shares, f"{METRIC_NAMES[metric]} target ({unit})", [0, 1])
    if target_s is not None:
        share = float(np.interp(target_s, limits_s, shares))
        label = f"{percent(share)} at {limit(target_s)}"
        drawn["layer"] += _mark_target(target_s * factor, share, label, float(limits_s.max()) * factor)
    return drawn


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
    data = {"values": rows(x=[x], y=[y])}
    return [
        {"data": data, "mark": rule, "encoding": {"x": at["x"]}},
        {"data": data, "mark": point, "encoding": at},
        {"data": data, "mark": text, "encoding": at},
    ]


def latency_cdf(values_s: Numbers) -> Spec:
    """Return the share of finished requests at or below each time, up to the 99.5th percentile."""
    at_s, shares = cdf(values_s, points=300)
    unit, factor = time_unit(float(at_s.max(initial=0.0)))
    return curve(at_s * factor, shares, unit, [0, 1], height=170)


def length_cdf(tokens: Numbers) -> Spec:
    """Return the share of requests at or below each number of tokens, up to the 99.5th percentile."""
    at, shares = cdf(tokens, points=300)
    return curve(at, shares, "tokens", [0, 1], height=170)


def share_cdf(values: Numbers, title: str) -> Spec:
    """Return the share of finished requests at or below each share, in per cent."""
    at, shares = cdf(values, points=300)
    return curve(100.0 * at, shares, f"% {title}", [0, 1], height=170)


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
