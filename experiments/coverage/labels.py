"""How often the load label is right: models whose offered load is known, by load and length of run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from joblib import Parallel, delayed

from experiments.coverage.models import MODELS
from simlora.metrics.saturation import BELOW, LOADS, NEAR, PAST, WITHIN, load

LOADS_OFFERED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
REQUESTS = (100, 1_000, 5_000)


def right(label: str, rho: float) -> bool:
    """Whether what a label says is so of an offered load `rho`; `unknown` says nothing, and never is."""
    return {BELOW: rho < 1, NEAR: WITHIN < rho < 1 / WITHIN, PAST: rho >= 1}.get(label, False)


def labels(model: str, rho: float, requests: int, seeds: Iterable[int]) -> Counter[str]:
    """Return how many runs have which label."""
    return Counter(load(MODELS[model].recorded(rho, requests, seed).requests())["label"] for seed in seeds)


def table(runs: int, sizes: Sequence[int] = REQUESTS, jobs: int = -1) -> None:
    """Print the share of right labels of so many runs, and of each label, by model, length and offered load."""
    print(f"share of right labels in {runs} runs, and of " + ", ".join(LOADS))
    print(f"{'model':<8}{'requests':>9}{'load':>7}{'right':>8}" + "".join(f"{name:>9}" for name in LOADS))
    cells = [(model, rho, size) for model in MODELS for size in sizes for rho in LOADS_OFFERED]
    counts = Parallel(n_jobs=jobs, return_as="generator")(delayed(labels)(*one, range(runs)) for one in cells)
    for (model, rho, size), count in zip(cells, counts, strict=True):
        share = sum(number for label, number in count.items() if right(label, rho)) / runs
        shares = "".join(f"{count[name] / runs:>9.1%}" for name in LOADS)
        print(f"{model:<8}{size:>9,}{rho:>7.2f}{share:>8.1%}{shares}", flush=True)
