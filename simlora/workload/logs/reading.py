"""A log as one table: a row a request, nested values under paths such as usage.prompt_tokens, whatever holds them."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any, TextIO, TypeVar

import numpy as np

from simlora.core.arrays import Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.workload.cells import Cells, Objects, Piece, objects, packed
from simlora.workload.chunks import Chunk, Selection, open_text, read_parquet, suffix_of
from simlora.workload.logs.faults import WHOLE, Fault, rows_at
from simlora.workload.logs.guessing import may_be_ours
from simlora.workload.table import CHUNK_ROWS, Table, joined

JSON = (".json", ".jsonl", ".ndjson")
Value = TypeVar("Value")
FIELD_MAX = 1 << 30
"""Bytes of a cell: logs have prompts in them."""
SEPARATORS = ",;\t|"
"""Of a CSV file: the one that its header has most often, the comma where none is."""
ARRAYS = ("input_lens", "output_lens", "start_times", "errors")
"""Of the arrays in a benchmark's result, those that are read; the others have tokens' times and texts."""
MEASURED_ARRAYS = ("ttfts", "itls")
"""Those that say what the server did."""
LISTS = ("data", "requests", "logs", "records", "results", "rows", "items")
"""Where an answer of an API, or an export, keeps its list of requests."""
SUMMARY = ("request_throughput", "total_input_tokens")
AS_ONE = ("error", "errors")
"""Values that stay whole: what counts is whether there is one."""
PEEKED = 100
"""Rows of a chunk by which a cell of text is taken to hold JSON."""


@dataclass(frozen=True)
class Log:
    """The columns of a log that may be ours, the names of all that it has, and what of it cannot be read.

    `rate_rps`, `max_concurrency`, `model` and `backend` are what a benchmark says of itself, None where it says none.
    """

    table: Table
    names: tuple[str, ...]
    faults: tuple[Fault, ...]
    rate_rps: float | None = None
    max_concurrency: int | None = None
    model: str | None = None
    backend: str | None = None

    def has_cells(self, name: str) -> bool:
        """Return whether any cell of a column is not empty."""
        cells = self.table.columns.get(name)
        return cells is not None and any(cell is not None and str(cell).strip() for cell in cells)


class _Reader:
    """Reads one file; collects names and faults beside the chunks that it yields."""

    def __init__(self, path: str, named: Sequence[str], measured: bool) -> None:
        self.path, self.named, self.measured = path, set(named), measured
        self.names: dict[str, None] = {}
        self.faults: list[Fault] = []
        self.rate_rps: float | None = None
        self.max_concurrency: int | None = None
        self.model: str | None = None
        self.backend: str | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the log's rows; an error of the file becomes a fault, behind what could be read."""
        try:
            if self._is_parquet():
                yield from map(self._flat, read_parquet(self.path, Selection(None, None, CHUNK_ROWS)))
            elif self._is_json():
                with open_text(self.path) as text:
                    yield from self._of_json(text)
            else:
                with open_text(self.path, newline="") as text:
                    yield from self._of_csv(text)
        except UnicodeDecodeError:
            self.faults.append(Fault(WHOLE, "not text in UTF-8", "text in UTF-8, or Parquet"))
        except OSError as error:
            why = getattr(error, "strerror", None) or str(error)
            self.faults.append(Fault(WHOLE, f"cut short: {why}", "whole; compress or copy it again"))
        except (InputError, csv.Error) as error:
            there = str(error).removeprefix(f"{self.path} ")
            self.faults.append(Fault(WHOLE, there, "CSV, JSON lines, a JSON report or Parquet"))

    def _is_parquet(self) -> bool:
        with expanded(self.path).open("rb") as data:
            return data.read(4) == b"PAR1" or suffix_of(self.path) == ".parquet"

    def _is_json(self) -> bool:
        if suffix_of(self.path) in JSON:
            return True
        with open_text(self.path) as text:
            return text.read(1 << 12).lstrip()[:1] in ("{", "[")

    def _flat(self, chunk: Chunk) -> Chunk:
        """Return a chunk whose nested cells have columns of their own."""
        columns: dict[str, Piece] = {}
        for name, piece in chunk.columns.items():
            if piece.codes is not None and _holds_json(piece.at(np.arange(min(len(piece), PEEKED)))):
                columns |= self._leaves(name, objects([*Cells([piece])]), chunk.rows)
            elif piece.codes is not None:
                self.names[name] = None
                if self._is_kept(name):
                    columns[name] = piece
            else:
                columns |= self._leaves(name, piece.values, chunk.rows)
        return Chunk(columns, chunk.rows)

    def _leaves(self, name: str, cells: Objects, rows: Ints) -> dict[str, Piece]:
        """Return the columns below a name; cells that hold no more names are the column itself.

        Where cells of text hold objects of which some is read, text that holds none is a fault of its row.
        """
        odd = np.zeros(len(cells), dtype=np.bool_)
        if name.rpartition(".")[2] not in AS_ONE and _holds_json(Piece(cells[:PEEKED])):
            cells = objects([_object_in(cell) for cell in cells])
            odd = np.array([isinstance(cell, str) and bool(cell.strip()) for cell in cells], dtype=np.bool_)
        nested = [] if name.rpartition(".")[2] in AS_ONE else [isinstance(cell, dict) for cell in cells]
        if not any(nested):
            self.names[name] = None
            return {name: packed(cells)} if self._is_kept(name) else {}
        inner: list[dict[str, Any]] = [
            cell if is_nested else {} for cell, is_nested in zip(cells, nested, strict=True)
        ]
        found: dict[str, Piece] = {}
        for key in dict.fromkeys(chain.from_iterable(inner)):
            found |= self._leaves(f"{name}.{key}", objects([each.get(key) for each in inner]), rows)
        if odd.any() and found:
            there = [shown(cell) for cell in cells[odd]]
            self.faults += rows_at(rows[odd], name, there, "a JSON object such as {...}")
        return found

    def _is_kept(self, name: str) -> bool:
        """Return whether a column is read: one that may be ours, or that is named, if only nearly so."""
        return may_be_ours(name, self.measured) or bool(get_close_matches(name, self.named, n=1))

    def _of_csv(self, text: TextIO) -> Iterator[Chunk]:
        """Yield the rows below a header; one with more cells than that is a fault, and its cells are left out."""
        csv.field_size_limit(FIELD_MAX)
        header = text.readline()
        separator = max(SEPARATORS, key=header.count)
        names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
        if not any(names):
            raise InputError("no header in line 1")
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            self.faults.append(
                Fault(WHOLE, f"the column {shown(name)} {names.count(name)} times", "each column once")
            )
        self.names = dict.fromkeys(names)
        kept = {at for at, name in enumerate(names) if self._is_kept(name)}
        long: list[tuple[int, str]] = []
        cells = csv.reader(text, delimiter=separator, skipinitialspace=True)
        for rows, lines in _in_chunks((cells.line_num + 1, row) for row in cells if any(row)):
            long += [
                (row, f"{len(line):,} cells")
                for row, line in zip(rows, lines, strict=True)
                if len(line) > len(names)
            ]
            columns: dict[str, Piece] = {}
            for at, name in enumerate(names):
                if at in kept or any(line[at][:1] == "{" for line in lines[:PEEKED] if at < len(line)):
                    column = objects([line[at] or None if at < len(line) else None for line in lines])
                    columns |= self._leaves(name, column, np.array(rows, dtype=np.int64))
            yield Chunk(columns, np.array(rows, dtype=np.int64))
        if long:
            must = f"{len(names):,}, as many as the header"
            self.faults += rows_at(
                np.array([row for row, _ in long]), WHOLE, [there for _, there in long], must
            )

    def _of_json(self, text: TextIO) -> Iterator[Chunk]:
        """Yield the rows of an object a line, or of one JSON value that fills the file."""
        head = []
        for line in text:
            head.append(line)
            if line.strip():
                break
        value = _decoded("".join(head))
        if isinstance(value, dict) and self._records(value) is None:
            yield from self._of_lines(chain(head, text))
            return
        rest = text.read()
        if not isinstance(value, dict):
            whole = "".join(head) + rest
            value = _decoded(whole) if value is None else value
            if value is None:
                yield from self._of_lines(io.StringIO(whole), _why_not(whole))
                return
        elif rest.strip():
            self.faults.append(Fault(WHOLE, "more than one run", "one run: keep one line of the file"))
        records = value if isinstance(value, list) else self._of_report(value)
        odd = [isinstance(each, dict) for each in records]
        if not all(odd):
            bad = ~np.array(odd)
            self.faults += rows_at(
                np.flatnonzero(bad) + 1,
                WHOLE,
                [shown(records[at]) for at in np.flatnonzero(bad)],
                "an object such as {...}",
            )
        for begin in range(0, len(records), CHUNK_ROWS):
            rows = [at for at in range(begin, min(begin + CHUNK_ROWS, len(records))) if odd[at]]
            yield self._of_objects([records[at] for at in rows], [at + 1 for at in rows])

    def _of_report(self, value: dict[str, Any]) -> list[Any]:
        """Return the requests in a report, none where there are only sums, which is a fault."""
        records = self._records(value)
        if records is None:
            records = [value]
        most = value.get("max_concurrency")
        self.max_concurrency = most if isinstance(most, int) and most > 0 else None
        self.model, self.backend = (
            name if isinstance(name := value.get(key), str) and name else None
            for key in ("model_id", "backend")
        )
        rate = value.get("request_rate")
        self.rate_rps = float(rate) if isinstance(rate, int | float | str) and _is_float(rate) else None
        if not records and any(key in value for key in SUMMARY):
            must = (
                "a row a request: vllm bench serve --save-detailed, sglang.bench_serving --output-details, or AIPerf's "
                "profile_export.jsonl"
            )
            self.faults.append(Fault(WHOLE, "a summary of a run", must))
        for name, (has, wanted) in self._uneven(value).items():
            self.faults.append(Fault(name, f"{has:,} values", f"{wanted:,}, as many as input_lens"))
        return records

    def _records(self, value: dict[str, Any]) -> list[Any] | None:
        """Return the requests that an object holds, none of a summary; None where it is itself a request."""
        if isinstance(value.get("input_lens"), list):
            names = [name for name in self._arrays() if isinstance(value.get(name), list)]
            return [
                dict(zip(names, cells, strict=False))
                for cells in zip(*(value[name] for name in names), strict=False)
            ]
        if isinstance(value.get("benchmarks"), list):
            return list(chain.from_iterable(map(_of_benchmark, value["benchmarks"])))
        if any(key in value for key in SUMMARY):
            return []
        lists = [value[key] for key in LISTS if isinstance(value.get(key), list)]
        is_request = any(map(may_be_ours, value))
        if (
            len(lists) == 1
            and not is_request
            and (not lists[0] or any(isinstance(each, dict) for each in lists[0]))
        ):
            found: list[Any] = lists[0]
            return found
        return None

    def _uneven(self, value: dict[str, Any]) -> dict[str, tuple[int, int]]:
        """Return the arrays that are not as long as input_lens: how long they are, and how long that is."""
        wanted = value.get("input_lens")
        if not isinstance(wanted, list):
            return {}
        lengths = {name: len(value[name]) for name in self._arrays() if isinstance(value.get(name), list)}
        return {name: (length, len(wanted)) for name, length in lengths.items() if length != len(wanted)}

    def _arrays(self) -> tuple[str, ...]:
        """Return the arrays of a benchmark's result that are read."""
        return (*ARRAYS, *MEASURED_ARRAYS) if self.measured else ARRAYS

    def _of_lines(self, lines: Iterable[str], why: str = "") -> Iterator[Chunk]:
        """Yield the rows of an object a line; where no line is one, `why` the text is no JSON is the fault."""
        broken: list[tuple[int, str]] = []

        def decoded() -> Iterator[tuple[int, dict[str, Any]]]:
            for row, line in enumerate(lines, start=1):
                value = _decoded(line)
                if isinstance(value, dict):
                    yield row, value
                elif line.strip():
                    broken.append((row, shown(line.strip())))

        try:
            for rows, values in _in_chunks(decoded()):
                yield self._of_objects(values, rows)
        finally:
            if broken and not self.names:
                self.faults.append(Fault(WHOLE, why or broken[0][1], "well-formed JSON, or an object a line"))
            elif broken:
                at = np.array([row for row, _ in broken])
                self.faults += rows_at(at, WHOLE, [text for _, text in broken], "a JSON object such as {...}")

    def _of_objects(self, values: Sequence[dict[str, Any]], rows: Sequence[int]) -> Chunk:
        columns: dict[str, Piece] = {}
        for name in dict.fromkeys(chain.from_iterable(values)):
            cells = objects([value.get(name) for value in values])
            columns |= self._leaves(name, cells, np.array(rows, dtype=np.int64))
        return Chunk(columns, np.array(rows, dtype=np.int64))


def read_log(path: str, named: Sequence[str] = (), measured: bool = False) -> Log:
    """Return a log: of its columns those that may be ours, and those `named`.

    `measured`: what the server did with the requests, too. Raises InputError for no such file.
    """
    file = expanded(path)
    if not file.exists():
        raise InputError(f"{path} does not exist")
    if file.is_dir():
        raise InputError(f"{path} is a folder, must be a file")
    reader = _Reader(path, named, measured)
    chunks = [] if not file.stat().st_size else list(reader.chunks())
    table = joined(path, chunks, None)
    if not len(table) and not reader.faults:
        reader.faults.append(Fault(WHOLE, "empty", "at least one request"))
    return Log(
        table,
        tuple(reader.names),
        tuple(reader.faults),
        reader.rate_rps,
        reader.max_concurrency,
        reader.model,
        reader.backend,
    )


def _in_chunks(rows: Iterator[tuple[int, Value]]) -> Iterator[tuple[list[int], list[Value]]]:
    """Yield numbered rows, so many at a time; those before an error of the file come before it is raised."""
    blame: Exception | None = None
    while blame is None:
        numbers: list[int] = []
        values: list[Value] = []
        try:
            for number, value in islice(rows, CHUNK_ROWS):
                numbers.append(number)
                values.append(value)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            blame = error
        if numbers:
            yield numbers, values
        elif blame is None:
            return
    raise blame


def _decoded(text: str) -> Any:
    """Return a JSON value, None where there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object_in(cell: Any) -> Any:
    """Return the object that a text holds as JSON, or as Python writes a dict; any other cell as it is."""
    if not isinstance(cell, str) or cell.lstrip()[:1] != "{":
        return cell
    value = _decoded(cell)
    if value is None:
        try:
            value = ast.literal_eval(cell.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return cell
    return value if isinstance(value, dict) else cell


def _holds_json(piece: Piece) -> bool:
    """Return whether some text of a piece is an object in JSON."""
    return any(isinstance(cell, str) and isinstance(_object_in(cell), dict) for cell in piece.distinct())


def _why_not(text: str) -> str:
    """Return why a text is no JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _of_benchmark(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the requests of one of GuideLLM's benchmarks, each with how it ended."""
    requests = value.get("requests") if isinstance(value, dict) else None
    for ended, records in requests.items() if isinstance(requests, dict) else ():
        for record in records or ():
            if isinstance(record, dict):
                arguments = _decoded(str(record.get("request_args")))
                yield {
                    "status": ended,
                    **record,
                    **({"request_args": arguments} if isinstance(arguments, dict) else {}),
                }


def _is_float(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
