"""`simlora-report RUN_OR_SWEEP …`: one page that compares runs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from simlora.cli.guarded import DONE, add_across, command_parser, guarded_options
from simlora.cli.messages import say, show
from simlora.core.errors import InputError
from simlora.report.format import counted, size
from simlora.results.files import cannot_write

DESCRIPTION = """\
Write one page that compares runs: SLO attainment over rate, how long requests took, cost against attainment, and a
table with intervals and winners. It stands alone: any browser opens it, and it loads nothing from the network."""
EXAMPLES = """\
examples
  simlora system=slora gpu=a10g model=llama_7b hydra.run.dir=a
  simlora system=vllm gpu=a10g model=llama_7b hydra.run.dir=b
  simlora-report a b                                       two runs: distributions and a table

  simlora system=vllm gpu=l40s model=llama_7b hydra.run.dir=c
  simlora-report b c --across gpu                          two runs on two GPUs

  simlora-sweep system=slora,fastlibra gpu=a10g model=llama_7b workload.rate_rps=1,2,3,4 --seeds 5
  simlora-report outputs/sweep                             curves with intervals, a line a system
  simlora-report outputs/sweep --figure tpot_s.p95         and another figure of summary.json
  simlora-report outputs/sweep --x cluster.replicas --by system --out replicas.html

What is compared: folders of runs (summary.json, requests.parquet and config.yaml), and of sweeps (sweep.parquet). Runs
that differ in their seed only are averaged; with two seeds or more there are intervals, and winners. Seeds that change
nothing, as of a trace read from a file, count as one run. A sweep keeps no requests, so that distributions are drawn of
folders of runs. The page begins with the GPU, model, engine, SLO and calibration of each side. Runs that differ in
one of these are refused unless --across, --by, --x or the grid of a sweep asks for it.
Colours follow the browser's light or dark theme.
Exit status: 0 done, 2 bad input, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = shlex.join(["simlora-report", *arguments])
    return guarded_options(
        _parser(), arguments, lambda options: _run(options, command), "interrupted; no page was written"
    )


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-report", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add(
        "paths",
        nargs="+",
        type=Path,
        metavar="RUN_OR_SWEEP",
        help="a run's folder, a sweep's, or a sweep.parquet",
    )
    add(
        "--out",
        type=Path,
        default=Path("comparison.html"),
        metavar="FILE",
        help="(default: comparison.html)",
    )
    add(
        "--x",
        metavar="KEY",
        help="a number in the configuration to draw curves over (default: the rate, the speedup, or whatever varies)",
    )
    add(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="a line for each of its values, may be given several times (default: whatever else varies)",
    )
    add(
        "--figure",
        action="append",
        default=[],
        metavar="FIGURE",
        help="a figure of summary.json to draw too, such as kv.hit_rate; may be given several times",
    )
    add_across(parser)
    return parser


def _run(options: argparse.Namespace, command: str) -> int:
    from simlora.report.comparison import write_comparison
    from simlora.report.sides import heading
    from simlora.sweeps.comparing import compare

    if options.out.is_dir():
        raise InputError(
            f"--out {options.out} is a folder, must be a file such as {options.out / 'page.html'}"
        )
    found = compare(options.paths, options.x, options.by, options.figure, command, options.across)
    show(f"{heading(found.sides)}\n")
    for notice in found.notices:
        say(f"notice: {notice}")
    try:
        write_comparison(options.out, found)
    except OSError as error:
        raise cannot_write(options.out, error) from error
    over = f" over {found.x}" if found.x else ""
    show(f"{counted(found.runs, 'run')}, {counted(len(found.lines), 'line')}{over}")
    show(f"Report: {options.out}, {size(options.out.stat().st_size)}\n")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
