"""`simlora-sweep [option …] [key=value,value …]`: a grid of runs with seeds, in one table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlora.cli.guarded import (
    DONE,
    RUNS_ARE_KEPT,
    add_across,
    add_config_dir,
    command_parser,
    guarded_options,
    overrides_of,
)
from simlora.cli.messages import say, show
from simlora.core.errors import InputError, nearest

if TYPE_CHECKING:
    from simlora.sweeps import Sweep

DESCRIPTION = """\
Simulate every combination of the values that keys are given, with every seed, and put all runs into one table. Keys and
choices are written as for simlora -m: a,b,c or range(1,9); simlora --help lists them."""
EXAMPLES = """\
examples
  simlora-sweep system=slora,slora_lcfs,fastlibra gpu=a10g model=llama_7b workload.rate_rps=1,2,3,4 --seeds 5
  simlora-sweep 'cluster.replicas=range(1,9)' gpu=a10g model=llama_7b workload.rate_rps=8 --figure ttft_s.p95
  simlora-sweep system=slora,slora_lcfs gpu=a10g model=llama_7b workload.rate_rps=2 --seeds 20 --against system=slora
  simlora-sweep gpu=a10g,a100_80g model=llama_7b workload.rate_rps=1,2,4          the grid asks for two GPUs
  simlora-sweep system=slora,vllm --across gpu,model workload.rate_rps=1,2        each on the GPU that it brings along
  simlora-sweep system=slora,vllm gpu=a10g model=llama_7b workload.rate_rps=1,2 --seeds 50 --backend dask \\
      --address tcp://10.0.0.1:8786

Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache here) as they end: killed, the same command goes on where it
was, and another grid runs only what is new. sweep.parquet has a row a run: key, what was varied, seed, status, reason,
load, device, side.* (GPU, model, engine, SLO and calibration), and every number of summary.json; a run that is refused
or fails is a row with its reason. Sweeps into the same folder, later or at the same time, add their rows.
simlora-report DIR draws it, with winners.
Exit status: 0 done, 2 bad input, 130 interrupted."""
FIGURES = ("slo.attainment", "ttft_s.mean", "tpot_s.mean")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, RUNS_ARE_KEPT)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-sweep", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("overrides", nargs="*", metavar="key=value,value", help="the grid, as for simlora -m")
    add_config_dir(parser)
    add(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="seeds of every combination, from seed=0 on (default: 1)",
    )
    add(
        "--figure",
        action="append",
        metavar="FIGURE",
        help=f"a figure of summary.json to print, may be given several times (default: {', '.join(FIGURES)})",
    )
    add(
        "--against",
        metavar="KEY=VALUE",
        help="print differences from this value, with the same random numbers",
    )
    add_across(parser)
    add("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)")
    add(
        "--backend",
        default="loky",
        metavar="NAME",
        help="loky (this machine), ray or dask (a cluster's workers)",
    )
    add(
        "--address",
        metavar="ADDRESS",
        help="where that cluster is, such as 10.0.0.1:6379 or tcp://10.0.0.1:8786",
    )
    add(
        "--out",
        type=Path,
        default=Path("outputs/sweep"),
        metavar="DIR",
        help="folder of sweep.parquet (default: outputs/sweep)",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    from simlora.sweeps import sweep
    from simlora.sweeps.grid import grid
    from simlora.sweeps.values import read

    options.overrides = overrides_of(options)
    if options.against:
        axis, axes = options.against.partition("=")[0], grid(options.overrides).axes
        if not axes:
            raise InputError(
                "--against compares values of a key with several, and nothing is varied: give one, as in router=a,b"
            )
        if axis not in axes:
            raise InputError(
                f"--against {options.against!r} is no value of what is varied; {nearest(axis, axes)}"
            )
        base = options.against.partition("=")[2]
        if read(base) not in map(read, axes[axis]):
            raise InputError(f"--against: {axis} has no {base!r}; {nearest(base, axes[axis])}")
    found = sweep(
        options.overrides,
        seeds=options.seeds,
        out=options.out,
        jobs=options.jobs,
        backend=options.backend,
        address=options.address,
        progress=sys.stderr.isatty(),
        across=options.across,
    )
    show(f"{found.heading}\n")
    _warn(found)
    for figure in options.figure or FIGURES:
        show(f"{found.text(figure, options.against)}\n")
    show(f"Results: {options.out}/sweep.parquet, {len(found.table):,} runs\n")
    return DONE


RESAMPLED = "workload.resample_block_s"


def _warn(found: Sweep) -> None:
    from simlora.sweeps.outcome import RAN
    from simlora.sweeps.statistics import echoes
    from simlora.sweeps.table import WARNING

    if RESAMPLED in found.table and (
        blocks := [each for each in found.table[RESAMPLED].unique() if each != "null"]
    ):
        say(
            f"notice: each seed draws the trace anew, of its own blocks of {', '.join(map(str, blocks))} s "
            "(moving-block bootstrap)"
        )
    if again := int(echoes(found.table, found.axes).sum()):
        say(
            f"notice: {again:,} runs did the very same as another seed of their configuration, to the last digit; "
            "where nothing is drawn, as of a trace read from a file, intervals say nothing "
            "(workload.resample_block_s=60 draws it anew with each seed, of its own blocks of 60 s)"
        )
    if found.stale:
        say(
            f"notice: {found.stale:,} rows of earlier sweeps in the same table have read files as they no longer are; "
            "run them again, or choose another --out"
        )
    ran = found.table["status"] == RAN
    if len(unsure := found.table[ran & (found.table["reason"] != "")]):
        say(
            f"notice: {len(unsure):,} of {len(found.table):,} runs may mix what files were before an edit and after; "
            f"the first: {unsure.iloc[0]['reason']}"
        )
    for warning, rows in found.table[ran & (found.table[WARNING].fillna("") != "")].groupby(
        WARNING, sort=True
    ):
        say(f"notice: of {len(rows):,} of {len(found.table):,} runs, {warning}")
    lost = found.table[~ran]
    if len(lost):
        first = lost.iloc[0]
        say(
            f"notice: {len(lost):,} of {len(found.table):,} runs have no figures; the first: {first['reason']}"
        )


if __name__ == "__main__":
    sys.exit(main())
