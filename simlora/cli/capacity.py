"""`simlora-capacity [option …] [group=choice] [key=value] …`: what a configuration can serve within an SLO."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simlora.cli.guarded import (
    DONE,
    RUNS_ARE_KEPT,
    add_across,
    add_config_dir,
    add_longest,
    command_parser,
    guarded_options,
    overrides_of,
)
from simlora.cli.messages import say, show
from simlora.cli.pairs import numbers
from simlora.core.errors import InputError

DESCRIPTION = """\
Find the highest request rate that a configuration serves within an SLO, or with --replicas the fewest replicas that
serve the rate it has. What comes after the options is written as for simlora; simlora --help lists it. A key with
several values compares configurations: system=slora,fastlibra."""
EXAMPLES = """\
examples
  simlora-capacity gpu=a10g model=llama_7b slo.ttft_s=2             the rate at which 95 % get their first token in time
  simlora-capacity gpu=a10g model=llama_7b system=slora,slora_lcfs slo.ttft_s=2   two systems side by side
  simlora-capacity gpu=a10g,a100_80g model=llama_7b slo.ttft_s=2       two GPUs
  simlora-capacity --limit ttft_s.p95=10 system=loraserve gpu=a100_40g model=llama_7b workload=loraserve \\
      cluster.replicas=4
  simlora-capacity --replicas --attainment 0.9 gpu=a10g model=llama_7b slo.ttft_s=2 slo.tpot_s=0.1 workload=maf \\
      workload.arrivals.rate_rps=40
  simlora-capacity gpu=a10g model=llama_7b workload=file workload.path=trace.csv slo.ttft_s=2    of your own traffic
  simlora-capacity --key workload.adapters --limit ttft_s.p99=6 gpu=h100_64g model=llama_3_1_8b system=vllm \\
      workload=per_adapter
  simlora-capacity --across gpu,model system=slora,vllm slo.ttft_s=2    each on the GPU that it brings along

Each of --seeds seeds is searched by itself, the same for every system; the interval is over seeds. A run past
saturation does not meet the SLO. Runs get longer until the answer no longer moves, as a short one ends before a queue
is long. A trace of your own (workload=file) is as long as it is; it is sped up or slowed down.
Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache here): after an interruption the same command goes on where
it was, and more --seeds or a finer --precision only adds runs. Written are capacity.json, runs.parquet (a row a run)
and capacity.png; of several configurations these in folders 0, 1, …, and capacities.json and capacities.png.
Exit status: 0 done, 2 bad input, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, RUNS_ARE_KEPT)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-capacity", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="the configuration, as for simlora; several values, as for simlora -m, are compared",
    )
    add_config_dir(parser)
    add(
        "--replicas", action="store_true", help="find the fewest cluster.replicas instead of the highest rate"
    )
    add(
        "--limit",
        action="append",
        default=[],
        metavar="FIGURE=LIMIT",
        help="a figure of summary.json that has to stay below, such as ttft_s.p95=10; may be given several times",
    )
    add(
        "--attainment",
        type=float,
        metavar="SHARE",
        help="least share of the requests within all slo.* targets (default: 0.95, if there is no --limit)",
    )
    add("--seeds", type=int, default=5, metavar="N", help="seeds to search with, from seed=0 on (default: 5)")
    add("--precision", type=float, default=0.02, metavar="SHARE", help="of the rate (default: 0.02)")
    add(
        "--key",
        help="what to vary instead of the workload's rate_rps, or speedup where it has none; more is worse",
    )
    add("--start", type=float, metavar="VALUE", help="where to begin (default: as configured)")
    add(
        "--step",
        type=float,
        default=2.0,
        metavar="FACTOR",
        help="of the first value beside --start; less than 2 if that is nearly right (default: 2)",
    )
    add("--least", type=float, metavar="VALUE", help="rates below are not looked at (default: 0.0001)")
    add_longest(parser)
    add_across(parser)
    add("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)")
    add("--out", type=Path, metavar="DIR", help="where the results go (default: outputs/capacity)")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.replicas and options.key:
        raise InputError("--replicas and --key cannot be given together: --replicas varies cluster.replicas")
    folder = options.out or Path("outputs") / "capacity"
    from simlora.sweeps import capacities

    compared = capacities(
        overrides_of(options),
        find="replicas" if options.replicas else "rate",
        limits=numbers("--limit", options.limit, "ttft_s.p95=10"),
        attainment=options.attainment,
        seeds=options.seeds,
        precision=options.precision,
        key=options.key,
        start=options.start,
        least=options.least,
        step=options.step,
        longest=options.longest,
        jobs=options.jobs,
        progress=sys.stderr.isatty(),
        across=options.across,
    )
    several = len(compared.found) > 1
    for name, one in compared.found.items():
        of = f"of {name}, " if several else ""
        for warning in one.warnings:
            say(f"notice: {of}{warning}")
        if one.doubt:
            say(f"notice: {of}a run may mix what files were before an edit and after: {one.doubt}")
    if several:
        compared.save(folder)
        show(compared.text())
        show(f"\nResults: {folder}/capacities.png, capacities.json, and of each {folder}/0/capacity.png, …\n")
    else:
        (found,) = compared.found.values()
        found.save(folder)
        show(found.text())
        show(f"\nResults: {folder}/capacity.png, capacity.json, runs.parquet\n")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
