"""Judge the papers' claims: `python -m experiments.claims [--paper NAME] [--json OUT] [--markdown OUT]`."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.claims import board
from experiments.claims.claim import Claim, read
from experiments.claims.evaluate import Row, evaluate
from experiments.studies.reading import known
from experiments.studies.running import run_all
from experiments.studies.study import read_all
from simlora.api.cache import HELP
from simlora.core.errors import InputError

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130
EXPERIMENTS = Path(__file__).resolve().parents[1]
LIST = EXPERIMENTS.parents[1] / "shared" / "claims.csv"


def papers(folder: Path = EXPERIMENTS) -> dict[str, Path]:
    """Return the folders that have claims, by the paper's name."""
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/claims.yaml"))}


def judge(chosen: Mapping[str, Path], jobs: int = -1) -> list[Row]:
    """Simulate all that the claims of these papers need, and return a row a claim."""
    claims = [(paper, claim) for paper, folder in chosen.items() for claim in _claims(folder)]
    points = [point for _, claim in claims for point in claim.points()]
    evidence = [point for _, claim in claims for spot in claim.evidence.values() for point in spot.points]
    outcomes = run_all([*points, *evidence], jobs)
    return [evaluate(paper, claim, outcomes) for paper, claim in claims]


def _claims(folder: Path) -> list[Claim]:
    return read(folder / "claims.yaml", read_all(folder))


def notes(rows: Sequence[Row], have: Mapping[str, Path]) -> list[str]:
    """Return what the list of all claims (SIMLORA_CLAIMS, or ../shared/claims.csv), if it is there, has beyond ours."""
    path = Path(os.environ.get("SIMLORA_CLAIMS", LIST))
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        listed = [(row["paper"], row["id"]) for row in csv.DictReader(file)]
    judged, papers_judged = {row.id for row in rows}, {row.paper for row in rows}
    missing = {paper: sum(one == paper for one, _ in listed) for paper, _ in listed if paper not in have}
    found = []
    if missing:
        parts = ", ".join(f"{paper} ({count})" for paper, count in missing.items())
        found.append(f"Papers that have claims and no folder here yet: {parts}.")
    forgotten = [name for paper, name in listed if paper in papers_judged and name not in judged]
    if forgotten:
        found.append(f"Claims that no claims.yaml has: {', '.join(forgotten)}.")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the board; 0 when it was made, whatever it says, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.claims",
        description="Simulate what the papers claim, and print published, simulated and verdict of each claim.",
        epilog=HELP,
    )
    parser.add_argument("--paper", action="append", help="only this paper (may be repeated)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the board as JSON")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="write the board as a page")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    try:
        have = papers()
        names = [known(name, have, "--paper") for name in options.paper or have]
        rows = judge({name: have[name] for name in names}, options.jobs)
        said = notes(rows, have)
        print(board.terminal(rows))
        for note in said:
            print(note)
        if options.json:
            _write(options.json, json.dumps(board.as_json(rows, said), indent=1, allow_nan=False) + "\n")
        if options.markdown:
            _write(options.markdown, board.markdown(rows, said))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(
            "interrupted; the runs that were finished are kept, and the next board goes on there",
            file=sys.stderr,
        )
        return INTERRUPTED
    return DONE


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
