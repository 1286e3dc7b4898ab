"""ShareGPT and LMSYS-Chat-1M: what was said becomes requests, with times that nobody has written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL, AdapterSpec
from simlora.workload.arrivals import Gamma, Poisson
from simlora.workload.lmsys import Lmsys
from simlora.workload.popularity import InTurn, Uniform
from simlora.workload.reuse import ideal_reuse
from simlora.workload.sharegpt import ShareGpt

TALKS = [
    [("human", 40), ("gpt", 80), ("human", 41), ("gpt", 8)],
    [("system", 100), ("human", 20), ("gpt", 4), ("human", 4)],
    [("gpt", 12), ("human", 8), ("human", 8), ("gpt", 16)],
    [("human", 40), ("gpt", 0)],
    [],
]
"""Who says how many characters."""


def shared(path, talks):
    rows = [
        {"id": str(i), "conversations": [{"from": who, "value": "x" * n} for who, n in talk]}
        for i, talk in enumerate(talks)
    ]
    path.write_text(json.dumps(rows))


@pytest.fixture
def sharegpt(tmp_path):
    file = tmp_path / "sharegpt.json"
    shared(file, TALKS)
    return ShareGpt(str(file), InTurn(), Gamma(1.0, 0.0), adapters=10, ranks=[8, 16], gap_s=100.0, gap_cv=0.0)


@pytest.fixture
def lmsys(tmp_path):
    rows = [
        {
            "conversation_id": f"c{i}",
            "model": model,
            "conversation": [{"role": "user", "content": "x" * 8}, {"role": "assistant", "content": "y" * 4}],
            "turn": 1,
            "language": "English",
            "openai_moderation": [{"flagged": False}],
            "redacted": False,
        }
        for i, model in enumerate(["wren", "owl", "wren", "<b>owl</b>"])
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "train.parquet")
    return Lmsys(str(tmp_path / "train.parquet"), Uniform(), Poisson(2.0), ranks=[8, 16])


# What becomes of what was said ---------------------------------------------------------------


def test_a_prompt_is_all_that_was_said_before_and_the_question(sharegpt):
    trace = sharegpt.build(0)
    said = sorted(zip(trace.session, trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert said == [
        ("conversation_0", 10, 20),
        ("conversation_0", 41, 2),  # 10 + 20 and 41 / 4, rounded up
        ("conversation_1", 30, 1),
        ("conversation_2", 7, 4),
    ]
    assert trace.notices == (
        f"{sharegpt.path}: 2 of 5 rows have no question with an answer and were dropped.",
    )


def test_conversations_begin_by_their_arrivals_and_turns_follow_by_gaps(sharegpt):
    assert sharegpt.build(0).arrival_s.tolist() == [1.0, 2.0, 3.0, 101.0]
    slower = replace(sharegpt, arrivals=Gamma(0.5, 0.0), gap_s=2.0)
    assert slower.build(0).arrival_s.tolist() == [2.0, 4.0, 4.0, 6.0]


def test_times_are_drawn_with_the_run_s_seed(sharegpt):
    drawn = replace(sharegpt, arrivals=Poisson(1.0), gap_cv=1.0)
    assert drawn.build(1).arrival_s.tolist() == drawn.build(1).arrival_s.tolist()
    assert len({tuple(drawn.build(seed).arrival_s.tolist()) for seed in range(5)}) == 5


def test_a_conversation_has_one_adapter(sharegpt):
    assert sharegpt.build(0).adapter.tolist() == [0, 1, 2, 0]
    assert set(replace(sharegpt, adapters=0).build(0).adapter.tolist()) == {BASE_MODEL}


def test_the_next_turn_finds_what_was_said(sharegpt):
    reuse = ideal_reuse(sharegpt.build(0), block_tokens=1)
    assert reuse.found_tokens == 10 + 20 - 1  # the last token of an answer has no KV


def test_characters_become_tokens_at_a_rate_of_one_s_own(sharegpt):
    assert sorted(replace(sharegpt, tokens_per_character=1.0).build(0).prompt_tokens.tolist()) == [
        28,
        40,
        120,
        161,
    ]


def test_a_conversation_ends_before_it_is_too_long(sharegpt):
    trace = replace(sharegpt, context_tokens=42).build(0)
    assert sorted(trace.prompt_tokens.tolist()) == [7, 10, 30]
    assert (
        trace.notices[1] == f"{sharegpt.path}: 1 of 4 turns exceed workload.context_tokens and were dropped."
    )
    with pytest.raises(
        InputError, match=r"has no turn with a question and an answer within workload.context_tokens"
    ):
        replace(sharegpt, context_tokens=2).build(0)


def test_a_file_without_a_question_and_its_answer_is_refused(sharegpt):
    shared(Path(sharegpt.path), [[("gpt", 8)], [("human", 8)], []])
    for adapters in (10, 0):
        with pytest.raises(InputError, match=r"sharegpt.json has no turn with a question and an answer"):
            replace(sharegpt, adapters=adapters).build(0)


def test_an_object_a_line_is_read_as_a_list_is(sharegpt, tmp_path):
    rows = json.loads(Path(sharegpt.path).read_text())
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = replace(sharegpt, path=str(tmp_path / "lines.jsonl")).build(0)
    assert lines.prompt_tokens.tolist() == sharegpt.build(0).prompt_tokens.tolist()


# Lengths alone -------------------------------------------------------------------------------


def test_lengths_need_no_estimate(sharegpt, tmp_path):
    (tmp_path / "lengths.csv").write_text("input_tokens,output_tokens\n100,5\n30,6\n")
    trace = replace(sharegpt, path=str(tmp_path / "lengths.csv")).build(0)
    assert trace.prompt_tokens.tolist() == [100, 30]
    assert trace.output_tokens.tolist() == [5, 6]
    assert trace.arrival_s.tolist() == [1.0, 2.0]


def test_lengths_may_have_arrivals_of_their_own(sharegpt, tmp_path):
    (tmp_path / "lengths.csv").write_text("arrival_s,input_tokens,output_tokens\n9,100,5\n7.5,30,6\n")
    own = replace(sharegpt, path=str(tmp_path / "lengths.csv"), arrivals=None)
    assert own.build(0).arrival_s.tolist() == [7.5, 9.0]
    assert own.build(0).prompt_tokens.tolist() == [30, 100]
    assert replace(own, arrivals=Gamma(1.0, 0.0)).build(0).arrival_s.tolist() == [1.0, 2.0]


def test_without_arrivals_it_says_what_to_choose(sharegpt):
    with pytest.raises(
        InputError, match=r"workload.arrivals is empty, must be chosen with workload/arrivals=poisson"
    ):
        replace(sharegpt, arrivals=None).build(0)


# LMSYS ---------------------------------------------------------------------------------------


def test_conversations_of_a_parquet_file(lmsys):
    trace = lmsys.build(0)
    assert trace.prompt_tokens.tolist() == [2] * 4
    assert trace.output_tokens.tolist() == [1] * 4
    assert len(trace.adapters) == 100


def test_a_model_can_be_the_adapter(lmsys):
    trace = replace(lmsys, adapter_by="model").build(0)
    assert trace.adapters == (AdapterSpec("<b>owl</b>", 8), AdapterSpec("owl", 16), AdapterSpec("wren", 8))
    assert np.bincount(trace.adapter).tolist() == [1, 1, 2]


def test_what_it_does_not_need_it_does_not_read(lmsys):
    frame = pd.read_parquet(lmsys.path).drop(columns=["turn", "redacted", "openai_moderation"])
    frame.to_parquet(lmsys.path)
    assert len(lmsys.build(0)) == 4


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, message",
    [
        ("{}", "is JSON of another kind, must be a list of objects such as"),
        ("[1]", "is JSON of another kind, must be a list of objects"),
        ("[{", "is not well-formed JSON: Expecting"),
        ('[{"id": 1, "id": 2}]', "is not well-formed JSON: the key 'id' comes twice"),
        ("[" * 100_000, "is not well-formed JSON"),
        ("[]", "has no column conversations, must have id, conversations, or input_tokens, output_tokens"),
        ('[{"id": "a"}]', "has no column conversations, must have id, conversations, or input_tokens"),
        (
            '[{"conversations": "hi"}]',
            "row 1: conversations is 'hi', must be a list of messages, each with from and",
        ),
        ('[{"conversations": [5]}]', r"row 1: conversations is \[5\], must be a list of messages"),
        (
            '[{"conversations": []}, {"conversations": [{"from": "gpt"}]}]',
            "row 2: conversations is .*, must be a list",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused(sharegpt, text, message):
    Path(sharegpt.path).write_text(text)
    with pytest.raises(InputError, match=message):
        sharegpt.build(0)


def test_an_empty_model_is_refused(lmsys):
    frame = pd.read_parquet(lmsys.path)
    frame.loc[1, "model"] = None
    frame.to_parquet(lmsys.path)
    with pytest.raises(InputError, match="row 2: model is empty, must be the name of a model"):
        replace(lmsys, adapter_by="model").build(0)


@pytest.mark.parametrize(
    "setting, message",
    [
        (
            {"tokens_per_character": 0},
            "workload.tokens_per_character is 0, must be greater than 0 and at most 10",
        ),
        ({"gap_s": 0}, "workload.gap_s is 0"),
        ({"gap_cv": -1}, "workload.gap_cv is -1"),
        ({"context_tokens": 1}, "workload.context_tokens is 1"),
        ({"rows": 0}, "workload.rows is 0"),
        ({"adapters": -1}, "workload.adapters is -1"),
        ({"arrivals": Poisson(0)}, "workload.arrivals.rate_rps is 0"),
        ({"adapter_by": "user"}, "workload.adapter_by is 'user', must be one of conversation, model"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(lmsys, setting, message):
    with pytest.raises(InputError, match=message):
        replace(lmsys, **setting)
