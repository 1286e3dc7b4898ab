"""BurstGPT, as published, with its sessions and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload.burstgpt import BurstGpt
from simlora.workload.popularity import InTurn, Uniform

PLAIN = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,100,20,120,Conversation log
8,GPT-4,200,30,230,API log
9,ChatGPT,300,0,300,Conversation log
20,GPT-4,400,40,440,Conversation log
"""
WITH_SESSIONS = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.5,a,1,ChatGPT,100,20,120,Conversation log
8.0,b,1,GPT-4,200,30,230,Conversation log
9.0,,1,ChatGPT,300,10,310,API log
9.5,,1,ChatGPT,350,10,360,API log
20.0,a,1,GPT-4,400,40,440,Conversation log
"""


@pytest.fixture
def plain(tmp_path):
    file = tmp_path / "burst.csv"
    file.write_text(PLAIN)
    return BurstGpt(str(file), Uniform(), adapters=10, ranks=[8, 16])


@pytest.fixture
def sessions(tmp_path):
    file = tmp_path / "burst_3.csv"
    file.write_text(WITH_SESSIONS)
    return BurstGpt(str(file), InTurn(), adapters=10)


def test_arrivals_and_lengths_are_the_trace_s_and_failures_are_dropped(plain):
    trace = plain.build(0)
    assert trace.arrival_s.tolist() == [0.0, 3.0, 15.0]
    assert trace.prompt_tokens.tolist() == [100, 200, 400]
    assert trace.output_tokens.tolist() == trace.max_output_tokens.tolist() == [20, 30, 40]
    assert trace.session is None
    assert trace.notices == (
        f"{plain.path}: 1 of 4 rows have no prompt or no output tokens and were dropped.",
    )
    assert [spec.rank for spec in trace.adapters[:3]] == [8, 16, 8]


def test_models_and_kinds_of_logs_are_chosen_on_the_trace_s_own_clock(plain):
    assert replace(plain, models=["GPT-4"]).build(0).arrival_s.tolist() == [3.0, 15.0]
    assert replace(plain, log_types=["API log"]).build(0).prompt_tokens.tolist() == [200]
    both = replace(plain, models=["GPT-4", "ChatGPT"], log_types=["Conversation log"]).build(0)
    assert both.prompt_tokens.tolist() == [100, 400]


def test_a_session_has_one_adapter_and_requests_without_one_their_own(sessions):
    trace = sessions.build(0)
    assert trace.adapter.tolist() == [0, 1, 2, 3, 0]
    assert trace.session is None


def test_sessions_keep_their_adapters_in_a_window(sessions):
    assert replace(sessions, start_s=3.0).build(0).adapter.tolist() == [2, 3, 0]


def test_history_is_an_assumption_that_has_to_be_made(sessions):
    assert replace(sessions, history=True).build(0).session == ["a", "b", None, None, "a"]
    with pytest.raises(InputError, match=r"workload.history is 1, must be true or false"):
        replace(sessions, history=1)


def test_adapters_are_drawn_with_the_run_s_seed(plain):
    assert plain.build(1).adapter.tolist() == plain.build(1).adapter.tolist()
    assert len({tuple(plain.build(seed).adapter.tolist()) for seed in range(20)}) > 10
    assert set(replace(plain, adapters=0).build(1).adapter.tolist()) == {BASE_MODEL}


def test_speedup_squeezes_time_and_nothing_else(plain):
    fast = replace(plain, speedup=4).build(0)
    assert np.array_equal(fast.arrival_s, plain.build(0).arrival_s / 4)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("8,GPT-4", "-8,GPT-4", "row 3: Timestamp is '-8', must be a finite number of seconds, at least 0"),
        (",200,30", ",x,30", "row 3: Request tokens is 'x', must be a whole number of tokens"),
        (",200,30", ",200,", "row 3: Response tokens is empty, must be a whole number of tokens"),
        ("Log Type", "LogType", "has a column 'LogType', which is unknown; did you mean Log Type"),
    ],
)
def test_a_bad_file_is_refused(plain, old, new, message):
    Path(plain.path).write_text(PLAIN.replace(old, new))
    with pytest.raises(InputError) as error:
        plain.build(0)
    assert message.replace("'-8'", "-8") in str(error.value)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"models": ["GPT-5"]}, r"workload.models has 'GPT-5', which no row of .* has; did you mean GPT-4"),
        ({"log_types": []}, r"workload.log_types is \[\], must be a list with at least one entry"),
        ({"models": ["GPT-4"], "log_types": ["API log"], "start_s": 9.0}, "has no requests left after"),
        ({"rows": 0}, "workload.rows is 0"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(plain, setting, message):
    with pytest.raises(InputError, match=message):
        replace(plain, **setting).build(0)
