"""LoRAServe's Figure 1: `python -m experiments.loraserve.co_served`.

What requests of rank 8 wait for their first token on one server, Llama-7B on one A100 40 GB, when the other half of the
requests is of a higher rank; the study figure_1 has both halves together. Once as LoRAServe reads MBGMV, where the
highest rank of a batch counts, once with the sum of ranks. Load, lengths and GPUs are not published: these are
Figure 6's lengths, and one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.studies import markdown
from experiments.studies.command import program
from experiments.studies.points import Point
from experiments.studies.running import of_run
from simlora.results.result import Result

LOWEST = 8
BESIDE = (8, 32, 128)
RATES = (1.0, 2.0, 3.0, 4.0)
"""Requests/s. At 5 the server is past what it carries beside rank 128, if the highest rank counts."""
KERNELS = {"mbgmv_max": "highest rank", "mbgmv": "sum of ranks"}
PUBLISHED = 84.0
"""By how many per cent P95 of TTFT is higher beside rank 128."""
DURATION_S = 3600.0
Waits = Mapping[tuple[str, int], Sequence[float]]
"""P95 of TTFT in seconds at each of RATES, by kernel and the other half's rank."""


def run(kernel: str, beside: int, rate_rps: float, duration_s: float = DURATION_S) -> Point:
    """Return a run, half of whose requests are of the lowest rank or, beside that rank, all."""
    settings = {
        "system": "slora_random",
        "kernel": kernel,
        "replica.tp": 1,
        "workload": "synthetic",
        "workload.adapters": 2,
        "workload.ranks": [LOWEST, beside],
        "workload/popularity": "uniform",
        "workload/prompt_tokens": "fixed",
        "workload.prompt_tokens.tokens": 512,
        "workload/output_tokens": "fixed",
        "workload.output_tokens.tokens": 128,
        "workload.duration_s": duration_s,
        "workload.arrivals.rate_rps": rate_rps,
    }
    return Point("figure_1", kernel, f"rank_{beside}", rate_rps, settings)


def p95_s(kernel: str, beside: int, rate_rps: float, duration_s: float = DURATION_S) -> float:
    """Return P95 of TTFT of the requests of the lowest rank."""
    found: float = of_run(run(kernel, beside, rate_rps, duration_s), _p95_s)
    return found


def _p95_s(result: Result) -> float:
    table = result.requests
    return float(np.percentile(table["ttft_s"][table["rank"] == LOWEST], 95))


def beside(rate_rps: float) -> float:
    """Return the claim ls-f1: by how many % rank 8 waits longer beside rank 128, if the highest rank counts."""
    return 100 * (p95_s("mbgmv_max", BESIDE[-1], rate_rps) / p95_s("mbgmv_max", LOWEST, rate_rps) - 1)


def waits() -> dict[tuple[str, int], list[float]]:
    """Return all of the figure."""
    return {
        (kernel, rank): [p95_s(kernel, rank, rate) for rate in RATES] for kernel in KERNELS for rank in BESIDE
    }


def increase(found: Waits, kernel: str, beside: int) -> list[float]:
    """Return by how many per cent the lowest rank waits longer than among its like, at each of RATES."""
    return [
        100 * (slower / alone - 1)
        for slower, alone in zip(found[kernel, beside], found[kernel, LOWEST], strict=True)
    ]


def table(found: Waits) -> str:
    """Return the figure's numbers in Markdown."""
    rows = []
    for kernel, title in KERNELS.items():
        for beside in BESIDE:
            more = increase(found, kernel, beside)
            cells = [
                f"{s:.2f} s" + ("" if beside == LOWEST else f", {by:+.0f} %")
                for s, by in zip(found[kernel, beside], more, strict=True)
            ]
            rows.append([title, f"rank {beside}", *cells])
    return markdown.table(["kernel", "beside", *(f"{rate:g} requests/s" for rate in RATES)], rows)


@program()
def main() -> None:
    """Print the figure's numbers."""
    found = waits()
    print(f"P95 of TTFT of the requests of rank {LOWEST}:\n\n{table(found)}\n")
    print(f"Published: {PUBLISHED:.0f} % more beside rank 128, at a load that is not told.")
