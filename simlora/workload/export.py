"""Traces written out in our own format, for `workload=file` to read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded, whole_file
from simlora.core.trace import Trace
from simlora.workload.chunks import READERS

TOKENS = ("prompt_tokens", "output_tokens", "max_output_tokens")


def write(trace: Trace, path: str | Path) -> None:
    """Write a trace as a file that `File` reads back; it appears under its name only when it is whole.

    Blocks of other than 16 tokens have to be named once more to read it: workload.hash_block_tokens.
    """
    file = expanded(path)
    check_suffix(path)
    try:
        with whole_file(file) as draft:
            _write(_frame(trace), file.suffix.lower(), draft)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def check_suffix(path: str | Path) -> None:
    """Raise InputError for a file whose name does not say which format it is to have."""
    suffix = Path(path).suffix
    if suffix.lower() not in READERS:
        raise InputError(f"{path} has the suffix {shown(suffix)}, must be one of {', '.join(READERS)}")


def _frame(trace: Trace) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "arrival_s": trace.arrival_s,
        "adapter": [trace.adapters[i].name if i >= 0 else None for i in trace.adapter],
        "rank": pd.array([trace.adapters[i].rank if i >= 0 else None for i in trace.adapter], dtype="Int64"),
        **{name: getattr(trace, name).astype("int64") for name in TOKENS},
    }
    if trace.session is not None:
        columns["session"] = list(trace.session)
    if trace.block_hashes is not None:
        columns["block_hashes"] = [list(hashes) for hashes in trace.block_hashes]
    return pd.DataFrame(columns)


def _write(frame: pd.DataFrame, suffix: str, file: Path) -> None:
    if suffix == ".parquet":
        frame.to_parquet(file, index=False, compression="zstd")
        return
    if suffix == ".csv":
        if "block_hashes" in frame:
            frame["block_hashes"] = [" ".join(map(str, hashes)) for hashes in frame["block_hashes"]]
        frame.to_csv(file, index=False)
        return
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
