"""ShareGPT and LMSYS-Chat-1M: what was said becomes requests, with times that no file has."""

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
"""The speaker and the length, in characters, of each message of each conversation."""


def shared(path, talks):
    rows = [
        {"id": str(i), "conversations": [{"from": speaker, "value": "x" * n} for speaker, n in talk]}
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
    dropped = "2 of 5 rows have no question with an answer and were dropped."
    assert trace.notices == (f"{sharegpt.path}: {dropped}",)
    whole = replace(sharegpt, tokens_per_character=1.0).build(0)
    assert sorted(whole.prompt_tokens.tolist()) == [28, 40, 120, 161]
    reuse = ideal_reuse(trace, block_tokens=1)
    assert reuse.found_tokens == 10 + 20 - 1  # the last token of an answer has no KV


def test_conversations_begin_by_their_arrivals_and_turns_follow_by_gaps_for_one_adapter(sharegpt):
    assert sharegpt.build(0).arrival_s.tolist() == [1.0, 2.0, 3.0, 101.0]
    slower = replace(sharegpt, arrivals=Gamma(0.5, 0.0), gap_s=2.0)
    assert slower.build(0).arrival_s.tolist() == [2.0, 4.0, 4.0, 6.0]
    assert sharegpt.build(0).adapter.tolist() == [0, 1, 2, 0]
    assert set(replace(sharegpt, adapters=0).build(0).adapter.tolist()) == {BASE_MODEL}
    drawn = replace(sharegpt, arrivals=Poisson(1.0), gap_cv=1.0)
    assert drawn.build(1).arrival_s.tolist() == drawn.build(1).arrival_s.tolist()
    assert len({tuple(drawn.build(seed).arrival_s.tolist()) for seed in range(5)}) == 5


def test_a_conversation_ends_before_it_is_too_long(sharegpt):
    trace = replace(sharegpt, context_tokens=42).build(0)
    assert sorted(trace.prompt_tokens.tolist()) == [7, 10, 30]
    dropped = "1 of 4 turns exceed workload.context_tokens and were dropped."
    assert trace.notices[1] == f"{sharegpt.path}: {dropped}"
    with pytest.raises(InputError, match=r"has no turn with a question and an answer within"):
        replace(sharegpt, context_tokens=2).build(0)


def test_a_file_without_a_question_and_its_answer_is_refused(sharegpt):
    shared(Path(sharegpt.path), [[("gpt", 8)], [("human", 8)], []])
    for adapters in (10, 0):
        with pytest.raises(InputError, match=r"sharegpt.json has no turn with a question and an answer"):
            replace(sharegpt, adapters=adapters).build(0)


def test_lengths_need_no_estimate_and_may_have_arrivals_of_their_own(sharegpt, tmp_path):
    (tmp_path / "lengths.csv").write_text("input_tokens,output_tokens\n100,5\n30,6\n")
    alone = replace(sharegpt, path=str(tmp_path / "lengths.csv"))
    trace = alone.build(0)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([100, 30], [5, 6])
    assert trace.arrival_s.tolist() == [1.0, 2.0]
    (tmp_path / "lengths.csv").write_text("arrival_s,input_tokens,output_tokens\n9,100,5\n7.5,30,6\n")
    own = replace(alone, arrivals=None).build(0)
    assert own.arrival_s.tolist() == [7.5, 9.0]
    assert own.prompt_tokens.tolist() == [30, 100]
    assert alone.build(0).arrival_s.tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match=r"workload.arrivals is empty, must be chosen with workload/arr"):
        replace(sharegpt, arrivals=None).build(0)


# LMSYS ---------------------------------------------------------------------------------------


def test_conversations_of_a_parquet_file_of_which_only_what_is_needed_is_read(lmsys):
    for dropped in ([], ["turn", "redacted", "openai_moderation"]):
        pd.read_parquet(lmsys.path).drop(columns=dropped).to_parquet(lmsys.path)
        trace = lmsys.build(0)
        assert trace.prompt_tokens.tolist() == [2] * 4
        assert trace.output_tokens.tolist() == [1] * 4
        assert len(trace.adapters) == 100


def test_a_model_can_be_the_adapter(lmsys):
    by_model = replace(lmsys, adapter_by="model")
    trace = by_model.build(0)
    assert trace.adapters == (AdapterSpec("<b>owl</b>", 8), AdapterSpec("owl", 16), AdapterSpec("wren", 8))
    assert np.bincount(trace.adapter).tolist() == [1, 1, 2]
    frame = pd.read_parquet(lmsys.path)
    frame.loc[1, "model"] = None
    frame.to_parquet(lmsys.path)
    with pytest.raises(InputError, match="row 2: model is empty, must be the name of a model"):
        by_model.build(0)


# What is refused -----------------------------------------------------------------------------


LIST = "must be a list of messages"


@pytest.mark.parametrize(
    "text, message",
    [
        ("{}", "is JSON of another kind, must be a list of objects such as"),
        ("[{", "is not well-formed JSON: Expecting"),
        ('[{"id": 1, "id": 2}]', "is not well-formed JSON: the key 'id' comes twice"),
        ("[]", "has no column conversations, must have id, conversations, or input_tokens, output_tokens"),
        ('[{"conversations": "hi"}]', f"row 1: conversations is 'hi', {LIST}, each with from and"),
        ('[{"conversations": [5]}]', rf"row 1: conversations is \[5\], {LIST}"),
        ('[{"conversations": []}, {"conversations": [{"from": "gpt"}]}]', "row 2: conversations is"),
    ],
)
def test_a_file_of_another_kind_is_refused(sharegpt, text, message):
    Path(sharegpt.path).write_text(text)
    with pytest.raises(InputError, match=message):
        sharegpt.build(0)
