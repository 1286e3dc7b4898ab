"""Specifications say what the tables say, in units that fit, and are plain JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from simlora.report import charts, merging_charts, time_charts, vega
from simlora.report.curves import by_adapter
from simlora.report.modes import OTHER
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


def bands(spec):
    """What is stacked, from the bottom up: what each band begins on, and what it ends with."""
    areas = [layer["transform"] for layer in spec["layer"] if layer["mark"]["type"] == "area"]
    return [(base["calculate"], top["calculate"].split(" + ")[0]) for top, base in areas]


def test_of_a_cache_history_kv_lies_above_the_rest_and_what_has_no_adapter_at_the_top():
    spec = time_charts.hbm(TIMES_S, cache=True)
    tops = ["datum.adapter_tokens", "datum.running", "datum.history", "datum.invalid_kv_tokens"]
    below = [" + ".join(tops[:count]) or "0" for count in range(4)]
    assert bands(spec) == list(zip(below, tops, strict=True))
    tips = [tip["field"] for tip in spec["layer"][-1]["encoding"]["tooltip"]]
    assert {"invalid_kv_tokens", "host_kv_tokens"} < set(tips)


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


def test_an_adapter_has_one_colour_in_all_charts_whatever_its_name():
    colours = {"other": "#111111", "1": "#222222"}
    modes = merging_charts.modes({"0": merged((0.0, 1.0, "1"), (1.0, 2.0, "c"))}, 2.0, colours)
    layers = [modes["layer"][1], *merging_charts.credits(2.0, colours)["layer"]]
    scales = [layer["encoding"]["color"]["scale"] for layer in layers]
    columns = merging_charts.credit_columns
    found = {name: columns(name, np.zeros(1), colours)["colour"] for name in ("other", "1", "c")}
    assert [row["colour"] for row in modes["data"]["values"]] == [found["1"], found["c"]]
    for scale in scales:
        by_group = dict(zip(scale["domain"], scale["range"], strict=True))
        assert [by_group[group] for group in found.values()] == ["#111111", "#222222", OTHER]


def test_the_base_model_has_a_name_and_what_is_not_known_no_number():
    assert merging_charts.credit_columns("", np.array([1.0]), {})["adapter"] == "base model"
    spec = charts.popularity(by_adapter(table(finished(adapter=""), finished(adapter=""), finished())))
    assert points(spec) == [(1, 2, "base model"), (2, 1, "a")]
    assert vega.known(np.array([np.nan, 0.123456])) == [None, 0.12346]


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
