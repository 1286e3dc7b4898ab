"""A made-up gateway log, to try the way to a plan: `python -m experiments.planning.gateway_log LOG.jsonl.gz`.

JSON lines with the columns of an OpenAI-compatible gateway: ISO dates with a zone, the adapter as `model`, nested token
counts, 3 % of the requests for the base model itself, and 1 % refused with status 429. Sixty tenants, whose shares fall
as one over their rank; lengths are log-normal, arrivals Poisson's.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from experiments.studies.command import option, program
from simlora.core.checks import whole
from simlora.core.files import whole_file

BASE_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
TENANTS, RATE_RPS = 60, 12.0
OF_BASE_MODEL, REFUSED = 0.03, 0.01
BEGIN = datetime(2026, 5, 4, 9, tzinfo=UTC)
LENGTHS = {"prompt_tokens": (300.0, 0.9, 4000), "completion_tokens": (110.0, 0.8, 1000)}
"""Median, sigma of the logarithm, and most."""


def lines(requests: int, seed: int = 0) -> Iterator[str]:
    """Return the log's lines, in order of arrival."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.exponential(1.0 / RATE_RPS, requests))
    shares = 1.0 / np.arange(1, TENANTS + 1)
    tenants = rng.choice(TENANTS, requests, p=shares / shares.sum())
    of_base_model, refused = (rng.random(requests) < share for share in (OF_BASE_MODEL, REFUSED))
    tokens = {
        name: np.clip(median * rng.lognormal(0.0, sigma, requests), 1, most).astype(int)
        for name, (median, sigma, most) in LENGTHS.items()
    }
    for row in range(requests):
        entry: dict[str, object] = {
            "timestamp": (BEGIN + timedelta(seconds=float(arrivals_s[row]))).isoformat(),
            "request_id": f"{row:08x}",
            "model": BASE_MODEL if of_base_model[row] else f"tenant-{tenants[row]:02}",
            "status": 429 if refused[row] else 200,
        }
        if not refused[row]:
            entry["usage"] = {name: int(values[row]) for name, values in tokens.items()}
        yield json.dumps(entry) + "\n"


@program(
    option("log", type=Path, help="where it goes, e.g. access.jsonl.gz"),
    option("--requests", type=int, default=20_000, help="default: 20,000"),
    option("--seed", type=int, default=0, help="default: 0"),
    about=__doc__,
)
def main(log: Path, requests: int, seed: int) -> None:
    """Write the log."""
    whole("--requests", requests, least=1)
    text = "".join(lines(requests, seed)).encode()
    with whole_file(log) as draft:
        draft.write_bytes(gzip.compress(text, mtime=0) if log.suffix == ".gz" else text)
