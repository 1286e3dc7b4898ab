"""The Azure Functions traces, as published: whose invocations become requests for which adapter, and when."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.workload import azure_functions
from simlora.workload.azure_functions import MINUTES, AzureFunctions2019, AzureFunctions2021
from simlora.workload.invocations import Invocations, Invoked
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
    minutes = azure_functions.MINUTES
    lines = ["HashOwner,HashApp,HashFunction,Trigger," + ",".join(minutes)]
    for app, function, counts in rows:
        lines.append(f"o,{app},{function},http," + ",".join(str(counts.get(int(m), 0)) for m in minutes))
    path.write_text("\n".join(lines) + "\n")
    return AzureFunctions2019(str(path), Fixed(10), Fixed(20), adapters=3)


@pytest.fixture
def of_2019(tmp_path, monkeypatch):
    """A day of four minutes: 1,440 columns take a second to read."""
    monkeypatch.setattr(azure_functions, "MINUTES", MINUTES[:4])
    return day(
        tmp_path / "day.csv",
        [("a", "f", {1: 2, 3: 1}), ("a", "g", {2: 7}), ("b", "f", {4: 1}), ("c", "f", {})],
    )


@pytest.fixture
def of_2021(tmp_path):
    file = tmp_path / "trace.txt"
    file.write_text(LONG)
    return AzureFunctions2021(str(file), Fixed(10), Fixed(20), adapters=10)


# Of either year ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given(Invocations):
    """Two functions, invoked 100 times in each minute of an hour and once in the first."""

    def _invoked(self):
        minutes, hour_s = 60.0 * np.arange(60), 3600.0
        return Invoked(
            function=np.array([0] * 60 + [1]),
            count=np.array([100] * 60 + [1]),
            from_s=np.append(minutes, 0.0),
            until_s=np.append(minutes, 0.0) + 60,
            window_s=hour_s,
            covers_s=hour_s,
        )


GIVEN = Given("given.csv", Fixed(10), Fixed(20), adapters=3)


def test_a_rate_keeps_some_at_random_and_no_more_than_there_are():
    busy = replace(GIVEN, rate_rps=0.25)
    found = [len(busy.build(seed)) for seed in range(20)]
    assert np.mean(found) == pytest.approx(900, abs=4.5 * 30 / np.sqrt(20))
    assert len(set(found)) > 5
    assert np.array_equal(busy.build(3).arrival_s, busy.build(3).arrival_s)
    with pytest.raises(InputError, match=r"rate_rps is 1.7, must be at most the trace's own 1.66694 "):
        replace(busy, rate_rps=1.7).build(0)
    with pytest.raises(InputError, match=r"workload.rate_rps keeps none of 6,001 invocations; raise it"):
        replace(busy, rate_rps=1e-9).build(0)


# 2019 ----------------------------------------------------------------------------------------


def test_so_many_come_in_each_minute_and_the_busiest_function_is_adapter_0(of_2019):
    trace = of_2019.build(0)
    minute = (trace.arrival_s // 60).astype(int) + 1
    assert sorted(minute.tolist()) == [1, 1, *[2] * 7, 3, 4]
    assert set(trace.prompt_tokens.tolist()) == {10}
    assert set(trace.output_tokens.tolist()) == {20}
    assert np.bincount(trace.adapter).tolist() == [7, 3, 1]
    assert set(trace.adapter[minute == 2].tolist()) == {0}


@pytest.mark.parametrize(
    "setting, requests",
    [
        pytest.param({"adapters": 2}, [8, 3], id="functions in turn"),
        pytest.param({"adapters": 2, "stride": 2}, [10, 1], id="two functions at a time"),
        pytest.param({"functions": 1}, [7], id="the busiest function only"),
        pytest.param({"functions": 99}, [7, 3, 1], id="all of fewer functions than are kept"),
        pytest.param({"by": "app"}, [10, 1], id="an app is all its functions"),
    ],
)
def test_functions_are_mapped_to_adapters(of_2019, setting, requests):
    assert np.bincount(replace(of_2019, **setting).build(0).adapter).tolist() == requests


def test_a_window_starts_the_clock(of_2019):
    trace = replace(of_2019, start_s=60.0, duration_s=120.0).build(0)
    assert len(trace) == 8
    assert trace.arrival_s.min() >= 0
    assert trace.arrival_s.max() < 120
    half = replace(of_2019, start_s=90.0, duration_s=30.0).build(0)
    assert (len(half), half.arrival_s.max() < 30) == (4, True)  # of 7 in a minute, 3.5


@pytest.mark.parametrize("cell", ["-3", "1.5"])
def test_a_bad_count_is_refused_by_its_minute(of_2019, cell):
    file = Path(of_2019.path)
    file.write_text(file.read_text().replace(",http,0,7,", f",http,0,{cell},"))
    with pytest.raises(InputError, match=f"row 3: 2 is {cell}, must be a whole number"):
        of_2019.build(0)


def test_a_day_has_a_column_for_each_of_its_1_440_minutes(of_2019, monkeypatch):
    with pytest.raises(InputError, match=r"no invocations after .* it covers 240 seconds"):
        replace(of_2019, start_s=239.9, duration_s=0.1).build(0)
    monkeypatch.setattr(azure_functions, "MINUTES", MINUTES)
    assert len(MINUTES) == 1440
    with pytest.raises(InputError, match="has no column 5, must have HashOwner, HashApp"):
        of_2019.build(0)


# 2021 ----------------------------------------------------------------------------------------


def test_a_request_comes_when_its_invocation_began_for_a_function_within_its_app(of_2021):
    trace = of_2021.build(0)
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.75, 12.0, 14.0, 60.0]
    assert trace.adapter.tolist() == [0, 2, 1, 0, 0, 1]
    assert replace(of_2021, by="app").build(0).adapter.tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("b,f,13.0", "b,,13.0", "row 4: func is empty, must be the id of an app or a function"),
        (",13.0,0.25", ",soon,0.25", "row 4: end_timestamp is 'soon', must be a finite number of seconds"),
    ],
)
def test_a_bad_file_is_refused(of_2021, old, new, message):
    Path(of_2021.path).write_text(LONG.replace(old, new))
    with pytest.raises(InputError, match=message):
        of_2021.build(0)
