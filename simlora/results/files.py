"""A run's folder. Files appear whole or not at all, and those of two runs never mix."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.metrics.stored import Requests, StoredRequests
from simlora.metrics.tracing import Traced
from simlora.report.results import REQUEST_COLUMNS, RunResults
from simlora.results.tables import REQUESTS, ROW_GROUP, TABLES, write_table

PERFETTO = "timeline.json.gz"
WHOLE = (*(f"{name}.parquet" for name in TABLES), "config.yaml", "report.html", PERFETTO, "summary.json")
"""In the order in which they appear: a folder with a summary.json has everything."""
INCOMPLETE = ("requests.incomplete.parquet", "summary.incomplete.json")


def write_whole(
    folder: Path,
    summary: dict[str, Any],
    tables: Mapping[str, Requests],
    config: str,
    report: bool,
    traced: Traced | None = None,
) -> None:
    """Write a run that reached its end; `tables` by the names of TABLES, requests and timeline among them.

    Raises InputError where the folder cannot be written.
    """
    with writing(folder) as draft:
        for name, table in tables.items():
            if name == "requests" or not table.empty:
                _write_rows(table, TABLES[name], draft / f"{name}.parquet")
        _write_text(draft / "config.yaml", config)
        if report:
            from simlora.report.html import render  # seconds of imports

            page = render(_results(summary, config, tables))
            _write_text(draft / "report.html", page)
        if traced is not None:
            from simlora.report.perfetto import write_perfetto

            write_perfetto(draft / PERFETTO, traced)
        _write_json(draft / "summary.json", summary)


def write_incomplete(folder: Path, summary: dict[str, Any], requests: Requests) -> None:
    """Write what an interrupted run had finished, under names that say so."""
    with writing(folder) as draft:
        _write_rows(requests, REQUESTS, draft / INCOMPLETE[0])
        _write_json(draft / INCOMPLETE[1], summary)


def load_results(folder: Path) -> RunResults:
    """Read the folder of a run that reached its end.

    Of the requests only REQUEST_COLUMNS are read; where they are too many for memory, each when it is needed. Raises
    InputError, naming the file, when the folder is not a run's.
    """
    summary = json.loads(_present(folder / "summary.json").read_text(encoding="utf-8"))
    found: dict[str, Requests] = {"requests": _read_requests(_present(folder / "requests.parquet"))}
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if name not in found and path.exists():
            found[name] = _read(path)
    config = folder / "config.yaml"
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    return _results(summary, text, found)


def _results(summary: dict[str, Any], config: str, tables: Mapping[str, Requests]) -> RunResults:
    others: dict[str, Any] = {name: table for name, table in tables.items() if name != "requests"}
    return RunResults(summary=summary, rows=tables["requests"], config=config, **others)


def _read_requests(path: Path) -> Requests:
    try:
        stored = StoredRequests(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return stored if len(stored) > ROW_GROUP else _read(path, REQUEST_COLUMNS)


def _read(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=columns)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read, must be as a run wrote it: {error}")


def _present(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path.parent} is not the folder of a run: it has no {path.name}")
    return path


@contextmanager
def writing(folder: Path, names: Sequence[str] = (*WHOLE, *INCOMPLETE)) -> Iterator[Path]:
    """Give a folder for drafts; if all goes well, put them in the place of earlier files of these `names`.

    The last name vouches for the others: it is the first to go and the last to come. Raises InputError for a folder
    that cannot be written.
    """
    folder = expanded(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
        try:
            yield draft
            _replace(folder, draft, names)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path | str, error: OSError) -> InputError:
    """Return the sentence for an output folder that does not take files."""
    return InputError(
        f"cannot write results to {folder}: {error.strerror or error}; must be a folder that can be written"
    )


def _replace(folder: Path, draft: Path, names: Sequence[str]) -> None:
    for name in reversed(names):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        if (draft / name).exists():
            os.replace(draft / name, folder / name)


def _write_rows(table: Requests, schema: pa.Schema, path: Path) -> None:
    """Write a table; one that is in a file already is that file under one more name, or a copy on another disk."""
    if not isinstance(table, StoredRequests):
        write_table(table, schema, path)
        return
    try:
        os.link(table.path, path)
    except OSError:
        shutil.copyfile(table.path, path)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    _write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
