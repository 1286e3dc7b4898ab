"""Our operating points beside LoRAServe's: `python -m experiments.loraserve.operating_points`.

What a server processes within the SLO, by rank, in prompt and output tokens per second: ours are searched for
on one simulated server, with the lengths of the Azure conversation trace; theirs are Algorithm 1's, for Llama-7B.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.studies.command import program
from simlora.api.cache import HELP
from simlora.api.operating_points import filled
from simlora.api.preparing import composed

PUBLISHED: Mapping[int, Mapping[int, float]] = {
    4: {8: 5500, 16: 5400, 32: 5250, 64: 5000, 128: 4500},
    1: {8: 5950, 16: 5150, 32: 4700, 64: 5050, 128: 4650},
}
"""By GPUs of a server, then by rank. Source: LoRAServe's own configuration, for a P95 of TTFT of 10 s."""


def points(tp: int) -> dict[int, float]:
    """Return the points of a server of `tp` A100, by rank."""
    config, _ = filled(*composed(["system=loraserve", "workload=loraserve", f"replica.tp={tp}"]))
    return {int(rank): float(tps) for rank, tps in config.placement.operating_points.items()}


@program(epilog=HELP)
def main() -> None:
    """Print both, and what rank 128 has of rank 8's."""
    print("tokens per second within a P95 of TTFT of 10 s, Llama-7B on A100 40 GB")
    for tp, published in PUBLISHED.items():
        ours = points(tp)
        print(f"\n{'tp ' + str(tp):<8}{'simulated':>12}{'published':>12}{'ratio':>8}")
        for rank, tps in ours.items():
            print(
                f"{'rank ' + str(rank):<8}{tps:>12,.0f}{published[rank]:>12,.0f}{tps / published[rank]:>8.2f}"
            )
        print(f"{'128 / 8':<8}{ours[128] / ours[8]:>12.2f}{published[128] / published[8]:>12.2f}")
