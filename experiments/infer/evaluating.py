"""A setting, simulated: the numbers of each claim under it. What was evaluated before is read from disk.

Evaluations are also written as a table beside the page (`docs/inferred/<paper>.csv`), a row a setting and seed, from
which the page can be written again without a simulation (`--kept`), and which others may look at.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from joblib import Parallel, delayed

import experiments.claims
import experiments.studies
from experiments.claims import evaluate
from experiments.claims.claim import Claim
from experiments.infer import conditions
from experiments.infer import unknowns as reading
from experiments.infer.conditions import published, simulated, under
from experiments.infer.unknowns import Setting, Unknowns
from experiments.studies import running
from simlora.api.cache import open_cache
from simlora.api.fingerprint import ROOT, SHOWING, SUFFIXES
from simlora.api.progress import bar
from simlora.core.errors import InputError
from simlora.sweeps.outcome import Overrides

Numbers = Mapping[str, Sequence[float] | None]
"""Simulated numbers of each claim, one for each that is published; None where its runs do not fit the memory."""

ABOUT = ("seed", "searched", "drawn", "runs", "seconds")
SOURCES = "sources"
"""Column that says which state of the sources simulated the table."""
DIGITS = 6
"""Significant digits of a number that is kept, so that it is the same from the table."""

Key = tuple[tuple[str, float | str], ...]
"""A setting that can be looked up."""


@dataclass(frozen=True)
class Place:
    """A setting with a seed of everything random."""

    setting: Key
    seed: int

    @property
    def values(self) -> dict[str, float | str]:
        """The setting by name."""
        return dict(self.setting)


@dataclass(frozen=True)
class Evaluation:
    """What was simulated at a place: the numbers of each claim that was asked for, and what they took on one core.

    A run that several claims look at counts for the first of them.
    """

    place: Place
    numbers: Numbers
    runs: Mapping[str, int]
    seconds: Mapping[str, float]


Asked = tuple[Place, Sequence[Claim]]
"""Claims at a place."""


def place(setting: Setting, seed: int) -> Place:
    """Return a place."""
    return Place(tuple(setting.items()), seed)


@dataclass
class Evaluator:
    """Evaluations of one paper's settings, by `jobs` processes (-1: one a core).

    `done` has what was asked for so far, by place.
    """

    unknowns: Unknowns
    jobs: int
    done: dict[Place, Evaluation] = field(default_factory=dict)

    @property
    def all(self) -> list[Evaluation]:
        """Everything that has been asked for."""
        return [*self.done.values()]

    def __call__(self, wanted: Iterable[Asked], shown: str = "settings") -> list[Evaluation]:
        """Return the evaluation of each place, in their order; `shown` heads the progress bar."""
        wanted = list(wanted)
        missing: dict[Place, dict[str, Claim]] = {}
        for at, claims in wanted:
            for claim in claims:
                if not self._has(at, claim):
                    missing.setdefault(at, {})[claim.id] = claim
        if missing:
            with bar(len(missing), shown, None) as tell:
                pool = Parallel(n_jobs=self.jobs, return_as="generator")
                simulated = pool(
                    delayed(_simulated)(self.unknowns, at, [*claims.values()])
                    for at, claims in missing.items()
                )
                for count, found in enumerate(simulated, 1):
                    _keep(self.unknowns, found)
                    self._add(found)
                    tell(count)
        return [self.done[at] for at, _ in wanted]

    def _has(self, at: Place, claim: Claim) -> bool:
        if at in self.done and claim.id in self.done[at].numbers:
            return True
        found = _kept(self.unknowns, at, claim)
        if found is not None:
            self._add(found)
        return found is not None

    def _add(self, found: Evaluation) -> None:
        old = self.done.get(found.place, Evaluation(found.place, {}, {}, {}))
        self.done[found.place] = Evaluation(
            found.place,
            {**old.numbers, **found.numbers},
            {**old.runs, **found.runs},
            {**old.seconds, **found.seconds},
        )


def _simulated(unknowns: Unknowns, at: Place, claims: Sequence[Claim]) -> Evaluation:
    change = partial(under, unknowns, at.values, at.seed)
    counted: set[Overrides] = set()
    numbers, runs, seconds = {}, {}, {}
    with running.under(change), running.watched(jobs=1) as watch:
        for claim in claims:
            numbers[claim.id] = _numbers(claim)
            new = {running.changed(point): point.overrides for point in watch.points.values()}
            new = {run: asked for run, asked in new.items() if run not in counted}
            counted |= new.keys()
            runs[claim.id] = len(new)
            seconds[claim.id] = round(sum(watch.outcomes[asked].seconds for asked in new.values()), 3)
    return Evaluation(at, numbers, runs, seconds)


def _numbers(claim: Claim) -> list[float] | None:
    found = simulated(claim, evaluate.simulated([*claim.spots_looked_at()], {}))
    return None if found is None else [float(f"{number:.{DIGITS}g}") for number in found]


def _question(unknowns: Unknowns, at: Place, claim: str) -> list[Any]:
    return [unknowns.paper, _digest(unknowns.folder), at.setting, at.seed, claim]


@cache
def _digest(folder: Path) -> str:
    """Hash everything besides simlora itself that an evaluation hangs on."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in _files(folder))).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Return what an evaluation hangs on besides simlora: all but what-ifs, which no claim is about."""
    folders = [folder, *(Path(package.__path__[0]) for package in (experiments.claims, experiments.studies))]
    files = [
        path
        for each in folders
        for path in sorted(each.rglob("*"))
        if path.suffix in (".py", ".yaml") and not path.relative_to(each).parts[0].startswith("what_if")
    ]
    return [*files, *(Path(module.__file__) for module in (conditions, reading))]


def _kept(unknowns: Unknowns, at: Place, claim: Claim) -> Evaluation | None:
    store, question = open_cache(), _question(unknowns, at, claim.id)
    found = store.read(store.named(question), "question", json.dumps(question), "evaluation")
    return None if found is None else Evaluation(at, *({claim.id: value} for value in found))


def _keep(unknowns: Unknowns, found: Evaluation) -> None:
    store = open_cache()
    for claim, numbers in found.numbers.items():
        question = _question(unknowns, found.place, claim)
        evaluation = [numbers, found.runs[claim], found.seconds[claim]]
        store.write(store.named(question), {"question": json.dumps(question), "evaluation": evaluation})


def fingerprint(unknowns: Unknowns) -> str:
    """Return a hash of the sources that an evaluation hangs on, of simlora and of the experiments, as they are now.

    Texts of YAML files, such as a title or a reason, do not count: no number hangs on them. Nor does whether simlora is
    compiled.
    """
    found = hashlib.sha256()
    for path in sorted(ROOT.rglob("*")):
        name = path.relative_to(ROOT)
        if path.suffix in SUFFIXES and name.parts[0] not in (*SHOWING, COMPILED):
            found.update(name.as_posix().encode() + path.read_bytes())
    for path in _files(unknowns.folder):
        text = path.read_text(encoding="utf-8")
        found.update(
            (repr(_without_texts(yaml.safe_load(text))) if path.suffix == ".yaml" else text).encode()
        )
    return found.hexdigest()[:12]


COMPILED = "compiled.json"
"""What a build leaves of what it compiled."""
TEXTS = ("title", "says", "note", "source", "reason", "metric", "label", "budget")
"""Keys of YAML files on which no number hangs; the budget says only how many settings are simulated."""


def _without_texts(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_texts(value) for key, value in tree.items() if key not in TEXTS}
    return [_without_texts(value) for value in tree] if isinstance(tree, list) else tree


# The table: a row a place, with the unknowns, the seed, how often the search and the draws have it, runs and seconds,
# and the sources; then a column a number: empty where it was not asked for, inf where its runs do not fit the memory.


@dataclass(frozen=True)
class Simulated:
    """All that an inference simulates.

    `searched` teaches the emulator. `left` has the defaults, then the settings that are drawn in the end, each with
    all seeds side by side. `all` has these and the settings at which single claims are looked for. `sources`: the
    fingerprint of the sources that simulated it.
    """

    searched: Sequence[Evaluation]
    left: Sequence[Evaluation]
    all: Sequence[Evaluation]
    sources: str


def write_table(unknowns: Unknowns, simulated: Simulated, seeds: int, path: Path) -> None:
    """Write all evaluations as CSV; the first `seeds` of those that are left are of the defaults."""
    counts = _counts(unknowns)
    searched = Counter(one.place for one in simulated.searched)
    drawn = Counter(one.place for one in simulated.left[seeds:])
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        names = [each.name for each in unknowns.unknowns]
        numbers = [column for claim in counts for column in _columns(claim, counts)]
        rows.writerow([*names, *ABOUT, SOURCES, *numbers])
        for one in simulated.all:
            cells: list[float | str] = []
            for claim, count in counts.items():
                numbers = one.numbers.get(claim, [""] * count)
                cells += [math.inf] * count if numbers is None else numbers
            at, spent = one.place, (sum(one.runs.values()), round(math.fsum(one.seconds.values()), 3))
            about = (at.seed, searched[at], drawn[at], *spent, simulated.sources)
            rows.writerow([*at.values.values(), *about, *cells])


def read_table(unknowns: Unknowns, seeds: Sequence[int], path: Path) -> Simulated:
    """Return what a table has; settings that are drawn have these seeds.

    Raises InputError for a table that does not exist, or that is of other unknowns or claims.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; without --kept it is written") from None
    counts = _counts(unknowns)
    needed = {*ABOUT, SOURCES, *(each.name for each in unknowns.unknowns)}
    needed |= {column for claim in counts for column in _columns(claim, counts)}
    searched: list[Evaluation] = []
    drawn: dict[Key, int] = {}
    found: dict[Place, Evaluation] = {}
    for row in rows:
        if missing := sorted(needed - row.keys()):
            raise InputError(f"{path} has no column {missing[0]!r}: it is of other unknowns or claims")
        one = _evaluation(unknowns, counts, row)
        found[one.place] = one
        searched += [one] * int(row["searched"])
        if int(row["drawn"]):
            drawn[one.place.setting] = int(row["drawn"])
    settings = [place(unknowns.defaults, 0).setting, *(each for each in drawn for _ in range(drawn[each]))]
    left = [found[Place(each, seed)] for each in settings for seed in seeds]
    return Simulated(searched, left, [*found.values()], rows[0][SOURCES])


def cost(path: Path) -> tuple[int, float]:
    """Return the runs of a table, and how many seconds of one core they took."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return sum(int(row["runs"]) for row in rows), math.fsum(float(row["seconds"]) for row in rows)


def _evaluation(unknowns: Unknowns, counts: Mapping[str, int], row: Mapping[str, str]) -> Evaluation:
    numbers: dict[str, list[float] | None] = {}
    for claim in counts:
        cells = [row[column] for column in _columns(claim, counts)]
        if "" not in cells:
            found = [float(cell) for cell in cells]
            numbers[claim] = None if math.inf in found else found
    at = place({each.name: each.named(row[each.name]) for each in unknowns.unknowns}, int(row["seed"]))
    first = next(iter(numbers))
    return Evaluation(at, numbers, {first: int(row["runs"])}, {first: float(row["seconds"])})


def _counts(unknowns: Unknowns) -> dict[str, int]:
    """Return how many numbers each claim has."""
    return {claim.id: len(published(claim)) for claim in (*unknowns.claims, *unknowns.beside)}


def _columns(claim: str, counts: Mapping[str, int]) -> list[str]:
    return [f"{claim} {index}" for index in range(counts[claim])]
