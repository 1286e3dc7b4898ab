"""Which unpublished conditions a paper's claims allow: `python -m experiments.infer PAPER [--at "name=value …"]`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from experiments.claims.verdicts import shown
from experiments.infer.conditions import published
from experiments.infer.drawing import draw
from experiments.infer.evaluating import Evaluator, place, read_table, write_table
from experiments.infer.inference import SEEDS, infer, infer_again
from experiments.infer.saying import as_json, markdown, terminal
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
    claims = [*unknowns.fitted, *unknowns.judged]
    found = evaluated([(place(setting, seed), claims) for seed in (0, *SEEDS)])
    print("published, and simulated with four seeds")
    for claim in claims:
        rows = [one.numbers[claim.id] for one in found]
        print(f"{claim.id}: {shown(published(claim))}")
        for row in rows:
            print(f"    {shown(list(row)) if row else 'does not fit'}")


@program(
    option("paper", help=f"one of {', '.join(papers())}"),
    option("--at", metavar="SETTING", help='print the claims under one setting, "load_ms=12 cpu_slower=2"'),
    option(
        "--fit",
        metavar="CLAIM,…",
        default="",
        help="fit these claims, and judge those that unknowns.yaml says",
    ),
    option(
        "--kept",
        action="store_true",
        help="simulate nothing: write the page again from the table beside it, whatever changed in simlora since",
    ),
    option("--out", type=Path, default=PAGES, help="where the page goes (default: docs/inferred)"),
    JOBS,
    about="Find the conditions that a paper does not print and that its claims allow: some claims are fitted, the "
    "others are predicted. Writes a page, its picture and JSON.",
    epilog=f"{HELP} What was simulated of a setting is kept as well, so that an interrupted inference goes on.",
)
def main(paper: str, at: str | None, fit: str, kept: bool, out: Path, jobs: int) -> None:
    """Infer, print and write."""
    have = papers()
    unknowns = read(have[known(paper, have, "PAPER")], [name for name in fit.split(",") if name])
    if at is not None:
        _print_at(Evaluator(unknowns, jobs), at)
        return
    if kept and fit:
        raise InputError("--kept writes the page of the table as it is, without other options but --out")
    files = made(out) / unknowns.paper
    table = files.with_suffix(".csv")
    if kept:
        found = infer_again(unknowns, read_table(unknowns, SEEDS, table))
    else:
        found = infer(Evaluator(unknowns, jobs), lambda text: print(text, flush=True))
    for line in terminal(found):
        print(line)
    write(draw(found), files.with_suffix(".png"))
    asked = f"python -m experiments.infer {unknowns.paper}" + (f" --fit {fit}" if fit else "")
    files.with_suffix(".md").write_text(markdown(found, f"{unknowns.paper}.png", asked), encoding="utf-8")
    files.with_suffix(".json").write_text(json.dumps(as_json(found), indent=1) + "\n", encoding="utf-8")
    write_table(unknowns, found.simulated, len(SEEDS), table)
    print(f"wrote {unknowns.paper}.md, .png, .json and .csv in {out}")
