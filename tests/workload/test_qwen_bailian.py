"""The Qwen-Bailian traces, as published: chats, and prefixes of 16 tokens a block."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.workload.blocks import of_prefixes
from simlora.workload.popularity import InTurn, Uniform
from simlora.workload.qwen_bailian import COLUMNS, QwenBailian
from simlora.workload.reuse import ideal_reuse

ROWS = [
    (7, -1, 0.5, 40, 9, "text", 1, [1, 2, 3]),
    (9, -1, 1.0, 40, 9, "search", 1, [1, 2, 4]),
    (11, 7, 9.25, 64, 9, "text", 2, [1, 2, 5, 6]),
    (12, 99, 10.0, 32, 9, "file", 4, [2, 3]),
    (13, 11, 30.5, 80, 9, "text", 3, [1, 2, 5, 6, 8]),
    (14, 99, 31.5, 32, 0, "text", 5, [2, 3]),
]


def written(path, rows):
    path.write_text("".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows))


@pytest.fixture
def qwen(tmp_path):
    file = tmp_path / "qwen.jsonl"
    written(file, ROWS)
    return QwenBailian(str(file), InTurn(), adapters=10, ranks=[32, 64])


def test_arrivals_lengths_and_chats_are_the_trace_s(qwen):
    trace = qwen.build(0)
    assert trace.arrival_s.tolist() == [0.0, 0.5, 8.75, 9.5, 30.0]
    assert trace.prompt_tokens.tolist() == [40, 40, 64, 32, 80]
    assert trace.session == ["chat_0", "chat_1", "chat_0", "chat_2", "chat_0"]
    assert trace.hash_block_tokens == 16
    assert "1 of 6 rows have no prompt or no output" in trace.notices[0]


def test_a_chat_has_one_adapter_whatever_is_cut(qwen):
    assert qwen.build(0).adapter.tolist() == [0, 1, 0, 2, 0]
    assert replace(qwen, start_s=9.0).build(0).adapter.tolist() == [2, 0]
    assert replace(qwen, types=["file", "text"]).build(0).adapter.tolist() == [0, 0, 2, 0]
    many = replace(qwen, popularity=Uniform(), adapters=1000)
    assert many.build(1).adapter.tolist() == many.build(1).adapter.tolist()


def test_requests_of_a_parent_that_the_file_lacks_are_one_chat(qwen):
    written(Path(qwen.path), [(*row[:4], 9, *row[5:]) for row in ROWS])
    assert qwen.build(0).session[-1] == qwen.build(0).session[3] == "chat_2"


def test_a_block_counts_as_found_only_behind_equal_blocks(qwen):
    """The fourth prompt begins with block 2, which has always been behind block 1."""
    hashes = qwen.build(0).block_hashes
    assert hashes == [(0, 1, 2), (0, 1, 3), (0, 1, 4, 5), (6, 7), (0, 1, 4, 5, 8)]
    alone = replace(qwen, adapters=0).build(0)
    assert ideal_reuse(alone).found_blocks == 2 + 2 + 4  # the second finds two, the third two, the last four
    assert ideal_reuse(qwen.build(0)).found_blocks == 2 + 4  # the second has an adapter of its own


def test_hashes_beyond_the_prompt_are_left_out_with_a_notice(qwen):
    written(Path(qwen.path), [(1, -1, 0.0, 16, 5, "text", 1, [4, 5, 6])])
    trace = qwen.build(0)
    assert trace.block_hashes == [(0,)]
    assert trace.notices == (
        f"{qwen.path}: 1 of 1 rows have more hash_ids than blocks of 16 tokens in input_length; those beyond were left "
        "out.",
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


@pytest.mark.parametrize(
    "row, message",
    [
        ((-1, -1, 0, 9, 9, "text", 1, [1]), "row 7: chat_id is -1, must be a whole number, at least 0"),
        (
            (1, -2, 0, 9, 9, "text", 1, [1]),
            "row 7: parent_chat_id is -2, must be a whole number, -1 for the first",
        ),
        ((1, -1, -5, 9, 9, "text", 1, [1]), "row 7: timestamp is -5, must be a finite number of seconds"),
        ((1, -1, 0, 9.5, 9, "text", 1, [1]), "row 7: input_length is 9.5, must be a whole number of tokens"),
        ((1, -1, 0, 9, 9, "text", 1, "one"), "row 7: hash_ids is 'one', must be whole numbers"),
    ],
)
def test_a_bad_row_is_refused(qwen, row, message):
    written(Path(qwen.path), [*ROWS, row])
    with pytest.raises(InputError, match=message):
        qwen.build(0)


def test_a_kind_that_nobody_asked_for_is_refused(qwen):
    with pytest.raises(
        InputError, match=r"workload.types has 'txt', which no row of .* has; did you mean text\?"
    ):
        replace(qwen, types=["txt"]).build(0)
