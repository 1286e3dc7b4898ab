"""What four servers carry within the SLO, LoRAServe's Figure 17: `python -m experiments.loraserve.rates`.

The highest rate, in whole requests a second, at which the 95th percentile of TTFT stays within 10 s on the
production-like trace, of five systems with 50, 100 and 200 adapters. P95 over the rate is the study figure_17.

Toppings is there twice. LoRAServe says that it routes "after considering the requests currently being served and
queued at each server" (section V-D) and calls its behaviour "rank agnostic" (V-F): a router that counts requests, by
which the claims are judged. What Toppings' own authors publish (CaraServe, Algorithm 1) knows ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.loraserve.carried import Servers, highest_rps
from experiments.studies import markdown
from experiments.studies.command import JOBS, program
from experiments.studies.study import read
from simlora.api.cache import HELP

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
