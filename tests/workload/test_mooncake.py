"""The Mooncake conversation trace, as published: prefixes as they are, and an adapter for each session."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload.mooncake import Mooncake
from simlora.workload.popularity import InTurn, Power, Uniform
from simlora.workload.reuse import ideal_reuse

ROWS = [
    (0, 1300, 500, [0, 1, 2]),  # the first session
    (0, 900, 40, [0, 3]),  # the second
    (1500, 1537, 60, [0, 1, 4, 5]),
    (9000, 512, 7, [0]),  # alone
    (9000, 300, 8, [6]),  # alone too
    (27482, 4000, 9, [0, 3, 7, 8, 9, 10, 11, 12]),
    (60000, 0, 9, []),
]
PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "mooncake_conversation.jsonl"


def written(path, rows):
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


@pytest.fixture
def mooncake(tmp_path):
    file = tmp_path / "mooncake.jsonl"
    written(file, ROWS)
    return Mooncake(str(file), InTurn(), adapters=10, ranks=[32, 64])


def test_arrivals_are_seconds_since_the_first_row(mooncake):
    assert mooncake.build(0).arrival_s.tolist() == [0.0, 0.0, 1.5, 9.0, 9.0, 27.482]
    written(Path(mooncake.path), [(time + 10_000, *row) for time, *row in ROWS])
    assert mooncake.build(0).arrival_s.tolist() == [0.0, 0.0, 1.5, 9.0, 9.0, 27.482]


def test_lengths_and_hashes_are_the_trace_s(mooncake):
    trace = mooncake.build(0)
    assert trace.prompt_tokens.tolist() == [1300, 900, 1537, 512, 300, 4000]
    assert trace.output_tokens.tolist() == trace.max_output_tokens.tolist() == [500, 40, 60, 7, 8, 9]
    assert trace.block_hashes == [tuple(hashes) for *_, hashes in ROWS[:-1]]
    assert trace.hash_block_tokens == 512
    assert trace.session is None


def test_rows_without_tokens_are_dropped_with_a_notice(mooncake):
    notice = f"{mooncake.path}: 1 of 7 rows have no prompt or no output tokens and were dropped."
    assert mooncake.build(0).notices == (notice,)


# Adapters ------------------------------------------------------------------------------------


def test_a_session_has_one_adapter_and_a_prompt_of_one_block_is_a_session(mooncake):
    """In turn, the first session has the first adapter: the second blocks are 1, 3, 1, none, none, 3."""
    assert mooncake.build(0).adapter.tolist() == [0, 1, 0, 2, 3, 1]


def test_adapters_are_drawn_with_the_run_s_seed(mooncake):
    drawn = replace(mooncake, popularity=Uniform())
    assert drawn.build(1).adapter.tolist() == drawn.build(1).adapter.tolist()
    assert len({tuple(drawn.build(seed).adapter.tolist()) for seed in range(20)}) > 10
    assert set(replace(mooncake, popularity=Power(0.001)).build(1).adapter.tolist()) == {0}
    assert [spec.rank for spec in drawn.build(1).adapters[:3]] == [32, 64, 32]


def test_sessions_keep_their_adapters_whatever_is_cut(mooncake):
    drawn = replace(mooncake, popularity=Uniform(), adapters=1000)
    whole = drawn.build(1).adapter.tolist()
    assert replace(drawn, start_s=1).build(1).adapter.tolist() == whole[2:]
    assert replace(drawn, prompt_tokens_max=1000).build(1).adapter.tolist() == [whole[i] for i in (1, 3, 4)]


def test_unsorted_rows_are_sorted_with_a_notice_and_sessions_counted_as_they_come(mooncake):
    written(Path(mooncake.path), [ROWS[5], ROWS[4], ROWS[0]])
    trace = mooncake.build(0)
    assert trace.prompt_tokens.tolist() == [1300, 300, 4000]
    assert trace.adapter.tolist() == [0, 1, 2]
    assert "row 2: timestamp goes back, 2 times in the file" in trace.notices[0]


def test_no_adapters_is_the_base_model(mooncake):
    trace = replace(mooncake, adapters=0).build(1)
    assert (trace.adapters, set(trace.adapter.tolist())) == ((), {BASE_MODEL})


# The window ----------------------------------------------------------------------------------


def test_a_window_starts_the_clock_and_speedup_squeezes_it(mooncake):
    cut = replace(mooncake, start_s=1, duration_s=10)
    assert cut.build(0).arrival_s.tolist() == [0.5, 8.0, 8.0]
    fast = replace(cut, speedup=4).build(0)
    assert fast.arrival_s.tolist() == [0.125, 2.0, 2.0]
    assert fast.block_hashes == cut.build(0).block_hashes


def test_longer_rows_are_dropped_with_a_notice(mooncake):
    trace = replace(mooncake, prompt_tokens_max=1500, output_tokens_max=400).build(0)
    assert trace.prompt_tokens.tolist() == [900, 512, 300]
    assert trace.block_hashes == [(0, 3), (0,), (6,)]
    assert trace.notices[1].startswith(f"{mooncake.path}: 3 of 7 rows exceed workload.prompt_tokens_max or ")


# The published file --------------------------------------------------------------------------


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published trace is not here; set SIMLORA_TRACE_DIR")
def test_the_published_file():
    whole = Mooncake(str(PUBLISHED), Uniform(), adapters=100)
    trace = whole.build(1)
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


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published trace is not here; set SIMLORA_TRACE_DIR")
def test_sessions_share_next_to_nothing_so_that_adapters_take_little_reuse_away():
    base = Mooncake(str(PUBLISHED), Uniform(), adapters=0)
    found = [ideal_reuse(replace(base, adapters=adapters).build(1)).of_blocks for adapters in (0, 1, 100)]
    assert found == pytest.approx([0.3660, 0.3660, 0.3657], abs=5e-5)


# What is refused -----------------------------------------------------------------------------


def test_a_missing_file_says_how_to_get_it():
    with pytest.raises(InputError) as error:
        Mooncake("traces/gone.jsonl", Uniform()).build(0)
    assert str(error.value) == (
        "traces/gone.jsonl does not exist; get FAST25-release/traces/conversation_trace.jsonl from kvcache-ai/Mooncake "
        "on GitHub, save it under that name, and set SIMLORA_TRACE_DIR to its folder or workload.path to the file"
    )


@pytest.mark.parametrize(
    "row, message",
    [
        ((-1, 9, 9, [1]), "row 8: timestamp is -1, must be a whole number of milliseconds, at least 0"),
        ((0.5, 9, 9, [1]), "row 8: timestamp is 0.5, must be a whole number of milliseconds"),
        ((0, -9, 9, []), "row 8: input_length is -9, must be a whole number of tokens, at least 0"),
        ((0, 9, None, [1]), "row 8: output_length is empty, must be a whole number of tokens"),
        (
            (0, 9, 9, "seven"),
            "row 8: hash_ids is 'seven', must be whole numbers, apart by spaces or as a list",
        ),
        ((0, 9, 9, [1.5]), r"row 8: hash_ids is \[1.5\], must be whole numbers"),
        (
            (0, 513, 9, [0]),
            r"row 8: hash_ids is \[0\], must be one whole number for each 512 tokens of input_length, here 2",
        ),
        (
            (0, 512, 9, [0, 1]),
            r"row 8: hash_ids is \[0, 1\], must be one whole number for each 512 tokens of input_length, here 1",
        ),
        ((0, 1024, 9, [6, 1]), "row 8: hash_ids is .*, must be of prefixes: behind equal numbers equal"),
    ],
)
def test_a_bad_row_is_refused(mooncake, row, message):
    written(Path(mooncake.path), [*ROWS, row])
    with pytest.raises(InputError, match=message):
        mooncake.build(0)


def test_another_file_is_refused(mooncake):
    Path(mooncake.path).write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n')
    with pytest.raises(
        InputError, match="has no column hash_ids, must have timestamp, input_length, output_l"
    ):
        mooncake.build(0)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"path": None}, "workload.path is not set, must be Mooncake's conversation trace as published"),
        ({"adapters": -1}, "workload.adapters is -1"),
        ({"popularity": Power(0)}, "workload.popularity.alpha is 0"),
        ({"speedup": 0}, "workload.speedup is 0, must be greater than 0"),
        ({"start_s": 500}, "has no requests left after workload.start_s.* it covers 60 seconds"),
        ({"output_tokens_max": 1}, "has no requests left after"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(mooncake, setting, message):
    with pytest.raises(InputError, match=message):
        replace(mooncake, **setting).build(0)
