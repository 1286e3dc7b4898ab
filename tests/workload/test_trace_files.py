"""Traces in our own format: what is read, and what is said about what cannot be."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.workload import export
from simlora.workload.export import write
from simlora.workload.file import File
from tests.traces import HEADER, csv

GOOD = "0.5,a,8,10,20"


def read(path):
    return File(path).build(seed=0)


def error(path):
    """Return what is said about the file, its folder cut off: one plain sentence."""
    with pytest.raises(InputError) as caught:
        read(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(path)
    return sentence[path.rindex("/") + 1 :]


def same(one: Trace, other: Trace) -> bool:
    names = ("arrival_s", "adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        and one.adapters == other.adapters
        and (one.session is None) == (other.session is None)
        and list(one.session or ()) == list(other.session or ())
        and list(one.block_hashes or ()) == list(other.block_hashes or ())
    )


# What is read


def test_a_plain_file(tmp_path):
    trace = read(csv(tmp_path, "0,b,16,10,20", "1.25,a,8,1,2", "1.25,,,5,6"))
    assert trace.arrival_s.tolist() == [0, 1.25, 1.25]
    assert trace.adapters == (AdapterSpec("a", 8), AdapterSpec("b", 16))
    assert trace.adapter.tolist() == [1, 0, BASE_MODEL]
    assert trace.prompt_tokens.tolist() == [10, 1, 5]
    assert trace.max_output_tokens.tolist() == trace.output_tokens.tolist() == [20, 2, 6]
    assert (trace.session, trace.block_hashes, trace.notices) == (None, None, ())


def test_all_columns_in_any_order(tmp_path):
    header = "block_hashes,session,output_tokens,prompt_tokens,max_output_tokens,rank,adapter,arrival_s"
    rows = ("1 2 3,s1,20,40,30,8,a,0", ",,20,10,,8,a,1", '"[7, 8]",007,20,40,20,8,a,2')
    trace = read(csv(tmp_path, *rows, header=header))
    assert trace.max_output_tokens.tolist() == [30, 20, 20]
    assert trace.session == ["s1", None, "007"]
    assert trace.block_hashes == [(1, 2, 3), (), (7, 8)]


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{HEADER}\n{GOOD}\n",
        f"{HEADER}\r\n{GOOD}\r\n",
        f"{HEADER}\n{GOOD}",
        f"{HEADER}\n\n{GOOD}\n\n,,,,\n",
        "arrival_s, adapter, rank, prompt_tokens, output_tokens\n0.5, a, 8, 10, 20\n",
        f"{HEADER}\n0.5,a,8.0,1e1,20.0\n",
    ],
    ids=["byte order mark", "carriage returns", "no last newline", "blank lines", "spaces", "floats"],
)
def test_csv_as_programs_write_it(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_bytes(text.encode())
    assert same(read(str(file)), read(csv(tmp_path, GOOD, name="plain.csv")))


def test_unsorted_rows_are_sorted_stably_with_a_notice(tmp_path):
    rows = ("2,a,8,1,1,late,9", "1,a,8,2,1,early,4", "2,a,8,3,1,,", "1,a,8,4,1,,")
    path = csv(tmp_path, *rows, header=HEADER + ",session,block_hashes")
    trace = read(path)
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3]
    assert (trace.session[0], trace.session[2]) == ("early", "late")
    assert (trace.block_hashes[0], trace.block_hashes[2]) == ((4,), (9,))
    assert trace.notices == (
        f"{path}, row 3: arrival_s goes back, 2 times in the file; the rows were sorted by it.",
    )


def test_adapters_are_numbered_by_name_with_numbers_in_them_as_numbers(tmp_path):
    rows = [f"{i},{name},8,1,1" for i, name in enumerate(["x10", "x9", "x1", "b", "x" + "9" * 5000])]
    names = [spec.name for spec in read(csv(tmp_path, *rows)).adapters]
    assert names[:4] == ["b", "x1", "x9", "x10"]
    assert names == [spec.name for spec in read(csv(tmp_path, *reversed(rows))).adapters]


def test_names_stay_names(tmp_path):
    row = {"arrival_s": 0, "adapter": 7, "rank": 8, "prompt_tokens": 1, "output_tokens": 1, "session": 12}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    trace = read(str(tmp_path / "t.jsonl"))
    assert (trace.adapters[0].name, trace.session) == ("7", ["12"])
    words = read(csv(tmp_path, "0,null,8,1,1", "1,NA,8,1,1"))
    assert words.adapters == (AdapterSpec("NA", 8), AdapterSpec("null", 8))
    spaced = read(csv(tmp_path, "0,a,8,10,5", "1,a ,8,10,5", "2, a,8,10,5", "3, ,,10,5"))
    assert (spaced.adapters, spaced.adapter.tolist()) == ((AdapterSpec("a", 8),), [0, 0, 0, BASE_MODEL])
    alone = read(csv(tmp_path, "0,,,1,1", "1,,,1,1"))
    assert (alone.adapters, alone.adapter.tolist()) == ((), [BASE_MODEL, BASE_MODEL])


NAMES = st.text("abcXYZ019_-./,;\"'<>&é", min_size=1, max_size=6)


@st.composite
def traces(draw):
    n = draw(st.integers(1, 12))

    def column(strategy):
        return draw(st.lists(strategy, min_size=n, max_size=n))

    named = dict(zip(column(NAMES), column(st.integers(1, 1024)), strict=True))
    specs = tuple(AdapterSpec(name, rank) for name, rank in named.items())
    outputs = np.array(column(st.integers(1, 10**6)))
    chain = draw(st.lists(st.integers(0, 2**63 - 1), min_size=3, max_size=3, unique=True))
    arrival_s = np.sort(np.array(column(st.floats(0, 9e6))))
    return Trace(
        arrival_s=arrival_s - arrival_s[0],
        adapter=np.array(column(st.integers(BASE_MODEL, len(specs) - 1))),
        prompt_tokens=np.array(column(st.integers(33, 10**6))),
        output_tokens=outputs,
        max_output_tokens=outputs + np.array(column(st.integers(0, 50))),
        adapters=specs,
        session=draw(st.none() | st.just(column(st.none() | NAMES))),
        block_hashes=draw(st.none() | st.just(column(st.integers(0, 3).map(lambda n: tuple(chain[:n]))))),
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@settings(deadline=None, max_examples=30)
@given(trace=traces())
def test_what_is_written_is_read_back(tmp_path_factory, suffix, trace):
    folder = tmp_path_factory.mktemp("trace")
    write(trace, folder / f"once.{suffix}")
    once = read(str(folder / f"once.{suffix}"))
    used = [trace.adapters[i] if i >= 0 else None for i in trace.adapter]
    assert [once.adapters[i] if i >= 0 else None for i in once.adapter] == used
    assert np.array_equal(once.arrival_s, trace.arrival_s)  # to the last bit
    write(once, folder / f"again.{suffix}")
    assert same(read(str(folder / f"again.{suffix}")), once)
    assert sorted(file.name for file in folder.iterdir()) == [f"again.{suffix}", f"once.{suffix}"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_trace_is_written_in_pieces_as_it_is_whole(tmp_path, monkeypatch, suffix):
    """Of the pieces of three rows some have no adapter, no session or no hashes."""
    n, sparse = 10, [5, 9]
    trace = Trace(
        arrival_s=np.arange(n) / 3,
        adapter=np.array([0 if row in sparse else BASE_MODEL for row in range(n)]),
        prompt_tokens=np.full(n, 40),
        output_tokens=np.arange(n) + 1,
        max_output_tokens=np.full(n, 20),
        adapters=(AdapterSpec("a", 8),),
        session=["s, t" if row in sparse else None for row in range(n)],
        block_hashes=[(2**63 - 1, 7) if row in sparse else () for row in range(n)],
    )
    whole, pieces = (tmp_path / f"{name}.{suffix}" for name in ("whole", "pieces"))
    write(trace, whole)
    for name in ("ROW_GROUP", "TEXT_ROWS"):
        monkeypatch.setattr(export, name, 3)
    rows = []
    frame_of = export._frame
    monkeypatch.setattr(export, "_frame", lambda *given: rows.append(len(found := frame_of(*given))) or found)
    write(trace, pieces)
    assert max(rows) == 3
    if suffix == "parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(pieces), pd.read_parquet(whole))
    else:
        assert pieces.read_bytes() == whole.read_bytes()
    assert same(read(str(pieces)), read(str(whole)))


def test_writing_needs_a_known_suffix_and_a_folder(tmp_path):
    trace = read(csv(tmp_path, GOOD))
    with pytest.raises(InputError, match=r"has the suffix '.txt', must be one of .csv, .parquet, .jsonl"):
        write(trace, tmp_path / "trace.txt")
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write(trace, tmp_path / "nowhere" / "trace.jsonl")


# What is said


@pytest.mark.parametrize(
    "row, sentence",
    [
        ("nan,a,8,1,1", "arrival_s is nan, must be a finite number of seconds, at least 0"),
        ("soon,a,8,1,1", "arrival_s is 'soon', must be a finite number of seconds"),
        ("0,a,8,1.5,1", "prompt_tokens is 1.5, must be a whole number of tokens, at least 1"),
        ("0,a,8,1,1e99", "output_tokens is 1e99, must be a whole number of tokens"),
        ("0,a,8,1", "output_tokens is empty, must be a whole number of tokens"),
        ("0,a,10000,1,1", "rank is 10000, must be a whole number, at least 1 and at most 1,024"),
        ("0,,8,1,1", "rank is 8, must be empty where the adapter is empty (the base model)"),
    ],
)
def test_a_bad_cell_is_named_with_its_row(tmp_path, row, sentence):
    assert error(csv(tmp_path, GOOD, row)).startswith(f"trace.csv, row 3: {sentence}")


@pytest.mark.parametrize(
    "rows, sentence",
    [
        pytest.param(["9,a,8,1,1", "", "1,a,8,0,1"], "row 4: prompt_tokens is 0", id="order and blank lines"),
        pytest.param(
            [GOOD, "-1,a,8,1,1", GOOD, "-2,a,8,1,1"], "row 3: .*1 more row like it.", id="two alike"
        ),
        pytest.param(
            ["0,a,8,1,1", "1,b,8,1,1", "2,,,1,1", "3,a,16,1,1"],
            "row 5: adapter 'a' has rank 16, but rank 8 in row 2; an adapter must have one rank",
            id="two ranks of an adapter",
        ),
    ],
)
def test_the_first_bad_row_is_named_and_others_like_it_counted(tmp_path, rows, sentence):
    assert re.fullmatch(f"trace.csv, {sentence}.*", error(csv(tmp_path, *rows)))


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("trace.csv", b"", "trace.csv is empty"),
        ("trace.csv", f"\n{GOOD}".encode(), "trace.csv has no header in line 1"),
        ("trace.csv", b"promt_tokens\n5", "column 'promt_tokens', which is unknown; did you mean prompt_tok"),
        ("trace.csv", b"arrival_s,rank,rank\n0,8,8", "has the column 'rank' 2 times, must be once"),
        ("trace.csv", HEADER.replace("rank,", "").encode() + b"\n0,a,1,1", "has no column rank, must have"),
        ("trace.csv", b"\x00\x01\x02\x03", "trace.csv is not text: it has zero bytes"),
        ("trace.csv", b"\xff\xfe\xfa,\x80", "trace.csv is not text in UTF-8"),
        ("trace.csv", f"{HEADER}\n{GOOD},7".encode(), "Expected 5 fields in line 2, saw 6"),
        ("trace.jsonl", b'\n{"arrival_s": 1', "trace.jsonl, row 2 is not well-formed JSON: "),
        ("trace.jsonl", b"[1, 2]", "trace.jsonl, row 1 is '[1, 2]', must be a JSON object"),
        ("trace.jsonl", b'{"rank": 1, "rank": 2}', "row 1 is not well-formed JSON: the key 'rank' comes"),
        ("trace.txt", b"x", "trace.txt has the suffix '.txt', must be one of .csv, .parquet, .jsonl"),
        ("trace.csv", None, "trace.csv does not exist"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert sentence in error(str(tmp_path / name))


def test_a_folder_and_no_path(tmp_path):
    (tmp_path / "trace.csv").mkdir()
    assert error(str(tmp_path / "trace.csv")).startswith("trace.csv is a folder, must be a file")
    for path in (None, ""):
        with pytest.raises(InputError, match=r"workload.path is not set, must be a trace file: .csv"):
            File(path)


GOOD_ROW = {"arrival_s": 0.5, "adapter": "a", "rank": 8, "prompt_tokens": 10, "output_tokens": 20}


@pytest.mark.parametrize(
    "cells, sentence",
    [
        ({"arrival_s": True}, "arrival_s is True, must be a finite number"),
        ({"prompt_tokens": {"n": 1}}, "prompt_tokens is {'n': 1}, must be a whole number"),
        ({"adapter": ["a"]}, "adapter is ['a'], must be a name"),
        ({"block_hashes": [1, 2.5]}, "block_hashes is [1, 2.5], must be whole numbers"),
    ],
)
def test_a_bad_value_in_json(tmp_path, cells, sentence):
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, [GOOD_ROW, {**GOOD_ROW, **cells}])))
    assert error(str(file)).startswith(f"trace.jsonl, row 2: {sentence}")


@pytest.mark.parametrize(
    "cells, sentence",
    [
        ({"arrival_s": pd.to_datetime(["2023-01-01", "2023-01-02"])}, "row 1: arrival_s is 2023-01-01"),
        ({"prompt_tokens": [True, False]}, "row 1: prompt_tokens is True, must be a whole number"),
        ({"adapter": [b"a", b"b"]}, "row 1: adapter is b'a', must be a name"),
    ],
)
def test_a_bad_value_in_parquet(tmp_path, cells, sentence):
    columns = {name: [value, value] for name, value in GOOD_ROW.items()}
    pd.DataFrame({**columns, **cells}).to_parquet(tmp_path / "trace.parquet")
    assert error(str(tmp_path / "trace.parquet")).startswith(f"trace.parquet, {sentence}")


@settings(deadline=None, max_examples=100)
@given(content=st.binary(max_size=300), suffix=st.sampled_from(["csv", "jsonl", "parquet"]))
def test_whatever_bytes_there_are_the_answer_is_one_sentence(tmp_path_factory, content, suffix):
    file = tmp_path_factory.mktemp("garbage") / f"trace.{suffix}"
    file.write_bytes(content)
    assert error(str(file))


def test_arrivals_since_an_epoch_begin_at_zero_with_a_notice(tmp_path):
    trace = read(csv(tmp_path, "1700000001.5,a,8,10,5", "1700000000,a,8,10,5"))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert "arrival_s begins at 1700000000 s; it now begins at 0, and so do window" in trace.notices[-1]


@pytest.mark.parametrize("start_s, late", [(59.0, True), (2.0, True), (0.9, False), (0.0, False)])
def test_a_start_is_late_beside_the_gaps_of_the_trace(tmp_path, start_s, late):
    trace = read(csv(tmp_path, *(f"{start_s + index / 10:.3f},a,8,100,10" for index in range(100))))
    assert trace.arrival_s[0] == pytest.approx(0.0 if late else start_s)
    assert len(trace.notices) == late


# Blocks and sessions -------------------------------------------------------------------------

BLOCKS = HEADER + ",block_hashes"


def test_a_prompt_has_no_more_hashes_than_blocks(tmp_path):
    path = csv(tmp_path, "1,a,8,33,1,1 2 3", "2,a,8,33,1,1 2 3 4", header=BLOCKS)
    with pytest.raises(InputError, match=r"row 3: block_hashes is .*1 2 3 4.* at most 3, one for each 16"):
        File(path).build(0)
    assert File(path, hash_block_tokens=8).build(0).hash_block_tokens == 8


@pytest.mark.parametrize("rows", [("1 1",), ("1 2", "3 2"), ("1 2", "2 1"), ("1 2", "2")])
def test_a_hash_stands_for_all_blocks_before_it_too(tmp_path, rows):
    path = csv(tmp_path, *(f"{i},a,8,64,1,{row}" for i, row in enumerate(rows)), header=BLOCKS)
    with pytest.raises(InputError, match="behind equal numbers equal numbers must lie"):
        File(path).build(0)


def test_a_session_whose_prompts_get_shorter_is_noticed(tmp_path):
    header = HEADER + ",session"
    shorter = csv(tmp_path, "1,a,8,40,9,s", "2,a,8,30,4,s", "3,b,8,20,4,s", "4,a,8,20,4,t", header=header)
    (notice,) = File(shorter).build(0).notices
    assert "1 rows have a shorter prompt than the row of their session before" in notice
    longer = csv(tmp_path, "1,a,8,40,9,s", "2,a,8,60,4,s", header=header)
    assert File(longer).build(0).notices == ()
