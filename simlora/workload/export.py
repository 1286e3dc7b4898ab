"""Traces written out in our own format, for `workload=file` to read back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded, whole_file
from simlora.core.trace import Trace
from simlora.workload.chunks import READERS

ROW_GROUP, TEXT_ROWS = 1 << 20, 1 << 16
"""Rows that are written at a time, in Parquet and as text: objects of all rows would take half a kilobyte each."""
TOKENS = ("prompt_tokens", "output_tokens", "max_output_tokens")


def write(trace: Trace, path: str | Path) -> None:
    """Write a trace as a file that `File` reads back; it appears under its name only when it is whole.

    Blocks of other than 16 tokens have to be named once more to read it: workload.hash_block_tokens.
    """
    file = expanded(path)
    check_suffix(path)
    try:
        with whole_file(file) as draft:
            _write(trace, file.suffix.lower(), draft)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def check_suffix(path: str | Path) -> None:
    """Raise InputError for a file whose name does not say which format it is to have."""
    suffix = Path(path).suffix
    if suffix.lower() not in READERS:
        raise InputError(f"{path} has the suffix {shown(suffix)}, must be one of {', '.join(READERS)}")


def _write(trace: Trace, suffix: str, file: Path) -> None:
    if suffix == ".parquet":
        _write_parquet(trace, file)
        return
    with file.open("w", encoding="utf-8", newline="\n") as text:
        for begin in range(0, max(len(trace), 1), TEXT_ROWS):
            frame = _frame(trace, slice(begin, begin + TEXT_ROWS))
            if suffix == ".csv":
                if "block_hashes" in frame:
                    frame["block_hashes"] = [" ".join(map(str, hashes)) for hashes in frame["block_hashes"]]
                frame.to_csv(text, index=False, header=not begin, lineterminator="\n")
            else:
                rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
                text.writelines(json.dumps(row) + "\n" for row in rows)


def _write_parquet(trace: Trace, file: Path) -> None:
    hashes = trace.block_hashes or ()
    widest = max(range(len(hashes)), key=lambda row: max(hashes[row], default=-math.inf), default=0)
    schema = pa.Schema.from_pandas(_frame(trace, slice(widest, widest + 1)), preserve_index=False)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for begin in range(0, len(trace), ROW_GROUP):
            frame = _frame(trace, slice(begin, begin + ROW_GROUP))
            writer.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False))


def _frame(trace: Trace, part: slice) -> pd.DataFrame:
    """Return some of the rows."""
    adapter = trace.adapter[part]
    names = np.array([each.name for each in trace.adapters] + [None], dtype=object)  # -1 is the base model
    ranks = np.array([each.rank for each in trace.adapters] + [0], dtype=np.int64)
    columns: dict[str, Any] = {
        "arrival_s": trace.arrival_s[part],
        "adapter": pd.array(names[adapter], dtype="str"),
        "rank": pd.arrays.IntegerArray(ranks[adapter], adapter < 0),
        **{name: getattr(trace, name)[part].astype("int64") for name in TOKENS},
    }
    if trace.session is not None:
        columns["session"] = pd.array(list(trace.session[part]), dtype="str")
    if trace.block_hashes is not None:
        columns["block_hashes"] = [list(hashes) for hashes in trace.block_hashes[part]]
    return pd.DataFrame(columns)
