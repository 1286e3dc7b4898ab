"""What each server gets, LoRAServe's Figures 12 and 18: `python -m experiments.loraserve.servers`.

Figure 12 is a drawing without numbers: random placement balances the load and mixes ranks, contiguous placement does
the opposite, LoRAServe does both. Here it is what four servers processed, by rank, of the exponential open trace.

Figure 18: P95 of TTFT of the requests of each server, and the most adapters that it had at once, on the production-like
trace with 100 adapters, at the paper's 30 requests/s. That is nine tenths of what four of its servers carry
(32, Figure 21) and not half of what ours do: so it is run at 70, too. Adapters are counted three ways: most in
the host's memory at once, which has what older plans left until another server has fetched it; their bytes; and most
that requests of one minute were for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.studies import markdown
from experiments.studies.command import program
from experiments.studies.points import point
from experiments.studies.running import run_all
from experiments.studies.study import read
from simlora.api import simulate
from simlora.results.result import Result

SYSTEMS = {
    "loraserve": "LoRAServe",
    "slora_toppings": "Toppings",
    "slora_random": "S-LoRA Random",
    "slora_contiguous": "S-LoRA Contiguous",
}
FIGURE_17 = Path(__file__).with_name("figure_17.yaml")
SERVERS, RANKS, RATES = 4, (8, 16, 32, 64, 128), (30, 70)
OPEN = ("workload=loraserve", "workload/popularity=rank_exponential", "workload.duration_s=900")
OPEN_RATE = 48
PRODUCTION = ("workload=loraserve_production", "workload.adapters=100")
PUBLISHED = {"slo_s": 10.0, "adapters": 16.0, "ttft": 9.0}
"""Toppings' adapters a server over LoRAServe's, and the baselines' TTFT over LoRAServe's: up to."""
FEW = 0.01
"""Of a server's tokens: ranks below are not counted."""


@dataclass(frozen=True)
class Served:
    """What servers did `[servers]`; `tokens_per_s` `[servers, ranks]`, prompts and answers."""

    tokens_per_s: np.ndarray
    busy_share: np.ndarray
    ttft_s: np.ndarray
    held: np.ndarray
    held_bytes: np.ndarray
    asked: np.ndarray

    @property
    def ranks(self) -> np.ndarray:
        """Return how many ranks each server has `[servers]`."""
        all_of_it = self.tokens_per_s.sum(axis=1, keepdims=True)
        found: np.ndarray = np.count_nonzero(self.tokens_per_s > FEW * all_of_it, axis=1)
        return found


def served(system: str, workload: Sequence[str]) -> Served:
    """Simulate a system."""
    settings = [f"system={system}", f"cluster.replicas={SERVERS}", *workload]
    return counted(simulate([*settings, "timeline=false", "report=false", "progress=false"]))


def counted(result: Result) -> Served:
    """Return what the servers of a run did."""
    table, adapters = result.requests, result.summary["adapters"]
    by_server = table.groupby("replica")
    tokens = (
        (table["prompt_tokens"] + table["output_tokens"]).groupby([table["replica"], table["rank"]]).sum()
    )
    minutes = (table["arrival_s"] // 60).rename("minute")
    asked = table.groupby(["replica", minutes])["adapter"].nunique().groupby("replica").max()
    every = pd.RangeIndex(SERVERS)
    whole = tokens.unstack().reindex(index=every, columns=list(RANKS)).fillna(0.0)
    return Served(
        tokens_per_s=whole.to_numpy() / result.summary["makespan_s"],
        busy_share=np.array([one["busy_share"] for one in result.summary["replicas"]]),
        ttft_s=by_server["ttft_s"].quantile(0.95).reindex(every).to_numpy(),
        held=np.array(adapters["host_adapters"]),
        held_bytes=np.array(adapters["host_bytes"]),
        asked=asked.reindex(every).fillna(0).to_numpy(dtype=np.int64),
    )


def figure_12() -> dict[str, Served]:
    """Return what the systems' servers process of the open trace."""
    return {system: served(system, [*OPEN, f"workload.arrivals.rate_rps={OPEN_RATE}"]) for system in SYSTEMS}


def figure_18(rate_rps: float, requests: int | None = None) -> dict[str, Served]:
    """Return what the systems' servers do at a rate on the production-like trace, or a thinner one."""
    thinner = [] if requests is None else [f"workload.requests={requests}"]
    return {
        system: served(system, [*PRODUCTION, f"workload.rate_rps={rate_rps}", *thinner]) for system in SYSTEMS
    }


def storage(found: Mapping[str, Served], what: str = "held") -> float:
    """Return what Toppings' servers have over what LoRAServe's with the fewest has."""
    theirs, ours = getattr(found["slora_toppings"], what), getattr(found["loraserve"], what)
    return float((theirs / ours).max())


def fewest_adapters() -> float:
    """Return the claim ls-storage at the paper's rate, from two runs of Figure 17."""
    study = read(FIGURE_17)
    panel = study.panel("hundred")
    here = [point(study, panel, study.series_named(name), RATES[0]) for name in ("toppings", "loraserve")]
    found = run_all(here)
    theirs, ours = (np.array(found[one.overrides].summary["adapters"]["host_adapters"]) for one in here)
    return float((theirs / ours).max())


def table_12(found: Mapping[str, Served]) -> str:
    """Return in Markdown how load and ranks lie."""
    rows = []
    for system, one in found.items():
        load = one.tokens_per_s.sum(axis=1)
        cells = [listed(load, ",.0f"), f"{load.max() / load.mean():.2f}", listed(one.ranks, "d")]
        rows.append([SYSTEMS[system], *cells])
    return markdown.table(["", "tokens/s by server", "busiest over mean", "ranks by server"], rows)


def table_18(found: Mapping[str, Served]) -> str:
    """Return in Markdown what servers have, from the first to the last."""
    head = ["", "P95 of TTFT, s", "adapters held", "GB held", "adapters asked for in a minute"]
    rows = []
    for system, one in found.items():
        cells = [
            listed(one.ttft_s, ".2f"),
            listed(one.held, "d"),
            listed(one.held_bytes / 1e9, ".1f"),
            listed(one.asked, "d"),
        ]
        rows.append([SYSTEMS[system], *cells])
    return markdown.table(head, rows)


def listed(values: np.ndarray, how: str) -> str:
    """Return numbers one after the other."""
    return "; ".join(format(value, how) for value in values.tolist())


@program()
def main() -> None:
    """Print the figures' numbers."""
    open_trace = figure_12()
    print(f"Figure 12, {OPEN_RATE} requests/s, ranks' demand exponential:\n\n{table_12(open_trace)}\n")
    by_rate = {rate: figure_18(rate) for rate in RATES}
    for rate, found in by_rate.items():
        print(f"Figure 18, {rate} requests/s, servers 0 to {SERVERS - 1}:\n\n{table_18(found)}\n")
        ratios = [storage(found, what) for what in ("held", "held_bytes", "asked")]
        adapters, size, asked = (f"{ratio:.1f}" for ratio in ratios)
        print(
            f"Toppings over LoRAServe, up to: {adapters} times the adapters, {size} the bytes, {asked} asked for"
        )
        print(f"Published: up to {PUBLISHED['adapters']:.0f} times the space.\n")
