"""The Azure Functions traces, as published: whose invocations become requests for which adapter, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.workload.azure_functions import MINUTES, AzureFunctions2019, AzureFunctions2021
from simlora.workload.lengths import Fixed

LONG = """app,func,end_timestamp,duration
a,f,10.5,0.5
a,g,12.0,1.0
b,f,13.0,0.25
a,f,30.0,8.0
a,f,25.0,1.0
b,f,70.0,0.0
"""


def day(path, rows):
    """Write a day of counts: {minute: invocations} of owner, app and function."""
    lines = ["HashOwner,HashApp,HashFunction,Trigger," + ",".join(MINUTES)]
    for app, function, counts in rows:
        lines.append(f"o,{app},{function},http," + ",".join(str(counts.get(int(m), 0)) for m in MINUTES))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def of_2019(tmp_path):
    file = tmp_path / "day.csv"
    day(file, [("a", "f", {1: 2, 3: 1}), ("a", "g", {2: 7}), ("b", "f", {1440: 1}), ("c", "f", {})])
    return AzureFunctions2019(str(file), Fixed(10), Fixed(20), adapters=3)


@pytest.fixture
def of_2021(tmp_path):
    file = tmp_path / "trace.txt"
    file.write_text(LONG)
    return AzureFunctions2021(str(file), Fixed(10), Fixed(20), adapters=10)


# 2019 ----------------------------------------------------------------------------------------


def test_so_many_come_in_each_minute(of_2019):
    trace = of_2019.build(0)
    minute = (trace.arrival_s // 60).astype(int) + 1
    assert sorted(minute.tolist()) == [1, 1, *[2] * 7, 3, 1440]
    assert set(trace.prompt_tokens.tolist()) == {10}
    assert set(trace.output_tokens.tolist()) == {20}


def test_the_busiest_function_is_adapter_0(of_2019):
    trace = of_2019.build(0)
    assert np.bincount(trace.adapter).tolist() == [7, 3, 1]
    of_minute_2 = (trace.arrival_s >= 60) & (trace.arrival_s < 120)
    assert set(trace.adapter[of_minute_2].tolist()) == {0}


def test_functions_are_mapped_round_and_round_some_at_a_time(of_2019):
    assert np.bincount(replace(of_2019, adapters=2).build(0).adapter).tolist() == [8, 3]
    assert np.bincount(replace(of_2019, adapters=2, stride=2).build(0).adapter).tolist() == [10, 1]


def test_only_the_busiest_are_kept(of_2019):
    assert len(replace(of_2019, functions=1).build(0)) == 7
    assert len(replace(of_2019, functions=99).build(0)) == 11


def test_an_app_is_all_its_functions(of_2019):
    assert np.bincount(replace(of_2019, by="app").build(0).adapter).tolist() == [10, 1]


def test_a_window_starts_the_clock(of_2019):
    trace = replace(of_2019, start_s=60.0, duration_s=120.0).build(0)
    assert len(trace) == 8
    assert trace.arrival_s.min() >= 0
    assert trace.arrival_s.max() < 120
    half = replace(of_2019, start_s=90.0, duration_s=30.0).build(0)
    assert (len(half), half.arrival_s.max() < 30) == (4, True)  # of 7 in a minute, 3.5


def test_a_rate_keeps_some_at_random_and_no_more_than_there_are(of_2019, tmp_path):
    day(tmp_path / "busy.csv", [("a", "f", dict.fromkeys(range(1, 61), 100)), ("b", "f", {1: 1})])
    busy = replace(of_2019, path=str(tmp_path / "busy.csv"), duration_s=3600.0, rate_rps=0.25)
    found = [len(busy.build(seed)) for seed in range(20)]
    assert np.mean(found) == pytest.approx(900, abs=4.5 * 30 / np.sqrt(20))
    assert len(set(found)) > 5
    assert np.array_equal(busy.build(3).arrival_s, busy.build(3).arrival_s)
    with pytest.raises(
        InputError,
        match=r"workload.rate_rps is 5, must be at most the trace's own 1.66694 requests per second; null keeps all",
    ):
        replace(busy, rate_rps=5).build(0)
    with pytest.raises(InputError, match=r"workload.rate_rps keeps none of 6,001 invocations; raise it"):
        replace(busy, rate_rps=1e-9).build(0)


def test_speedup_squeezes_time_and_leaves_the_rest(of_2019):
    plain, fast = of_2019.build(2), replace(of_2019, speedup=60).build(2)
    assert np.array_equal(fast.arrival_s, plain.arrival_s / 60)
    assert np.array_equal(fast.adapter, plain.adapter)


def test_a_window_without_invocations_is_refused(of_2019):
    with pytest.raises(
        InputError, match=r"has no invocations after workload.start_s .* it covers 86,400 seconds"
    ):
        replace(of_2019, start_s=600.0, duration_s=60.0).build(0)


@pytest.mark.parametrize("cell, shown", [("-3", "-3"), ("1.5", "1.5"), ("many", "'many'"), ("", "empty")])
def test_a_bad_count_is_refused_by_its_minute(of_2019, cell, shown):
    file = Path(of_2019.path)
    lines = file.read_text().splitlines()
    lines[2] = lines[2].replace(",http,0,7,", f",http,0,{cell},")
    file.write_text("\n".join(lines))
    with pytest.raises(InputError) as error:
        of_2019.build(0)
    assert f"row 3: 2 is {shown}, must be a whole number of invocations, at least 0" in str(error.value)


def test_a_day_without_its_last_minute_is_refused(of_2019):
    file = Path(of_2019.path)
    file.write_text("\n".join(line.rpartition(",")[0] for line in file.read_text().splitlines()))
    with pytest.raises(InputError, match="has no column 1440, must have HashOwner, HashApp"):
        of_2019.build(0)


# 2021 ----------------------------------------------------------------------------------------


def test_a_request_comes_when_its_invocation_began(of_2021):
    trace = of_2021.build(0)
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.75, 12.0, 14.0, 60.0]


def test_a_function_has_a_name_within_its_app(of_2021):
    assert of_2021.build(0).adapter.tolist() == [0, 2, 1, 0, 0, 1]
    assert replace(of_2021, by="app").build(0).adapter.tolist() == [0, 0, 1, 0, 0, 1]


def test_a_window_of_2021(of_2021):
    trace = replace(of_2021, start_s=2.0, duration_s=12.0).build(0)
    assert trace.arrival_s.tolist() == [0.75, 10.0]
    with pytest.raises(InputError, match=r"has no invocations after workload.start_s .* covers 60 seconds"):
        replace(of_2021, start_s=61.0).build(0)


def test_a_rate_of_2021_keeps_each_or_not(of_2021, tmp_path):
    rows = "".join(f"a,f,{i}.0,0.5\n" for i in range(10, 2010))
    (tmp_path / "long.txt").write_text(LONG.splitlines()[0] + "\n" + rows)
    long = replace(of_2021, path=str(tmp_path / "long.txt"), rate_rps=0.1)
    whole = set(replace(long, rate_rps=None).build(0).arrival_s.tolist())
    found = [long.build(seed) for seed in range(10)]
    assert all(set(trace.arrival_s.tolist()) <= whole for trace in found)
    assert np.mean([len(trace) for trace in found]) == pytest.approx(200, abs=4.5 * 13.5 / np.sqrt(10))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("b,f,13.0", "b,,13.0", "row 4: func is empty, must be the id of an app or a function"),
        (",13.0,0.25", ",soon,0.25", "row 4: end_timestamp is 'soon', must be a finite number of seconds"),
        (",13.0,0.25", ",13.0,-1", "row 4: duration is -1, must be a finite number of seconds, at least 0"),
        ("duration", "length", "has a column 'length', which is unknown"),
    ],
)
def test_a_bad_file_is_refused(of_2021, old, new, message):
    Path(of_2021.path).write_text(LONG.replace(old, new))
    with pytest.raises(InputError, match=message):
        of_2021.build(0)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"by": "owner"}, "workload.by is 'owner', must be one of function, app"),
        ({"adapters": 0}, "workload.adapters is 0, must be a whole number of adapters, at least 1"),
        ({"stride": 0}, "workload.stride is 0"),
        ({"functions": 0}, "workload.functions is 0, must be a whole number of functions, at least 1"),
        ({"rate_rps": 0}, "workload.rate_rps is 0, must be greater than 0 requests per second"),
        ({"speedup": 0}, "workload.speedup is 0"),
        ({"start_s": -1}, "workload.start_s is -1"),
        ({"duration_s": 0}, "workload.duration_s is 0"),
        ({"prompt_tokens": Fixed(0)}, "workload.prompt_tokens.tokens is 0"),
        ({"correlation": 2}, "workload.correlation is 2"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(of_2021, setting, message):
    with pytest.raises(InputError, match=message):
        replace(of_2021, **setting)
