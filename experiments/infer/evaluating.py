"""A setting, simulated: the numbers of each claim under it. What was evaluated before is read from disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

import experiments.claims
import experiments.studies
from experiments.claims import evaluate
from experiments.claims.claim import Claim
from experiments.infer import comparing, conditions
from experiments.infer import unknowns as reading
from experiments.infer.comparing import simulated
from experiments.infer.conditions import under
from experiments.infer.unknowns import Setting, Unknowns, read
from experiments.studies import running
from simlora.api.cache import open_cache
from simlora.api.progress import bar

Numbers = Mapping[str, Sequence[float] | None]
"""Simulated numbers of each claim, one for each that is published; None where its runs do not fit the memory."""

Key = tuple[tuple[str, float | str], ...]
"""A setting that can be looked up."""


@dataclass(frozen=True)
class Asked:
    """A setting with a seed, and whether the claims held back are simulated too."""

    setting: Key
    seed: int
    judged: bool

    @property
    def values(self) -> dict[str, float | str]:
        """The setting by name."""
        return dict(self.setting)


@dataclass(frozen=True)
class Evaluation:
    """What was simulated of a setting, and what that took on one core."""

    asked: Asked
    numbers: Numbers
    runs: int
    seconds: float


def asked(setting: Setting, seed: int, judged: bool) -> Asked:
    """Return a question."""
    return Asked(tuple(setting.items()), seed, judged)


def evaluate_all(unknowns: Unknowns, wanted: Iterable[Asked], jobs: int, shown: str = "") -> list[Evaluation]:
    """Return an evaluation for each question, in their order; `shown` heads the progress bar."""
    wanted = list(wanted)
    kept = {one: _kept(unknowns, one) for one in wanted}
    missing = [one for one, found in kept.items() if found is None]
    if missing:
        with bar(len(missing), shown or "settings", None) as tell:
            pool = Parallel(n_jobs=min(jobs, len(missing)) if jobs > 0 else jobs, return_as="generator")
            for done, found in enumerate(
                pool(delayed(_simulated)(unknowns.folder, one) for one in missing), 1
            ):
                _keep(unknowns, found)
                kept[found.asked] = found
                tell(done)
    return [found for one in wanted if (found := kept[one]) is not None]


def _simulated(folder: Path, one: Asked) -> Evaluation:
    unknowns = _read(folder)
    claims = [*unknowns.fitted, *(unknowns.judged if one.judged else ())]
    change = partial(under, unknowns, one.values, one.seed)
    with running.under(change), running.watched(jobs=1) as watch:
        numbers = {claim.id: _numbers(claim) for claim in claims}
    seconds = sum(outcome.seconds for outcome in watch.outcomes.values())
    return Evaluation(one, numbers, len(watch.outcomes), round(seconds, 3))


def _numbers(claim: Claim) -> list[float] | None:
    return simulated(claim, evaluate.simulated([*claim.spots_looked_at()], {}))


_read = cache(read)


def _question(unknowns: Unknowns, one: Asked) -> list[Any]:
    return [unknowns.paper, _digest(unknowns.folder), one.setting, one.seed, one.judged]


@cache
def _digest(folder: Path) -> str:
    """Hash everything besides simlora itself that an evaluation hangs on."""
    folders = [folder, *(Path(package.__path__[0]) for package in (experiments.claims, experiments.studies))]
    files = [path for each in folders for path in sorted(each.rglob("*")) if path.suffix in (".py", ".yaml")]
    files += [Path(module.__file__) for module in (comparing, conditions, reading)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _kept(unknowns: Unknowns, one: Asked) -> Evaluation | None:
    cache, question = open_cache(), _question(unknowns, one)
    text = json.dumps(question)
    found = cache.read(cache.named(question), "question", text, "evaluation")
    return None if found is None else Evaluation(one, **found)


def _keep(unknowns: Unknowns, found: Evaluation) -> None:
    cache, question = open_cache(), _question(unknowns, found.asked)
    evaluation = {"numbers": found.numbers, "runs": found.runs, "seconds": found.seconds}
    cache.write(cache.named(question), {"question": json.dumps(question), "evaluation": evaluation})
