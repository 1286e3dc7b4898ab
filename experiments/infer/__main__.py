"""Which unpublished conditions a paper's claims allow: `python -m experiments.infer PAPER [--at "name=value …"]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.claims.numbers import shown
from experiments.infer.comparing import published
from experiments.infer.drawing import draw
from experiments.infer.evaluating import Evaluator, place, read_table, write_table
from experiments.infer.inference import SEEDS, infer, infer_again
from experiments.infer.saying import as_json, markdown, terminal
from experiments.infer.unknowns import read
from experiments.studies.command import PROJECT, ended, made
from experiments.studies.draw import write
from experiments.studies.reading import known
from simlora.api.cache import HELP
from simlora.core.errors import InputError

EXPERIMENTS = Path(__file__).resolve().parents[1]
BUDGET = {
    "design": "settings spread over all ranges",
    "judged": "of these so many with the claims held back",
    "search": "settings that the optimiser tries",
    "draws": "settings that are judged in the end",
    "rounds": "settings at which each claim that has not come out is looked for",
    "seeds": "seeds of each setting in the search",
}
PAGES = PROJECT / "docs" / "inferred"


def papers(folder: Path = EXPERIMENTS) -> dict[str, Path]:
    """Return the folders that state unknowns, by the paper's name."""
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/unknowns.yaml"))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Infer; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.infer",
        description="Find the conditions that a paper does not print and that its claims allow: some claims are "
        "fitted, the others are predicted. Writes a page, its picture and JSON.",
        epilog=f"{HELP} What was simulated of a setting is kept as well, so that an interrupted inference goes on.",
    )
    parser.add_argument("paper", help=f"one of {', '.join(papers())}")
    parser.add_argument(
        "--at", metavar="SETTING", help='print the claims under one setting, "load_ms=12 cpu_slower=2"'
    )
    parser.add_argument(
        "--fit",
        metavar="CLAIM,…",
        default="",
        help="fit these claims, and judge those that unknowns.yaml says",
    )
    parser.add_argument(
        "--kept",
        action="store_true",
        help="simulate nothing: write the page again from the table beside it, whatever changed in simlora since",
    )
    for name, does in BUDGET.items():
        parser.add_argument(
            f"--{name}", type=int, metavar="N", help=f"{does} (default: as unknowns.yaml says)"
        )
    parser.add_argument(
        "--out", type=Path, default=PAGES, help="where the page goes (default: docs/inferred)"
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    return ended(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    have = papers()
    fit = [name for name in options.fit.split(",") if name]
    unknowns = read(have[known(options.paper, have, "PAPER")], fit)
    if options.at is not None:
        _print_at(Evaluator(unknowns, options.jobs), options.at)
        return
    out = made(options.out)
    asked_for = {name: value for name in BUDGET if (value := getattr(options, name)) is not None}
    unknowns = replace(unknowns, budget=replace(unknowns.budget, **asked_for))
    files = out / unknowns.paper
    table = files.with_suffix(".csv")
    if options.kept and (asked_for or fit):
        raise InputError("--kept writes the page of the table as it is, without other options but --out")
    if options.kept:
        found = infer_again(unknowns, read_table(unknowns, SEEDS, table))
    else:
        found = infer(Evaluator(unknowns, options.jobs), lambda text: print(text, flush=True))
    for line in terminal(found):
        print(line)
    write(draw(found), files.with_suffix(".png"))
    command = " ".join(
        ["python -m experiments.infer", unknowns.paper, *(["--fit", options.fit] if fit else [])]
    )
    files.with_suffix(".md").write_text(markdown(found, f"{unknowns.paper}.png", command), encoding="utf-8")
    files.with_suffix(".json").write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    write_table(unknowns, found.simulated, len(SEEDS), table)
    print(f"wrote {unknowns.paper}.md, .png, .json and .csv in {out}")


def _print_at(evaluated: Evaluator, text: str) -> None:
    unknowns = evaluated.unknowns
    setting = unknowns.parsed(text)
    claims = [*unknowns.fitted, *unknowns.judged]
    found = evaluated([(place(setting, seed), claims) for seed in (0, *SEEDS)])
    print("published, and simulated with four seeds")
    for claim in claims:
        rows = [one.numbers[claim.id] for one in found]
        print(f"{claim.id}: {shown(published(claim))}")
        for row in rows:
            print(f"    {shown(list(row)) if row else 'does not fit'}")


if __name__ == "__main__":
    sys.exit(main())
