"""A run's folder is whole or not there."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from simlora.core.errors import InputError
from simlora.metrics.journal import Journal, Moved, Planned
from simlora.results import files
from simlora.results.files import write_incomplete, write_whole
from simlora.results.tables import DECISIONS, MOVES, PLANS, REQUESTS

SUMMARY: dict[str, Any] = {"complete": True, "seed": 1}


def requests(rows: int = 2) -> pd.DataFrame:
    frame = pd.DataFrame({field.name: [0] * rows for field in REQUESTS})
    return frame.astype({"adapter": "str", "status": "str", "reason": "str"}).assign(
        ttft_s=[0.5, float("nan")][:rows]
    )


def write(folder: Path, summary: dict[str, Any] = SUMMARY, journal: Journal | None = None) -> None:
    journal = journal or Journal()
    tables = {"requests": requests(), "timeline": pd.DataFrame(), "decisions": journal.decisions()}
    tables |= {"moves": journal.moves(), "plans": journal.plans()}
    write_whole(folder, summary, tables, "seed: 1\n", report=False)


def journal() -> Journal:
    """One switch, one note, one plan and one move."""
    found = Journal()
    found.switch(1.0, 0, "a", 3)
    found.note(2.0, 0, "credit:b", -0.5)
    found.planned.append(Planned(2.0, 1, True, "replica 0 has too many requests"))
    found.moved.append(Moved(2.5, 2.0, 7, "a", 0, 1, 120, True, "replica 0 has too many requests"))
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_columns_and_types_are_fixed(tmp_path):
    write(tmp_path)
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.schema.equals(REQUESTS)
    assert table["ttft_s"].to_pylist() == [0.5, None]
    assert pq.read_metadata(tmp_path / "requests.parquet").metadata is None


def test_what_was_decided_has_fixed_columns_and_types_too(tmp_path):
    write(tmp_path, journal=journal())
    tables = {name: pq.read_table(tmp_path / f"{name}.parquet") for name in ("decisions", "moves", "plans")}
    assert [table.schema for table in tables.values()] == [DECISIONS, MOVES, PLANS]
    assert tables["decisions"].to_pylist() == [
        {"time_s": 1.0, "replica": 0, "name": "merged", "adapter": "a", "value": 3.0},
        {"time_s": 2.0, "replica": 0, "name": "credit", "adapter": "b", "value": -0.5},
    ]
    assert tables["moves"].to_pylist() == [journal().moved[0]._asdict()]
    assert tables["plans"].to_pylist() == [journal().planned[0]._asdict()]


def test_a_run_that_decided_nothing_takes_away_what_an_earlier_one_did(tmp_path):
    write(tmp_path, journal=journal())
    decided = ["decisions.parquet", "moves.parquet", "plans.parquet"]
    assert set(decided) < set(names(tmp_path))
    write(tmp_path)
    assert names(tmp_path) == ["config.yaml", "requests.parquet", "summary.json"]
    write(tmp_path, journal=journal())
    write_incomplete(tmp_path, {"complete": False}, requests())
    assert names(tmp_path) == ["requests.incomplete.parquet", "summary.incomplete.json"]


def test_a_failure_half_way_leaves_the_earlier_run_whole(tmp_path):
    write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="Out of range float"):
        write(tmp_path, {"complete": True, "seed": float("nan")})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_json", full)
    with pytest.raises(InputError, match=r"cannot write results to .*: No space left on device"):
        write(tmp_path)
    assert names(tmp_path) == []


def test_an_incomplete_run_takes_the_place_of_a_whole_one(tmp_path):
    write(tmp_path)
    write_incomplete(tmp_path, {"complete": False}, requests())
    assert names(tmp_path) == ["requests.incomplete.parquet", "summary.incomplete.json"]
    write(tmp_path)
    assert names(tmp_path) == ["config.yaml", "requests.parquet", "summary.json"]


def test_the_summary_keeps_its_order_and_its_letters(tmp_path):
    write(tmp_path, {"z": 1, "a": "µs"})
    text = (tmp_path / "summary.json").read_text(encoding="utf-8")
    assert list(json.loads(text)) == ["z", "a"]
    assert "µs" in text
