"""Specifications say what the tables say, in units that fit, and are plain JSON."""

import json

import numpy as np
import pandas as pd
import pytest

from simlora.report import charts, merging_charts, time_charts, vega
from simlora.report.curves import by_adapter
from tests.metrics.frames import finished, table
from tests.report.make_results import make_plans

TIMES_S = np.linspace(0, 900, 4)


def points(spec):
    return [tuple(row.values()) for row in spec["data"]["values"]]


def title(spec):
    encoding = spec.get("encoding") or spec["layer"][0]["encoding"]
    return encoding["x"]["title"]


def labels(spec):
    return [layer["mark"].get("text") for layer in spec["layer"] if layer["mark"]["type"] == "text"]


def test_the_target_is_marked_with_its_attainment_and_no_target_is_not():
    times_s, shares = np.array([0.0, 2.0, 6.0, 12.0]), np.array([0.0, 0.5, 0.9, 1.0])
    spec = charts.attainment("ttft_s", times_s, shares, 6.0)
    assert title(spec) == "TTFT target (s)"
    assert points(spec) == [(0, 0), (2, 0.5), (6, 0.9), (12, 1)]
    assert labels(spec) == ["90 % at 6 s"]
    assert labels(charts.attainment("ttft_s", times_s, shares, None)) == []


def test_short_times_are_drawn_in_milliseconds_and_numbers_with_the_digits_of_a_screen():
    spec = charts.attainment("tpot_s", np.array([0.0, 0.1]), np.array([0.0, 1.0]), 0.1)
    assert title(spec) == "TPOT target (ms)"
    assert points(spec)[-1] == (100, 1)
    assert title(charts.latency_cdf(np.array([0.01, 0.02]))) == "ms"
    assert points(charts.latency_cdf(np.array([1.23456789])))[0] == (1.2346, 1)


def merged(*rows):
    """Spans of one adapter after the other."""
    return pd.DataFrame(rows, columns=["start_s", "end_s", "adapter"])


def test_modes_are_bars_in_a_lane_a_replica_in_the_units_of_their_axis():
    spans = {"0": merged((0.0, 300.0, "a"), (600.0, 900.0, "b")), "7": merged()}
    spec = merging_charts.modes(spans, 900.0, {"a": "#111111"})
    drawn = [(row["replica"], row["from"], row["to"], row["adapter"]) for row in spec["data"]["values"]]
    assert drawn == [("0", 0, 5, "a"), ("0", 10, 15, "b")]
    lanes = spec["layer"][0]
    assert [(row["replica"], row["to"]) for row in lanes["data"]["values"]] == [("0", 15), ("7", 15)]
    assert lanes["encoding"]["x"]["title"] == "simulated time (min)"


def popularity(adapters, most):
    """The chart of so many adapters, of which the first has `most` requests and the others one."""
    names = ["first"] * most + [f"a{i}" for i in range(adapters - 1)]
    return charts.popularity(by_adapter(table(*(finished(adapter=name) for name in names))))


@pytest.mark.parametrize(
    "adapters, most, mark, scale",
    [(60, 30, "bar", None), (61, 29, "line", None), (61, 30, "line", "log")],
)
def test_popularity_is_drawn_by_how_many_and_how_skewed_they_are(adapters, most, mark, scale):
    spec = popularity(adapters, most)
    assert spec["mark"]["type"] == mark
    assert {spec["encoding"][axis].get("scale", {}).get("type") for axis in "xy"} == {scale}


@pytest.mark.parametrize(
    "spec",
    [
        charts.attainment("ttft_s", TIMES_S, TIMES_S / 900, 6.0),
        charts.latency_cdf(TIMES_S),
        time_charts.timeline("running", TIMES_S, vega.BLUE),
        time_charts.hbm(TIMES_S),
        time_charts.hbm(TIMES_S, cache=True),
        time_charts.with_bands(time_charts.hbm(TIMES_S), TIMES_S, [("host 0", 60.0, 90.0)]),
        time_charts.placements(make_plans().placements(), 600.0),
        charts.popularity(by_adapter(table(finished()))),
        merging_charts.modes({"0": merged((0.0, 1.0, "a"))}, 2.0, {"a": "#111111"}),
        merging_charts.modes({"0": merged(), "1": merged()}, 2.0, {}),
        merging_charts.thresholds(2.0),
        merging_charts.credits(2.0, {"a": "#111111"}),
    ],
)
def test_a_specification_is_json_and_compiles(spec):
    vl_convert = pytest.importorskip("vl_convert")
    data = {"data": {"values": []}} if spec["data"].get("name") else {}
    compiled = vl_convert.vegalite_to_vega(json.loads(json.dumps(spec | data, allow_nan=False)))
    assert compiled["marks"]
