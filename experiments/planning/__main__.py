"""Plans against an exhaustive grid: `python -m experiments.planning [DEPLOYMENT …] [--seeds N]`.

Of each made-up deployment the grid has every machine, every number of replicas that does not cost more than the plan,
and every combination of the flags' values. Printed are what the plan costs and the cheapest of the grid, and the runs
that each needed: the search's beside those of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments.studies import markdown
from experiments.studies.command import JOBS, option, program
from experiments.studies.reading import check, known, load
from simlora.api.cache import HELP
from simlora.planning import Plan, plan
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.machines import Machine
from simlora.planning.search import machines
from simlora.planning.tuning import Tuning, tuning

DEPLOYMENTS = Path(__file__).with_name("deployments.yaml")


Deployment = Mapping[str, Any]
"""A traffic with an SLO, and what may be rented and tuned: the arguments of `plan`."""


def deployments() -> dict[str, Deployment]:
    """Return the deployments by name. Raises InputError for a file that is not as it must be."""
    tree = check(load(DEPLOYMENTS), str(DEPLOYMENTS), ("prices", "tune", "always", "deployments"), ())
    found = {}
    for name, entry in tree["deployments"].items():
        one = check(entry, f"{DEPLOYMENTS}: {name}", ("gpus", "set"), ("tp",))
        found[name] = {
            "overrides": (*tree["always"], *one["set"]),
            "gpus": one["gpus"],
            "degrees": one.get("tp", [1]),
            "prices": {gpu: tree["prices"][gpu] for gpu in one["gpus"] if gpu in tree["prices"]},
            "tune": tree["tune"],
        }
    return found


def compare(of: Deployment, seeds: int, jobs: int) -> tuple[float, int, float, int]:
    """Return what a plan costs, in USD an hour, and the runs of its search; then the same of the grid.

    Only runs as long as the grid's are searched and counted.
    """
    found = plan(**of, seeds=seeds, plans=1, longest=1, jobs=jobs)
    usd = found.plans[0].candidate.usd_per_hour
    return usd, sum(not one.more for one, _ in found.trials.runs), *cheapest(found, of, usd)


def cheapest(found: Plan, of: Deployment, usd: float) -> tuple[float, int]:
    """Return the cheapest of the grid up to a cost, and how many runs the whole grid up to there has.

    Candidates are run in the order of their cost, until one keeps the SLO with every seed.
    """
    seeds = found.question.seeds
    trials = Trials(found.question, found.trials.jobs)
    overrides, gpus, degrees, prices, tune = of.values()
    pace_s = next((float(o.partition("=")[2]) for o in overrides if o.startswith("slo.tpot_s=")), None)
    kinds, traffic, _ = machines(overrides, ["vllm"], gpus, degrees, prices, tune)
    by_cost: list[tuple[float, list[Candidate]]] = []
    for on in kinds:
        flags = tuning(on, traffic, tune, pace_s)
        for replicas in range(1, math.floor(usd / on.usd_per_hour + 1e-9) + 1):
            by_cost.append((replicas * on.usd_per_hour, [*grid(on, flags, replicas)]))
    by_cost.sort(key=lambda pair: pair[0])
    runs = len(seeds) * sum(len(group) for _, group in by_cost)
    for cost, group in by_cost:
        trials.run(group, seeds[:1])
        if any(trials.met(one, seeds[:1]) and trials.met(one, seeds) for one in group):
            return cost, runs
    return math.inf, runs


def grid(on: Machine, flags: Tuning, replicas: int) -> Iterator[Candidate]:
    """Yield every combination of the flags' values; of one replica with one router."""
    ladders = {
        key: (ladder if key != "router" or replicas > 1 else ladder[:1])
        for key, ladder in flags.ladders.items()
    }
    for values in product(*ladders.values()):
        yield Candidate(on, replicas, tuple(zip(ladders, values, strict=True)))


@program(
    option("names", nargs="*", metavar="DEPLOYMENT", help="which (default: all ten)"),
    option("--seeds", type=int, default=2, help="seeds with which the SLO is kept (default: 2)"),
    JOBS,
    epilog=HELP,
)
def main(names: Sequence[str], seeds: int, jobs: int) -> None:
    """Print a line a deployment, as soon as it is known."""
    every = deployments()
    rows, above, shares = [], [], []
    for name in names or every:
        usd, searched, least_usd, runs = compare(every[known(name, every, "DEPLOYMENT")], seeds, jobs)
        above.append(usd / least_usd - 1)
        shares.append(searched / runs)
        rows.append([name, f"USD {usd:.2f}", f"USD {least_usd:.2f}", f"{searched:,}", f"{runs:,}"])
        print(" ".join(rows[-1]), flush=True)
    print()
    print(
        markdown.table(["deployment", "the plan, an hour", "the grid's cheapest", "runs", "the grid's"], rows)
    )
    print(
        f"\nAbove the grid's cheapest by {100 * sum(above) / len(above):.1f} % on average, {100 * max(above):.1f} % at "
        f"most; {100 * sum(shares) / len(shares):.0f} % of the grid's runs on average."
    )
