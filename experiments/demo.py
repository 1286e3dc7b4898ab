"""The demonstration: ten minutes of traffic over 100 adapters on two A10G, and where the report is.

Real traffic where it is at hand: the Azure LLM conversation trace in SIMLORA_TRACE_DIR, or in
../shared/traces beside the project. Elsewhere S-LoRA's synthetic workload.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from experiments.studies.command import ended
from simlora.api import simulate
from simlora.cli import main

ROOT = Path(__file__).resolve().parents[1]
TRACES = Path(os.environ.get("SIMLORA_TRACE_DIR", ROOT.parent / "shared" / "traces"))
TRACE = TRACES / "azure_llm_2023_conv.csv"
OUT = "outputs/demo"
REPLICAS = (2, 4, 8, 12, 16)

CLUSTER = ["system=slora", "gpu=a10g", "model=llama_7b", "cluster.replicas=2", "router=most_idle"]
LONGEST_PROMPT = 8192
"""S-LoRA's own limit is 3,072 tokens, and 7 % of the trace's prompts are longer."""
AZURE = [
    "workload=azure_llm_2023_conv",
    f"workload.path={TRACE}",
    "workload.adapters=100",
    "workload.ranks=[8,16,32,64]",
    "workload.duration_s=600",
    f"replica.max_num_batched_tokens={LONGEST_PROMPT}",
]
SYNTHETIC = ["workload=slora", "workload.adapters=100", "workload.rate_rps=2.6", "workload.duration_s=600"]


def command() -> list[str]:
    """Return the overrides of the run, and say on what input it runs."""
    if TRACE.exists():
        print(f"Input: ten minutes of the Azure LLM conversation trace ({TRACE}), 100 adapters assigned.")
        workload = AZURE
    else:
        print(f"Input: S-LoRA's synthetic workload, because there is no {TRACE}")
        print("       (set SIMLORA_TRACE_DIR to a folder with azure_llm_2023_conv.csv for real traffic).")
        workload = SYNTHETIC
    return [*CLUSTER, *workload, f"hydra.run.dir={OUT}"]


def what_it_takes(overrides: list[str]) -> None:
    """Print what the same traffic gets from more replicas: the question that a simulator is for."""
    print(
        "\nThe same traffic on more GPUs:\n\n  A10G   SLO attainment   TTFT p99   rejected   load", flush=True
    )
    for replicas in REPLICAS:
        result = simulate([*overrides, f"cluster.replicas={replicas}", "timeline=false"])
        summary = result.summary
        attainment, load = summary["slo"]["attainment"], summary["load"]["label"]
        print(
            f"  {replicas:>4}   {attainment:>14.1%}   {summary['ttft_s']['p99']:>6.1f} s   "
            f"{summary['requests']['rejected']:>8}   {load}",
            flush=True,
        )


def demonstrate() -> int:
    """Run the main job as a user would, then ask what it takes. Returns the exit status."""
    os.chdir(ROOT)
    overrides = command()
    print(f"\n  simlora {shlex.join(overrides)}\n", flush=True)
    return main(overrides) or ended(lambda: _ask(overrides))


def _ask(overrides: list[str]) -> None:
    what_it_takes(overrides)
    print(f"\nOpen {ROOT / OUT / 'report.html'} in a browser.")


if __name__ == "__main__":
    sys.exit(demonstrate())
