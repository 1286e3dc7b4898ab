"""Tables as others publish them: a part of the rows, some of the columns, suffixes of theirs."""

import json

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.workload.cells import Cells, objects, packed
from simlora.workload.chunks import parquet_names
from simlora.workload.published import numbered, with_one_of
from simlora.workload.table import Table, read_table

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [[1], [2, 3], []]})


def written(folder, suffix):
    file = folder / f"table{suffix}"
    rows = FRAME.to_dict("records")
    if suffix == ".parquet":
        FRAME.to_parquet(file)
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".json":
        file.write_text(json.dumps(rows))
    else:
        FRAME.drop(columns="c").to_csv(file, index=False)
    return str(file)


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".jsonl", ".json", ".parquet"])
def test_some_rows_and_columns(suffix, tmp_path):
    path = written(tmp_path, suffix)
    whole = read_table(path, foreign=True)
    assert (len(whole), list(whole.columns)[:2]) == (3, ["a", "b"])
    part = read_table(path, rows=2, only=["b", "none"], foreign=True)
    assert list(part.columns) == ["b"]
    assert list(part.columns["b"]) == ["x", "y"]
    assert part.rows.tolist() == whole.rows[:2].tolist()
    assert len(read_table(path, rows=9, foreign=True)) == 3


@pytest.mark.parametrize("suffix", [".txt", ".json"])
def test_suffixes_of_others_are_read_only_where_they_are_expected(suffix, tmp_path):
    with pytest.raises(InputError, match=f"suffix '{suffix}', must be one of .csv, .parquet, .jsonl;"):
        read_table(written(tmp_path, suffix))
    (tmp_path / "table.dat").write_text("a")
    for path, said in (
        (tmp_path / "table.dat", "has the suffix '.dat', must be one of"),
        (tmp_path, "is a folder, must be a file:"),
    ):
        with pytest.raises(InputError, match=f"{said} .csv, .parquet, .jsonl, .txt, .json;"):
            read_table(str(path), foreign=True)


@pytest.mark.parametrize("said, why", [("", "ValueError"), ("\nodd\nmore", "odd")])
def test_what_is_no_parquet_is_refused_whatever_is_said_of_it(said, why, tmp_path, monkeypatch):
    def refuse(path):
        raise ValueError(said)

    path = written(tmp_path, ".parquet")
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", refuse)
    for read in (lambda: parquet_names(path), lambda: read_table(path, only=["a"])):
        with pytest.raises(InputError, match=f"table.parquet is not a readable Parquet file: {why}$"):
            read()


def test_rows_of_a_table_keep_their_numbers(tmp_path):
    part = read_table(written(tmp_path, ".csv")).at(np.array([0, 2]))
    assert list(part.columns["a"]) == ["1", "3"]
    assert part.where(1).endswith("table.csv, row 4")


def test_rows_with_one_of_some_values():
    cells = Cells([packed(objects(["x", None])), packed(objects(["y", "x"]))])
    table = Table("t.csv", {"kind": cells}, np.arange(2, 6))
    assert with_one_of(table, "kind", None, "workload.kinds").tolist() == [0, 1, 2, 3]
    assert with_one_of(table, "kind", ["x"], "workload.kinds").tolist() == [0, 3]
    assert with_one_of(table, "kind", ["y", "x"], "workload.kinds").tolist() == [0, 2, 3]
    with pytest.raises(InputError, match=r"workload.kinds has 'xx', which no row .*; did you mean x"):
        with_one_of(table, "kind", ["xx"], "workload.kinds")


def test_sessions_are_numbered_as_they_come():
    found = numbered(["b", "a", None, "b", None], np.array([5.0, 1.0, 2.0, 0.0, 2.0]))
    assert found.tolist() == [0, 1, 2, 0, 3]
