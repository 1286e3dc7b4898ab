"""Chunks of files: however many rows are read at a time, the trace is the same, and so is what is said about it."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.workload import table
from simlora.workload.catalogue import entry
from simlora.workload.cells import Cells, objects, packed
from simlora.workload.table import read_table
from tests.traces import HEADER, csv
from tests.workload.test_catalogue import NAMES, built
from tests.workload.test_trace_files import GOOD, error, read, same

SIZES = (1, 7, table.CHUNK_ROWS)


@pytest.fixture
def sized(monkeypatch):
    """Return a function that calls another with each number of rows a chunk, and returns all that came of it."""

    def each(function):
        found = []
        for size in SIZES:
            monkeypatch.setattr(table, "CHUNK_ROWS", size)
            found.append(function())
        return found

    return each


def outcome(path):
    """Return all of a trace, or the sentence that says why there is none."""
    try:
        trace = read(path)
    except InputError as error:
        return str(error)
    names = ("arrival_s", "adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
    columns = [(getattr(trace, name).dtype, getattr(trace, name).tobytes()) for name in names]
    return columns, trace.adapters, trace.session, trace.block_hashes, trace.notices


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "azure_functions_2019"]
)  # read in no chunks
def test_samples_of_public_traces(name, sized):
    first, *others = sized(lambda: built(name, entry(name).sample_path))
    assert all(same(first, other) and first.notices == other.notices for other in others)


OPTIONAL = ("max_output_tokens", "session", "block_hashes")
NAMES_OF_CELLS = (*HEADER.split(","), *OPTIONAL)
GOOD_CELLS = st.tuples(
    st.floats(0, 9e6) | st.integers(0, 5),
    st.sampled_from(["a", "b2", "b10", None]),
    st.integers(33, 90),
    st.integers(1, 20),
    st.sampled_from([None, 20]),
    st.sampled_from([None, "s", "t"]),
    st.sampled_from([(), (1,), (1, 2), (1, 3)]),
)
RANKS = {"a": 8, "b2": 16, "b10": 4, None: None}
BAD_TEXTS = st.sampled_from(["", "-1", "nan", "1.5", "a", '"', "1e400", "1_0", " 2", "1 2", "2 1", "1,2"])
BAD_VALUES = st.sampled_from([None, "", -1, 1.5, "a", "1", True, [2, 1], [0.5], {}, 10**400, "\ud800", 2**63])


@st.composite
def tables(draw, bad):
    """Return columns and rows, of which some cells may be anything."""
    names = NAMES_OF_CELLS[: draw(st.integers(5, 8))]
    rows = []
    for arrival_s, adapter, *rest, hashes in draw(st.lists(GOOD_CELLS, min_size=1, max_size=20)):
        rows.append([arrival_s, adapter, RANKS[adapter], *rest, list(hashes)][: len(names)])
    places = st.tuples(st.integers(0, len(rows) - 1), st.integers(0, len(names) - 1), bad)
    for row, column, cell in draw(st.lists(places, max_size=3)):
        rows[row][column] = cell
    return names, rows


def as_text(cell):
    return "" if cell is None else " ".join(map(str, cell)) if isinstance(cell, list) else str(cell)


@settings(deadline=None, max_examples=60)
@given(made=tables(BAD_TEXTS), blank=st.integers(1, 30))
def test_any_csv_is_read_alike(tmp_path_factory, made, blank):
    names, rows = made
    lines = [",".join(names), *(",".join(map(as_text, row)) for row in rows)]
    lines.insert(blank, "")
    alike(tmp_path_factory, "csv", "\n".join(lines))


@settings(deadline=None, max_examples=60)
@given(made=tables(BAD_VALUES), missing=st.sets(st.tuples(st.integers(0, 19), st.integers(0, 7)), max_size=2))
def test_any_jsonl_is_read_alike(tmp_path_factory, made, missing):
    names, rows = made
    lines = (
        json.dumps({name: row[at] for at, name in enumerate(names) if (number, at) not in missing})
        for number, row in enumerate(rows)
    )
    alike(tmp_path_factory, "jsonl", "\n".join(lines))


def alike(factory, suffix, text):
    file = factory.mktemp("chunks") / f"trace.{suffix}"
    file.write_text(text)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for size in SIZES:
            patch.setattr(table, "CHUNK_ROWS", size)
            found.append(outcome(str(file)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "bad",
    [{}, {"prompt_tokens": [5, 5, -1] * 5}, {"arrival_s": [1.0, None, 2.0] * 5}, {"adapter": [b"a"] * 15}],
)
def test_parquet_is_read_alike(bad, tmp_path, sized):
    n = 15
    columns = {"arrival_s": np.arange(n) % 4 * 0.5, "adapter": pd.Categorical(["a", "b", None] * 5)}
    ranks = pd.array([8, 16, None] * 5, dtype="Int64")
    frame = pd.DataFrame({**columns, "rank": ranks, "prompt_tokens": 40, "output_tokens": np.uint8(3)} | bad)
    frame["block_hashes"] = [[1], [1, 2], []] * 5
    frame = frame.set_index(pd.Index(range(n), name="number"))
    frame.to_parquet(tmp_path / "trace.parquet", row_group_size=4)
    first, *others = sized(lambda: outcome(str(tmp_path / "trace.parquet")))
    assert isinstance(first, str) == bool(bad)
    assert all(first == other for other in others)


def test_no_more_rows_are_read_than_asked_for(tmp_path, sized):
    pd.DataFrame({"arrival_s": range(20)}).to_parquet(tmp_path / "t.parquet")
    for path in (csv(tmp_path, *[GOOD] * 20, "1,2,3,4,5,6"), str(tmp_path / "t.parquet")):
        parts = sized(lambda path=path: read_table(path, rows=9))
        assert [len(part) for part in parts] == [9] * 3
    assert [list(part.columns["arrival_s"]) for part in parts] == [list(range(9))] * 3


# Compressed text


def compressed(tmp_path, suffix, text):
    kind = "gzip" if suffix.lower().endswith("gz") else "zstd"
    with pa.output_stream(str(tmp_path / f"trace{suffix}"), compression=kind) as stream:
        stream.write(text.encode())
    return str(tmp_path / f"trace{suffix}")


@pytest.mark.parametrize("suffix", [".csv.gz", ".CSV.GZ", ".csv.zst", ".jsonl.gz", ".jsonl.zst"])
def test_compressed_text_is_known_by_its_name(suffix, tmp_path, sized):
    rows = [f"{i},a,8,{i + 1},2" for i in range(20)]
    plain = csv(tmp_path, *rows)
    text = "\n".join([HEADER, *rows])
    if "jsonl" in suffix:
        text = pd.read_csv(plain).to_json(orient="records", lines=True)
    path = compressed(tmp_path, suffix, text)
    assert all(same(read(plain), trace) for trace in sized(lambda: read(path)))


@pytest.mark.parametrize(
    "suffix, content, sentence",
    [
        (".csv.gz", b"not gzip at all", "cannot be read: "),
        (".jsonl.gz", gzip.compress(b'{"a": 1}\n' * 100, mtime=0)[:-12], "cannot be read: "),
        (".parquet.gz", b"x", "has the suffix '.gz', must be one of .csv, .parquet, .jsonl; text also comp"),
    ],
)
def test_what_is_no_compressed_trace(suffix, content, sentence, tmp_path):
    (tmp_path / f"trace{suffix}").write_bytes(content)
    assert sentence in error(str(tmp_path / f"trace{suffix}"))


# Cells

MIXED = [["x", "y", "x", None], [1, 2, None], [0.5, float("inf")], [1, 0.5, "z", [1], True], []]


def test_cells_are_as_they_were():
    cells = Cells([packed(objects(piece)) for piece in MIXED])
    flat = [cell for piece in MIXED for cell in piece]
    assert (len(cells), list(cells)) == (len(flat), flat)
    assert [cells[row] for row in range(len(flat))] == flat
    assert list(map(type, cells)) == list(map(type, flat))
    some = np.array([0, 3, 4, 6, 8, 12, 13])
    assert list(cells.at(some)) == [flat[row] for row in some]
    assert not list(cells.at(np.arange(0)))
