"""What four servers carry within the SLO, LoRAServe's Figure 17: `python -m experiments.loraserve.rates`.

The highest rate, in whole requests a second, at which the 95th percentile of TTFT stays within 10 s on the
production-like trace, of five systems with 50, 100 and 200 adapters. P95 over the rate is the study figure_17.

Toppings is there twice. LoRAServe says that it routes "after considering the requests currently being served and
queued at each server" (section V-D) and calls its behaviour "rank agnostic" (V-F): a router that counts requests, by
which the claims are judged. What Toppings' own authors publish (CaraServe, Algorithm 1) knows ranks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.studies import markdown
from experiments.studies.command import JOBS, program
from experiments.studies.points import Point, point
from experiments.studies.running import run_all
from experiments.studies.study import Study, read
from simlora.api.cache import HELP
from simlora.core.errors import InputError

METRIC, SLO_S = "ttft_s.p95", 10.0
STRIDE = 8
"""Steps from one rate to the next, until one is within the SLO and one is not."""


@dataclass(frozen=True)
class Servers:
    """A curve of a study over the rate; a search begins at `start_rps` and ends `step_rps` below the first failure."""

    study: Study
    panel: str
    series: str
    start_rps: int
    step_rps: int = 1

    def at(self, steps: int) -> Point:
        """Return the run at so many steps."""
        panel, series = self.study.panel(self.panel), self.study.series_named(self.series)
        return point(self.study, panel, series, steps * self.step_rps)


def highest_rps(servers: Sequence[Servers], jobs: int = -1) -> list[float]:
    """Return the highest rate of each; all searches look at their next rate at once.

    Assumed is that what a lower rate misses a higher one misses too. Raises InputError if the lowest rate does.
    """
    searches = [_search(round(each.start_rps / each.step_rps)) for each in servers]
    asked = {index: next(search) for index, search in enumerate(searches)}
    found = [0.0] * len(servers)
    while asked:
        runs = {index: servers[index].at(steps) for index, steps in asked.items()}
        outcomes = run_all(runs.values(), jobs)
        for index, run in runs.items():
            outcome = outcomes[run.overrides]
            if outcome.reason:
                raise InputError(f"{run.series} ({run.panel}) at {run.x}: {outcome.reason}")
            value = outcome.figure(METRIC)
            try:
                asked[index] = searches[index].send(value is not None and value <= SLO_S)
            except StopIteration as end:
                del asked[index]
                found[index] = float(end.value * servers[index].step_rps)
    return found


def _search(start: int) -> Generator[int, bool, int]:
    """Yield what to try, and be sent whether it is within the SLO; return the highest that is."""
    low = high = start
    if (yield start):
        while (yield (high := low + STRIDE)):
            low = high
    else:
        while not (yield (low := _lower(high))):
            high = low
    while high - low > 1:
        middle = (low + high) // 2
        if (yield middle):
            low = middle
        else:
            high = middle
    return low


def _lower(high: int) -> int:
    if high == 1:
        raise InputError(f"the SLO, a P95 of TTFT of {SLO_S:g} s, is missed even at the lowest rate")
    return max(high - STRIDE, 1)


STUDY = Path(__file__).with_name("figure_17.yaml")
SYSTEMS = {
    "LoRAServe": "loraserve",
    "Toppings": "agnostic",
    "Toppings, Algorithm 1": "toppings",
    "S-LoRA Random": "random",
    "S-LoRA Contiguous": "contiguous",
}
ADAPTERS = {50: "few", 100: "hundred", 200: "many"}
"""The study's series and panels."""
START_RPS = {"loraserve": 78, "agnostic": 70, "toppings": 92, "random": 67, "contiguous": 48}
"""Where searches begin: near where they end, so that they are short."""
OURS, THEIRS, STATIC = "LoRAServe", "Toppings", ("S-LoRA Random", "S-LoRA Contiguous")
PUBLISHED = {"throughput": (1.2, 2.0), "gpus": (17.0, 50.0)}
"""Up to: LoRAServe's rate over Toppings' and over S-LoRA's, and by how many per cent fewer GPUs that is."""
Rates = Mapping[tuple[str, int], float]
"""Requests per second by system and number of adapters."""


def rates(
    jobs: int = -1, systems: Iterable[str] = SYSTEMS, adapters: Iterable[int] = ADAPTERS
) -> dict[tuple[str, int], float]:
    """Return what every system, or some of them, carries, with one seed."""
    study = read(STUDY)
    cells = {
        (system, n): Servers(study, ADAPTERS[n], SYSTEMS[system], START_RPS[SYSTEMS[system]])
        for system in systems
        for n in adapters
    }
    return dict(zip(cells, highest_rps(list(cells.values()), jobs), strict=True))


def ahead(found: Rates, other: str) -> list[float]:
    """Return LoRAServe's rate over another system's, for each number of adapters."""
    return [rate / found[other, adapters] for (system, adapters), rate in found.items() if system == OURS]


def throughput(adapters: Iterable[int] = ADAPTERS) -> list[float]:
    """Return the claim ls-f17-thr: the most over Toppings, and over S-LoRA."""
    found = rates(systems=(OURS, THEIRS, *STATIC), adapters=adapters)
    return [max(ahead(found, THEIRS)), max(ratio for other in STATIC for ratio in ahead(found, other))]


def gpus() -> list[float]:
    """Return the claim ls-f17-gpu: the GPUs, in %, that such a ratio saves for the same traffic."""
    return [100 * (1 - 1 / ratio) for ratio in throughput()]


def table(found: Rates) -> str:
    """Return the rates in Markdown, and LoRAServe's over each."""
    rows = []
    for system in SYSTEMS:
        cells = [f"{found[system, n]:.1f}" for n in ADAPTERS]
        cells.append("; ".join(f"{ratio:.2f}" for ratio in ahead(found, system)))
        rows.append([system, *cells])
    head = ["requests/s", *(f"{n} adapters" for n in ADAPTERS), "LoRAServe over it"]
    return markdown.table(head, rows)


@program(JOBS, epilog=HELP)
def main(jobs: int) -> None:
    """Print the rates."""
    found = rates(jobs)
    print(table(found))
    print(
        f"\nPublished: up to {PUBLISHED['throughput'][0]} times Toppings', {PUBLISHED['throughput'][1]} S-LoRA's."
    )
