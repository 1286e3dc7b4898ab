"""How LoRAServe's capacity grows with its servers: `python -m experiments.loraserve.scaling [SERVERS …]`.

Figure 21 goes from four to twelve servers, with 25 adapters for every four; this goes on to 256 with 1,600. Searched
for is the highest rate within a P95 of TTFT of 10 s, with one seed and four minutes of traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.loraserve.rates import Servers, highest_rps
from experiments.studies.command import option, program
from experiments.studies.study import read
from simlora import capacity

STUDY = Path(__file__).with_name("figure_21.yaml")
SERVERS = (4, 8, 12, 32, 64, 128, 256)
PUBLISHED_RPS = {4: 32, 8: 64, 12: 96}
"""LoRAServe, Figure 21."""
SERIES = {4: "four", 8: "eight", 12: "twelve"}
"""The study's."""
DURATION_S = 240.0
START_RPS = 20
"""Requests per second and server where a search begins: near where it ends, so that it is short."""


def rate_rps(servers: int, system: str = "loraserve", duration_s: float = DURATION_S) -> float:
    """Return what so many servers of four A100 carry, with as many more adapters as there are more servers."""
    found = capacity(
        [
            f"system={system}",
            "workload=loraserve",
            f"workload.duration_s={duration_s:g}",
            f"workload.adapters={25 * servers // 4}",
            f"cluster.replicas={servers}",
        ],
        limits={"ttft_s.p95": 10.0},
        seeds=1,
        precision=0.04,
        start=float(START_RPS * servers),
        longest=1,
    )
    return found.value


def published_rates(numbers: Sequence[int] = tuple(PUBLISHED_RPS)) -> list[float]:
    """Return the claim ls-f21: what 4, 8 and 12 servers carry, of Figure 21's ten minutes of traffic."""
    study = read(STUDY)
    curves = [
        Servers(study, "loraserve", SERIES[servers], START_RPS * servers, step_rps=servers // 4)
        for servers in numbers
    ]
    return highest_rps(curves)


@program(
    option(
        "servers",
        nargs="*",
        type=int,
        default=SERVERS,
        metavar="SERVERS",
        help=f"how many (default: {', '.join(map(str, SERVERS))})",
    )
)
def main(servers: Sequence[int]) -> None:
    """Print a line for every number of servers, each as soon as it is known."""
    print(f"{'servers':>8}{'adapters':>10}{'requests/s':>12}{'a server':>10}{'published':>11}")
    for count in servers:
        found = rate_rps(count)
        published = PUBLISHED_RPS.get(count, "")
        print(
            f"{count:>8}{25 * count // 4:>10,}{found:>12,.1f}{found / count:>10.2f}{published:>11}",
            flush=True,
        )
