"""Judge the papers' claims: `python -m experiments.claims [--paper NAME] [--json OUT] [--markdown OUT]`."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from experiments.claims import board, evaluate, pictures, verdicts
from experiments.claims.claim import read
from experiments.claims.evaluate import Row
from experiments.studies.command import JOBS, made, option, program, shown, writable
from experiments.studies.reading import known
from experiments.studies.running import Watch, watched
from experiments.studies.study import EXPERIMENTS, read_all
from experiments.studies.study import papers as folders_of
from simlora.api.cache import HELP

papers = partial(folders_of, "claims.yaml")
LIST = EXPERIMENTS.parents[1] / "shared" / "claims.csv"
PAGE = EXPERIMENTS.parent / "docs" / "claims.md"
"""Where the board of all papers is written."""
INFERRED = PAGE.parent / "inferred"
"""Where `python -m experiments.infer` has written what it found, a JSON a paper."""


def judge(paper: str, folder: Path) -> list[Row]:
    """Return a row a claim of a paper. Runs what claims look at, and what the reasons do of those that do not hold."""
    claims = read(folder / "claims.yaml", read_all(folder))
    outcomes = evaluate.simulated([spot for claim in claims for spot in claim.spots_looked_at()], {})
    failing = [claim for claim in claims if evaluate.judge(claim, outcomes).verdict != verdicts.HOLDS]
    outcomes = evaluate.simulated([spot for claim in failing for spot in claim.evidence.values()], outcomes)
    return [evaluate.evaluate(paper, claim, outcomes) for claim in claims]


def notes(rows: Sequence[Row], have: Mapping[str, Path]) -> list[str]:
    """Return what the list of all claims (SIMLORA_CLAIMS, or ../shared/claims.csv), if it is there, has beyond ours."""
    path = Path(os.environ.get("SIMLORA_CLAIMS", LIST))
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        listed = [(row["paper"], row["id"]) for row in csv.DictReader(file)]
    judged, papers_judged = {row.id for row in rows}, {row.paper for row in rows}
    missing = Counter(paper for paper, _ in listed if paper not in have)
    found = []
    if missing:
        parts = ", ".join(f"{paper} ({count})" for paper, count in missing.items())
        found.append(f"Papers that have claims and no folder here yet: {parts}.")
    forgotten = [name for paper, name in listed if paper in papers_judged and name not in judged]
    if forgotten:
        found.append(f"Claims that no claims.yaml has: {', '.join(forgotten)}.")
    return found


def conditions(folder: Path) -> dict[str, str]:
    """Return under which conditions claims come out, by claim, as far as that was looked for.

    Of a claim of which only a part was looked for it says which.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        claims = json.loads(path.read_text(encoding="utf-8"))["claims"]
        for name, claim in claims.items():
            found[name] = claim["true_under"] + (" (fitted)" if claim["fitted"] else "")
            found |= dict.fromkeys(claim.get("part_of", ()), f"its part {name}: {found[name]}")
    return found


def _took(ran: Mapping[str, Watch]) -> list[str]:
    """Return a sentence about the runs of each paper. Those that were kept count with the seconds that they took."""
    runs = {paper: watch.outcomes.values() for paper, watch in ran.items()}
    return [
        f"{paper}: {len(own):,} runs, which took {sum(outcome.seconds for outcome in own):,.0f} s to simulate"
        for paper, own in runs.items()
    ]


def _draw(
    rows: Mapping[str, Sequence[Row]], chosen: Mapping[str, Path], ran: Mapping[str, Watch], out: Path
) -> list[Path]:
    """Draw every figure that a row is about."""
    paths = []
    for paper, own in rows.items():
        names = dict.fromkeys(study for row in own for study in row.studies)
        paths += pictures.draw_all(chosen[paper], names, ran[paper], out / paper)
    return paths


@program(
    option(
        "--paper", action="append", dest="names", metavar="PAPER", help="only this paper (may be repeated)"
    ),
    option("--json", type=Path, metavar="OUT", dest="tree", help="write the board as JSON"),
    option(
        "--markdown",
        type=Path,
        metavar="OUT",
        dest="page",
        help="write the board as a page, and its figures into the folder figures beside it",
    ),
    JOBS,
    about="Simulate what the papers claim, and print published, simulated and verdict of each claim. The board of all "
    "papers is written to docs/claims.md, with its figures.",
    epilog=HELP,
)
def main(names: Sequence[str] | None, tree: Path | None, page: Path | None, jobs: int) -> None:
    """Make the board; it is made whatever it says."""
    have = papers()
    chosen = {known(name, have, "--paper"): have[name] for name in names or have}
    page = page or (None if names else PAGE)
    if tree:
        writable(tree, "--json")
    if page:
        writable(made(page.parent, "--markdown") / page.name, "--markdown")
    rows: dict[str, list[Row]] = {}
    with watched(jobs):
        ran: dict[str, Watch] = {}
        for paper, folder in chosen.items():
            with watched() as ran[paper]:
                rows[paper] = judge(paper, folder)
    every = [row for own in rows.values() for row in own]
    said = notes(every, have)
    print(board.terminal(every))
    for line in (*said, *_took(ran)):
        print(line)
    if tree:
        tree.write_text(
            json.dumps(board.as_json(every, said), indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
        print(f"wrote {shown(tree)}")
    if page:
        drawn = _draw(rows, chosen, ran, page.parent / "figures")
        asked = "".join(f" --paper {paper}" for paper in names or ())
        text = board.markdown(every, said, f"python -m experiments.claims{asked}", conditions(INFERRED))
        page.write_text(text, encoding="utf-8")
        print(f"wrote {shown(page)} and {len(drawn)} figures in {shown(page.parent / 'figures')}")
