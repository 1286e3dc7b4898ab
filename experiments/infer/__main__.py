"""Which unpublished conditions a paper's claims allow: `python -m experiments.infer PAPER [--at "name=value …"]`."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

from experiments.claims.verdicts import shown
from experiments.infer.conditions import factor, published
from experiments.infer.drawing import draw
from experiments.infer.emulating import Kernels
from experiments.infer.evaluating import (
    Evaluator,
    Simulated,
    cost,
    fingerprint,
    place,
    read_table,
    write_table,
)
from experiments.infer.inference import SEEDS, drawn_alike, infer, infer_again
from experiments.infer.saying import as_json, markdown, terminal
from experiments.infer.searching import differences
from experiments.infer.together import together
from experiments.infer.unknowns import read
from experiments.studies.command import JOBS, PROJECT, made, option, program
from experiments.studies.look import write
from experiments.studies.reading import known
from experiments.studies.study import papers as folders_of
from simlora.api.cache import HELP
from simlora.core.errors import InputError

papers = partial(folders_of, "unknowns.yaml")
PAGES = PROJECT / "docs" / "inferred"


def _print_at(evaluated: Evaluator, text: str) -> None:
    unknowns = evaluated.unknowns
    setting = unknowns.parsed(text)
    claims = [*unknowns.claims, *unknowns.beside]
    found = evaluated([(place(setting, seed), claims) for seed in (0, *SEEDS)])
    print("published, and simulated with four seeds")
    for claim in claims:
        rows = [one.numbers[claim.id] for one in found]
        print(f"{claim.id}: {shown(published(claim))}")
        for row in rows:
            print(f"    {shown(list(row)) if row else 'does not fit'}")


def _print_costs() -> None:
    """Print what the inferences in docs/inferred took, and their sum."""
    all_runs, all_s = 0, 0.0
    for path in sorted(PAGES.rglob("*.csv")):
        runs, seconds = cost(path)
        print(
            f"{path.relative_to(PAGES).with_suffix('')}: {runs:,} runs, {seconds / 60:.0f} minutes of one core"
        )
        all_runs, all_s = all_runs + runs, all_s + seconds
    print(f"all: {all_runs:,} runs, {all_s / 60:.0f} minutes of one core, {all_s / 7200:.1f} hours of two")


def _print_doubt(evaluated: Evaluator, found: Simulated, checked: bool) -> None:
    """Say whether other sources simulated a table, and if `checked` how far the defaults are off."""
    now = fingerprint(evaluated.unknowns)
    if found.sources != now:
        print(
            f"warning: sources {found.sources} simulated the table, and they are {now} now: its numbers may differ "
            "from what a new inference finds",
            file=sys.stderr,
        )
    if checked:
        kept = found.left[: len(SEEDS)]
        again = evaluated([(one.place, evaluated.unknowns.claims) for one in kept], "defaults: seeds")
        for claim in evaluated.unknowns.claims:
            before, after = (np.mean([differences(claim, one) for one in of], axis=0) for of in (kept, again))
            print(f"{claim.id}: off by a factor of {factor(before - after).max():.3f}")


def _kernels(path: Path, of: Simulated) -> Kernels | None:
    """Return the kernels that a page's JSON has of its table; None if it is of another table."""
    if not path.exists():
        return None
    tree = json.loads(path.read_text(encoding="utf-8"))
    mine = tree.get("sources") == of.sources and tree.get("runs") == sum(
        sum(one.runs.values()) for one in of.all
    )
    return tree.get("kernels") if mine else None


@program(
    option("paper", nargs="?", help=f"one of {', '.join(papers())}; none: print what each inference takes"),
    option("--at", metavar="SETTING", help='print the claims under one setting, "load_ms=12 cpu_slower=2"'),
    option(
        "--fit",
        metavar="CLAIM,…",
        default="",
        help="fit these claims, and judge those that unknowns.yaml says; or the name of one of its questions",
    ),
    option(
        "--kept",
        action="store_true",
        help="simulate nothing: write the page again from the table beside it, whatever changed in simlora since",
    ),
    option(
        "--check",
        action="store_true",
        help="with --kept: simulate the defaults again, and print how far the table is off",
    ),
    option(
        "--together",
        metavar="CLAIM,…",
        dest="joint",
        help="print, by the table beside the page, how near its settings come to each of these claims, and to all",
    ),
    option(
        "--out",
        type=Path,
        help="where the page goes (default: docs/inferred, of a question a folder of its name there)",
    ),
    JOBS,
    about="Find the conditions that a paper does not print and that its claims allow: some claims are fitted, the "
    "others are predicted. Writes a page, its picture and JSON.",
    epilog=f"{HELP} What was simulated of a setting is kept as well, so that an interrupted inference goes on.",
)
def main(
    paper: str | None,
    at: str | None,
    fit: str,
    kept: bool,
    check: bool,
    joint: str | None,
    out: Path | None,
    jobs: int,
) -> None:
    """Infer, print and write."""
    if paper is None:
        _print_costs()
        return
    have = papers()
    unknowns = read(have[known(paper, have, "PAPER")], [name for name in fit.split(",") if name])
    evaluated = Evaluator(unknowns, jobs)
    if at is not None:
        _print_at(evaluated, at)
        return
    if fit and not unknowns.question and out is None:
        raise InputError(
            "--fit of claims needs --out: docs/inferred has the page of those that unknowns.yaml fits"
        )
    files = made(PAGES / unknowns.question if out is None else out) / unknowns.paper
    table = files.with_suffix(".csv")
    if joint is not None:
        claims = {claim.id: claim for claim in (*unknowns.claims, *unknowns.beside)}
        chosen = [claims[known(name, claims, "--together")] for name in joint.split(",")]
        for line in together(unknowns, chosen, read_table(unknowns, SEEDS, table).all):
            print(line)
        return
    if kept:
        simulated = read_table(unknowns, SEEDS, table)
        _print_doubt(evaluated, simulated, check)
        found = infer_again(unknowns, simulated, _kernels(files.with_suffix(".json"), simulated))
        if not drawn_alike(found):
            print(
                "warning: the table's settings were drawn by another rule than the one that weighs them now; "
                "infer anew",
                file=sys.stderr,
            )
    else:
        found = infer(evaluated, lambda text: print(text, flush=True))
    for line in terminal(found):
        print(line)
    write(draw(found), files.with_suffix(".png"))
    asked = f"python -m experiments.infer {unknowns.paper}" + (f" --fit {fit}" if fit else "")
    files.with_suffix(".md").write_text(markdown(found, f"{unknowns.paper}.png", asked), encoding="utf-8")
    files.with_suffix(".json").write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    write_table(unknowns, found.simulated, len(SEEDS), table)
    print(f"wrote {unknowns.paper}.md, .png, .json and .csv in {files.parent}")
