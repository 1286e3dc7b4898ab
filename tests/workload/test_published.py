"""Traces of requests as others publish them: Azure's, BurstGPT, Mooncake's and Qwen-Bailian's."""

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload import qwen_bailian
from simlora.workload.azure import AzureLlm
from simlora.workload.blocks import of_prefixes
from simlora.workload.burstgpt import BurstGpt
from simlora.workload.mooncake import Mooncake
from simlora.workload.popularity import InTurn, Power, Uniform
from simlora.workload.qwen_bailian import QwenBailian
from simlora.workload.reuse import ideal_reuse

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51,879,0
2023-11-16 18:16:46.6805900,91,16
2023-11-16 18:17:46.6805901,2000,1000
"""
WEEK = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,5,1
2024-05-10 00:00:01+00:00,6,2
2024-05-10 00:00:02+00:00,6,0
2024-05-11 00:00:00.5+00:00,7,3
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,100,20,120,Conversation log
8,GPT-4,200,30,230,API log
9,ChatGPT,300,0,300,Conversation log
20,GPT-4,400,40,440,Conversation log
"""
SESSIONS = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5.5,a,1,ChatGPT,100,20,120,Conversation log
8.0,b,1,GPT-4,200,30,230,Conversation log
9.0,,1,ChatGPT,300,10,310,API log
9.5,,1,ChatGPT,350,10,360,API log
9.7,,1,ChatGPT,350,0,350,API log
20.0,a,1,GPT-4,400,40,440,Conversation log
"""
MOONCAKE_COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")
MOONCAKE = [
    (10_000, 1300, 500, [0, 1, 2]),  # the first session
    (10_000, 900, 40, [0, 3]),  # the second
    (11_500, 1537, 60, [0, 1, 4, 5]),
    (19_000, 512, 7, [0]),  # alone
    (19_000, 300, 8, [6]),  # alone too
    (37_482, 4000, 9, [0, 3, 7, 8, 9, 10, 11, 12]),
    (70_000, 0, 9, []),
]
QWEN = [
    (7, -1, 0.5, 40, 9, "text", 1, [1, 2, 3]),
    (9, -1, 1.0, 40, 9, "search", 1, [1, 2, 4]),
    (11, 7, 9.25, 64, 9, "text", 2, [1, 2, 5, 6]),
    (12, 99, 10.0, 32, 9, "file", 4, [2, 3]),
    (13, 11, 30.5, 80, 9, "text", 3, [1, 2, 5, 6, 8]),
    (14, 99, 31.5, 32, 0, "text", 5, [2, 3]),
]


def json_lines(names, rows):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def mooncake(*rows):
    return json_lines(MOONCAKE_COLUMNS, rows)


def qwen(*rows):
    return json_lines(qwen_bailian.COLUMNS, rows)


TRACES = {
    "azure.csv": (AzureLlm, AZURE, {}),
    "week.csv": (AzureLlm, WEEK, {"year": 2024}),
    "burst.csv": (BurstGpt, BURST, {}),
    "talks.csv": (BurstGpt, SESSIONS, {}),
    "mooncake.jsonl": (Mooncake, mooncake(*MOONCAKE), {}),
    "qwen.jsonl": (QwenBailian, qwen(*QWEN), {}),
}
"""The reader of each, and what is in it: one of its rows has no prompt or no output."""


@pytest.fixture
def reading(tmp_path, monkeypatch):
    """Return a function that makes a workload of a trace, by default of the text above."""
    monkeypatch.chdir(tmp_path)

    def made(name, text=None, **settings):
        kind, own, more = TRACES[name]
        Path(name).write_text(own if text is None else text)
        usual = {"path": name, "popularity": InTurn(), "adapters": 10, "ranks": [8, 16]}
        return kind(**usual | more | settings)

    return made


SAYS = {
    "azure.csv": ([0, 4.314579, 60, 120.0000001], [374, 396, 91, 2000], [44, 109, 16, 1000], [0, 1, 2, 3]),
    "week.csv": ([0.0, 0.99007, 86400.49007], [5, 6, 7], [1, 2, 3], [0, 1, 2]),
    "burst.csv": ([0.0, 3.0, 15.0], [100, 200, 400], [20, 30, 40], [0, 1, 2]),
    "talks.csv": ([0, 2.5, 3.5, 4, 14.5], [100, 200, 300, 350, 400], [20, 30, 10, 10, 40], [0, 1, 2, 3, 0]),
    "mooncake.jsonl": (
        [0.0, 0.0, 1.5, 9.0, 9.0, 27.482],
        [1300, 900, 1537, 512, 300, 4000],
        [500, 40, 60, 7, 8, 9],
        [0, 1, 0, 2, 3, 1],
    ),
    "qwen.jsonl": ([0.0, 0.5, 8.75, 9.5, 30.0], [40, 40, 64, 32, 80], [9] * 5, [0, 1, 0, 2, 0]),
}
"""Seconds since the first row, prompts, outputs, and adapters in turn: one a session where the trace names sessions."""


@pytest.mark.parametrize("name", TRACES)
def test_arrivals_and_lengths_are_the_trace_s_and_a_session_has_one_adapter(name, reading):
    trace = reading(name).build(0)
    arrival_s, prompts, outputs, adapters = SAYS[name]
    assert trace.arrival_s == pytest.approx(arrival_s, abs=1e-9)
    assert trace.prompt_tokens.tolist() == prompts
    assert trace.output_tokens.tolist() == trace.max_output_tokens.tolist() == outputs
    assert trace.adapter.tolist() == adapters
    assert [spec.rank for spec in trace.adapters] == [8, 16] * 5
    rows = len(prompts) + 1
    notice = f"{name}: 1 of {rows} rows have no prompt or no output tokens and were dropped."
    assert trace.notices == (notice,)


@pytest.mark.parametrize("name", TRACES)
def test_without_adapters_it_is_for_the_base_model_and_speedup_squeezes_time_alone(name, reading):
    plain, fast = reading(name).build(0), reading(name, speedup=4).build(0)
    assert np.array_equal(fast.arrival_s, plain.arrival_s / 4)
    for column in ("adapter", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(fast, column), getattr(plain, column))
    assert fast.block_hashes == plain.block_hashes
    alone = reading(name, adapters=0).build(0)
    assert (alone.adapters, set(alone.adapter.tolist())) == ((), {BASE_MODEL})


@pytest.mark.parametrize(
    "name, window, arrival_s, adapters",
    [
        ("azure.csv", {"start_s": 4, "duration_s": 100}, [0.314579, 56.0], [0, 1]),
        pytest.param(
            "burst.csv", {"start_s": 3, "duration_s": 12}, [0.0], [0], id="from its start, before its end"
        ),
        ("talks.csv", {"start_s": 3.0}, [0.5, 1.0, 11.5], [2, 3, 0]),
        ("mooncake.jsonl", {"start_s": 1, "duration_s": 10, "speedup": 4}, [0.125, 2.0, 2.0], [0, 2, 3]),
        ("mooncake.jsonl", {"prompt_tokens_max": 1000}, [0.0, 9.0, 9.0], [1, 2, 3]),
        ("qwen.jsonl", {"start_s": 9.0}, [0.5, 21.0], [2, 0]),
        ("qwen.jsonl", {"types": ["file", "text"]}, [0.0, 8.75, 9.5, 30.0], [0, 0, 2, 0]),
    ],
)
def test_a_window_starts_the_clock_and_sessions_keep_their_adapters(
    name, window, arrival_s, adapters, reading
):
    trace = reading(name, **window).build(0)
    assert trace.arrival_s == pytest.approx(arrival_s)
    assert trace.adapter.tolist() == adapters


def test_longer_rows_are_dropped_with_a_notice(reading):
    trace = reading("mooncake.jsonl", prompt_tokens_max=1300, output_tokens_max=499).build(0)
    assert trace.prompt_tokens.tolist() == [900, 512, 300]
    assert trace.block_hashes == [(0, 3), (0,), (6,)]
    assert trace.notices[1].startswith("mooncake.jsonl: 3 of 7 rows exceed workload.prompt_tokens_max or ")


def test_unsorted_rows_are_sorted_with_a_notice_and_sessions_counted_as_they_come(reading):
    head, first, second, *_ = AZURE.splitlines()
    trace = reading("azure.csv", "\n".join([head, second, first])).build(0)
    assert trace.output_tokens.tolist() == [44, 109]
    said = "azure.csv, row 3: TIMESTAMP goes back, once in the file; the rows were sorted by it."
    assert trace.notices == (said,)
    trace = reading("mooncake.jsonl", mooncake(MOONCAKE[5], MOONCAKE[4], MOONCAKE[0])).build(0)
    assert trace.prompt_tokens.tolist() == [1300, 300, 4000]
    assert trace.adapter.tolist() == [0, 1, 2]
    assert "row 2: timestamp goes back, 2 times in the file" in trace.notices[0]


def test_adapters_are_drawn_by_popularity_with_the_run_s_seed(reading):
    drawn = reading("mooncake.jsonl", popularity=Uniform())
    assert drawn.build(1).adapter.tolist() == drawn.build(1).adapter.tolist()
    assert len({tuple(drawn.build(seed).adapter.tolist()) for seed in range(20)}) > 10
    assert set(replace(drawn, popularity=Power(0.001)).build(1).adapter.tolist()) == {0}


# What each has besides -----------------------------------------------------------------------


def test_models_and_kinds_of_logs_are_chosen_on_the_trace_s_own_clock(reading):
    assert reading("burst.csv", models=["GPT-4"]).build(0).arrival_s.tolist() == [3.0, 15.0]
    assert reading("burst.csv", log_types=["API log"]).build(0).prompt_tokens.tolist() == [200]
    both = reading("burst.csv", models=["GPT-4", "ChatGPT"], log_types=["Conversation log"]).build(0)
    assert both.prompt_tokens.tolist() == [100, 400]


def test_history_of_a_session_is_an_assumption_that_has_to_be_made(reading):
    assert reading("talks.csv").build(0).session is None
    assert reading("talks.csv", history=True).build(0).session == ["a", "b", None, None, "a"]


def test_chats_are_sessions_and_requests_of_a_parent_that_the_file_lacks_are_one(reading):
    trace = reading("qwen.jsonl").build(0)
    assert trace.session == ["chat_0", "chat_1", "chat_0", "chat_2", "chat_0"]
    answered = [(*row[:4], 9, *row[5:]) for row in QWEN]
    assert reading("qwen.jsonl", qwen(*answered)).build(0).session[3:] == ["chat_2", "chat_0", "chat_2"]


def test_a_block_counts_as_found_only_behind_equal_blocks(reading):
    """The fourth prompt begins with block 2, which has always been behind block 1."""
    trace = reading("qwen.jsonl").build(0)
    assert trace.hash_block_tokens == 16
    assert trace.block_hashes == [(0, 1, 2), (0, 1, 3), (0, 1, 4, 5), (6, 7), (0, 1, 4, 5, 8)]
    alone = reading("qwen.jsonl", adapters=0).build(0)
    assert ideal_reuse(alone).found_blocks == 2 + 2 + 4  # the second finds two, the third two, the last four
    assert ideal_reuse(trace).found_blocks == 2 + 4  # the second has an adapter of its own


def test_hashes_beyond_the_prompt_are_left_out_with_a_notice(reading):
    trace = reading("qwen.jsonl", qwen((1, -1, 0.0, 16, 5, "text", 1, [4, 5, 6]))).build(0)
    assert trace.block_hashes == [(0,)]
    (notice,) = trace.notices
    assert notice.startswith(
        "qwen.jsonl: 1 of 1 rows have more hash_ids than blocks of 16 tokens in input_length"
    )


@given(st.lists(st.lists(st.integers(0, 4), max_size=5).map(tuple), max_size=8))
def test_hashes_of_prefixes_are_equal_where_all_before_is(blocks):
    prefixes = of_prefixes(blocks)
    places = {}
    for own, found in zip(blocks, prefixes, strict=True):
        assert len(own) == len(found)
        for i, value in enumerate(found):
            assert places.setdefault(value, own[: i + 1]) == own[: i + 1]
    assert len(places) == len({own[: i + 1] for own in blocks for i in range(len(own))})
    assert of_prefixes(prefixes) == prefixes


# The published files -------------------------------------------------------------------------

FOLDER = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces"))
CONV, CONVERSATION = FOLDER / "azure_llm_2023_conv.csv", FOLDER / "mooncake_conversation.jsonl"
MISSING = "the published trace is not here; set SIMLORA_TRACE_DIR"
needs_azure = pytest.mark.skipif(not CONV.exists(), reason=MISSING)
needs_mooncake = pytest.mark.skipif(not CONVERSATION.exists(), reason=MISSING)


@needs_azure
def test_the_published_trace_of_azure():
    trace = AzureLlm(str(CONV), Uniform()).build(0)
    assert len(trace) == 19_366
    assert trace.notices == ()
    assert trace.duration_s == pytest.approx(3501.72, abs=0.01)
    assert trace.prompt_tokens.mean() == pytest.approx(1154.7, abs=0.05)
    assert trace.output_tokens.mean() == pytest.approx(211.1, abs=0.05)


@needs_mooncake
def test_the_published_trace_of_mooncake():
    trace = Mooncake(str(CONVERSATION), Uniform(), adapters=100).build(1)
    assert len(trace) == 12_031
    assert trace.notices == ()
    assert trace.duration_s == pytest.approx(3536.999)
    assert trace.prompt_tokens.mean() == pytest.approx(12_035.1, abs=0.05)
    assert trace.output_tokens.mean() == pytest.approx(342.6, abs=0.05)
    users = defaultdict(set)
    for hashes, adapter in zip(trace.block_hashes, trace.adapter.tolist(), strict=True):
        assert hashes[0] == 0
        users[hashes[1]].add(adapter)
    assert len(users) == 7_373
    assert all(len(adapters) == 1 for adapters in users.values())
    assert len(np.unique(trace.adapter)) == 100


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("azure.csv", "2023-11-16 18:15:51,", "soon,", "row 4: TIMESTAMP is 'soon', must be a time such as"),
        ("burst.csv", ",200,30", ",200,", "row 3: Response tokens is empty, must be a whole number of"),
        ("mooncake.jsonl", "hash_ids", "hash", "'hash', which is unknown"),
    ],
)
def test_a_bad_table_is_refused(name, old, new, message, reading):
    with pytest.raises(InputError, match=message):
        reading(name, TRACES[name][1].replace(old, new)).build(0)


@pytest.mark.parametrize(
    "row, message",
    [
        ((-1, 9, 9, [1]), "row 8: timestamp is -1, must be a whole number of milliseconds, at least 0"),
        ((0, 9, 9, "seven"), "row 8: hash_ids is 'seven', must be whole numbers, apart by spaces or as a"),
        ((0, 513, 9, [0]), r"row 8: hash_ids is \[0\], must be one whole number for each 512 .* here 2"),
        ((0, 1024, 9, [6, 1]), "row 8: hash_ids is .*, must be of prefixes: behind equal numbers equal"),
        ((1, -2, 0, 9, 9, "text", 1, [1]), "row 7: parent_chat_id is -2, must be a whole number, -1 for the"),
    ],
)
def test_a_bad_row_of_mooncake_or_of_qwen_is_refused(row, message, reading):
    name, text = ("mooncake.jsonl", mooncake(row)) if len(row) == 4 else ("qwen.jsonl", qwen(row))
    with pytest.raises(InputError, match=message):
        reading(name, TRACES[name][1] + text).build(0)


LEFT = "has no requests left after"


@pytest.mark.parametrize(
    "name, setting, message",
    [
        ("azure.csv", {"year": 2025}, "workload.year is 2025, must be one of 2023, 2024"),
        ("azure.csv", {"start_s": 500}, f"{LEFT} workload.start_s.* it covers 120 seconds"),
        ("burst.csv", {"models": ["GPT-5"]}, "workload.models has 'GPT-5', which no .* did you mean GPT-4"),
        ("burst.csv", {"models": ["GPT-4"], "log_types": ["API log"], "start_s": 9.0}, LEFT),
        ("qwen.jsonl", {"types": ["txt"]}, r"workload.types has 'txt', which no .* has; did you mean text\?"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(name, setting, message, reading):
    with pytest.raises(InputError, match=message):
        reading(name, **setting).build(0)
