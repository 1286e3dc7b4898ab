"""What the clients of the measured hours saw: an API server that stands still while its metrics are read.

The labels of vLLM's gauge `vllm:lora_requests_info` are the adapters of the running and of the waiting
requests. Every pair of sets that a step ends with is a series of its own, which the API server keeps as long
as it lives, and each reading of `/metrics` (a scrape) renders all series in the event loop. The engine, a
process of its own, goes on meanwhile. So for the length of a scrape

* a request that arrives is sent to the engine late, and a first token is sent to its client late;
* outputs of the engine's steps pile up. Afterwards the output handler takes them one after the other and does
  not give way to the streams, so that a stream sends as one chunk what has come. Only a step with more than
  128 outputs is taken in slices, between which streams run: then each token is a chunk of its own.

A client that takes the mean over gaps between chunks thus measures more than the time of a token.
Source: vLLM 0.8.5, `PrometheusStatLogger.record`, `AsyncLLM._run_output_handler`, `RequestOutputCollector`,
`VLLM_V1_OUTPUT_PROC_CHUNK_SIZE`. Differs: the engine does not see that arrivals are late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from simlora.core.arrays import Floats

INTERVAL_S = 3.0
"""Between two scrapes."""
SERIES_S, NAME_S = 15e-6, 0.13e-6
"""For rendering a series, and for each running adapter among its labels.

All three were found by scrape_costs.py; prometheus-client 0.21 takes 6 and 0.06 µs on another CPU.
"""
MERGED = 128
"""Outputs of a step up to which what piled up is merged: VLLM_V1_OUTPUT_PROC_CHUNK_SIZE."""


@dataclass(frozen=True)
class Scrapes:
    """When the API server stood still [scrapes]."""

    begin_s: Floats
    end_s: Floats

    def late_s(self, at_s: Floats) -> Floats:
        """Return how long what comes at these times [n] waits for the end of a scrape."""
        last = np.searchsorted(self.begin_s, at_s, side="right") - 1
        found: Floats = np.where(last >= 0, np.maximum(self.end_s[last] - at_s, 0.0), 0.0)
        return found

    def first_token_late_s(self, requests: pd.DataFrame) -> Floats:
        """Return by how much first tokens reach the client late [requests]: their requests were late, then they are."""
        arrival_late_s = self.late_s(requests["arrival_s"].to_numpy())
        return arrival_late_s + self.late_s(requests["first_token_s"].to_numpy() + arrival_late_s)

    def merged_tokens(self, requests: pd.DataFrame) -> float:
        """Return how many tokens of finished requests came in one chunk with an earlier token.

        A running request gets a chunk for each scrape that is longer than a step: all other tokens of it are merged.
        """
        several = requests[requests["output_tokens"] > 1]
        running = self._sum(several, np.ones(len(several)))
        step_s = self._sum(several, several["tpot_s"].to_numpy()) / np.maximum(running, 1.0)
        lasted_s = self.end_s - self.begin_s
        steps = np.divide(lasted_s, step_s, out=np.zeros(len(running)), where=running > 0.5)
        merged = running * np.maximum(steps - 1.0, 0.0)
        return float(merged[running <= MERGED].sum())

    def _sum(self, requests: pd.DataFrame, values: Floats) -> Floats:
        """Return the sum [scrapes] of the values of requests that have their first token and are not finished."""
        sums = []
        for name in ("first_token_s", "finish_s"):
            times_s = requests[name].to_numpy()
            order = np.argsort(times_s, kind="stable")
            sums.append(
                np.append(0.0, np.cumsum(values[order]))[np.searchsorted(times_s[order], self.begin_s)]
            )
        found: Floats = sums[0] - sums[1]
        return found


def scrapes(
    requests: pd.DataFrame, duration_s: float, interval_s: float = INTERVAL_S, cost: float = 1.0
) -> Scrapes:
    """Return the scrapes of a run: each takes as long as the series that there are by then, times `cost`."""
    begin_s = np.arange(interval_s, duration_s, interval_s)
    seen_s, adapters = series(requests)
    rendered_s = np.append(0.0, np.cumsum(SERIES_S + NAME_S * adapters)) * cost
    return Scrapes(begin_s, begin_s + rendered_s[np.searchsorted(seen_s, begin_s)])


def series(requests: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return when each pair of sets of adapters was first there [series], and how many adapters ran.

    A request waits from the first step that ends after its arrival, and runs from its first token to its last.
    """
    adapters, names = pd.factorize(requests["adapter"])
    first_s, finish_s = requests["first_token_s"].to_numpy(), requests["finish_s"].to_numpy()
    ends_s = np.unique(np.concatenate([requests["admitted_s"], first_s, finish_s]))
    arrival_s = np.append(ends_s, np.nan)[np.searchsorted(ends_s, requests["arrival_s"])]
    sets = np.concatenate([adapters, adapters, adapters + len(names), adapters + len(names)])
    changes = pd.DataFrame(
        {
            "set": sets,
            "at_s": np.concatenate([arrival_s, first_s, first_s, finish_s]),
            "by": np.repeat([1, -1, 1, -1], len(requests)),
        }
    ).dropna()
    changes = changes.sort_values(["set", "at_s", "by"], ascending=[True, True, False], kind="stable")
    members = changes.groupby("set")["by"].cumsum()
    changes = changes[(members == 0) | ((members == 1) & (changes["by"] > 0))].sort_values(
        "at_s", kind="stable"
    )
    # A pair of sets is known by the exclusive or of random numbers of their members.
    marks = np.random.default_rng(0).integers(1, 2**63 - 1, size=2 * len(names))
    pairs = np.bitwise_xor.accumulate(marks[changes["set"]])
    running = np.cumsum(np.where(changes["set"] >= len(names), changes["by"], 0))
    last = ~changes["at_s"].duplicated(keep="last").to_numpy()
    _, new = np.unique(pairs[last], return_index=True)
    new.sort()
    return changes["at_s"].to_numpy()[last][new], running[last][new].astype(np.float64)
