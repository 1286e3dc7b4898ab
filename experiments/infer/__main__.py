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
from experiments.infer.evaluating import asked, evaluate_all
from experiments.infer.inference import SEEDS, infer
from experiments.infer.saying import as_json, page, terminal
from experiments.infer.unknowns import Unknowns, read
from experiments.studies.command import PROJECT, ended, made
from experiments.studies.draw import write
from experiments.studies.reading import known
from simlora.api.cache import HELP

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
    unknowns = read(have[known(options.paper, have, "PAPER")])
    if options.at is not None:
        _print_at(unknowns, options.at, options.jobs)
        return
    out = made(options.out)
    asked_for = {name: value for name in BUDGET if (value := getattr(options, name)) is not None}
    unknowns = replace(unknowns, budget=replace(unknowns.budget, **asked_for))
    found = infer(unknowns, options.jobs, lambda text: print(text, flush=True))
    for line in terminal(found):
        print(line)
    picture = out / f"{unknowns.paper}.png"
    write(draw(found), picture)
    command = f"python -m experiments.infer {unknowns.paper}"
    (out / f"{unknowns.paper}.md").write_text(page(found, picture.name, command), encoding="utf-8")
    (out / f"{unknowns.paper}.json").write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {unknowns.paper}.md, .png and .json in {out}")


def _print_at(unknowns: Unknowns, text: str, jobs: int) -> None:
    setting = unknowns.parsed(text)
    found = evaluate_all(unknowns, [asked(setting, seed, judged=True) for seed in (0, *SEEDS)], jobs)
    print("published, and simulated with four seeds")
    for claim in (*unknowns.fitted, *unknowns.judged):
        rows = [one.numbers[claim.id] for one in found]
        print(f"{claim.id}: {shown(published(claim))}")
        for row in rows:
            print(f"    {shown(list(row)) if row else 'does not fit'}")


if __name__ == "__main__":
    sys.exit(main())
