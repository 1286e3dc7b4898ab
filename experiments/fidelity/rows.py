"""The rows of a file in the schema of S-LoRA's measured runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from experiments.fidelity.cells import Cells, number, one_of, read_cells
from experiments.fidelity.compare import Figure, figures_of

MODELS = {"S1": "llama_7b", "S2": "llama_7b", "S3": "llama_13b", "S4": "llama_13b"}
RANKS = {"S1": (8,), "S2": (64, 32, 16, 8), "S3": (16,), "S4": (64, 32, 16)}
WORKLOAD = (
    "num_adapters",
    "alpha",
    "req_rate",
    "cv",
    "duration_s",
    "prompt_lo",
    "prompt_hi",
    "output_lo",
    "output_hi",
)
FIGURES = figures_of("slora")
MEASURED = tuple(figure.column for figure in FIGURES)
NEAR, PAST = 0.5, 0.9
"""Attainment below which a run counts as past saturation, and above which as below it."""
NAMES = ("system", "gpu", "setting", "kv_token_budget", "campaign")
CLUSTER = "slora_cluster_"
VARIANTS = ("slora_bmm", "slora_no_unify_mem")
ENGINES = ("hf_peft", "vllm_packed")
"""Systems whose iterations are those of another engine than S-LoRA's."""


@dataclass(frozen=True)
class Row:
    """One measured run: its columns as they are, its workload and its figures as numbers."""

    columns: Mapping[str, str]
    workload: Mapping[str, float]
    measured: Mapping[str, float]
    figures: ClassVar[Sequence[Figure]] = FIGURES

    @property
    def model(self) -> str:
        """The base model of the setting."""
        return MODELS[self.columns["setting"]]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Adapter i has rank ranks[i mod len]."""
        return RANKS[self.columns["setting"]]

    @property
    def calibration(self) -> str:
        """The name of the calibration that fits this row's hardware and serving engine."""
        engine = self.columns["system"]
        return f"{self.columns['gpu']}-{self.model}-tp1" + (f"-{engine}" if engine in ENGINES else "")

    @property
    def system(self) -> str:
        """The system to simulate.

        Clustering from d adapters on is plain S-LoRA when there are no more than d, and without adapters
        so is every variant of its engine.
        """
        system = self.columns["system"]
        if self._clusters is None:
            plain = system in VARIANTS and not self.workload["num_adapters"]
            return "slora" if plain else system
        return "slora" if self.workload["num_adapters"] <= self._clusters else "slora_cluster"

    @property
    def clusters(self) -> int | None:
        """The number of adapters from which on S-LoRA clusters; None for other systems."""
        return self._clusters if self.system == "slora_cluster" else None

    @property
    def _clusters(self) -> int | None:
        number = self.columns["system"].removeprefix(CLUSTER)
        return int(number) if number.isdigit() else None

    @property
    def load(self) -> str:
        """Where the measured run was: below, near or past saturation."""
        attainment = self.measured.get("attainment_6s")
        if attainment is None:
            return "unknown"
        return "below" if attainment >= PAST else "near" if attainment >= NEAR else "past"

    @property
    def series(self) -> str:
        """Its system; all sizes of clusters are one."""
        system = self.columns["system"]
        return f"{CLUSTER}…" if system.startswith(CLUSTER) else system

    @property
    def file(self) -> str:
        """The file that the row comes from, without its folder and the numbers in its name."""
        return re.sub(r"_\d+(?=_)", "", Path(self.columns.get("source") or "").stem)

    @property
    def place(self) -> str:
        """Where it is in the tables: hardware and campaign, and what its workloads differ in."""
        parts = [self.columns[name] for name in ("gpu", "setting", "campaign")]
        return " ".join([*parts, *(f"{name}={self.workload[name]:g}" for name in WORKLOAD[:4])])

    @property
    def key(self) -> str:
        """What was run: system, hardware, pool and workload, in one line."""
        parts = [self.columns[name] for name in ("system", "gpu", "setting", "campaign")]
        parts.append(f"kv_token_budget={self.columns['kv_token_budget']}")
        return " ".join([*parts, *(f"{name}={self.workload[name]:g}" for name in WORKLOAD)])


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file and line, for what is not in the schema."""
    return [_row(cells, place) for place, cells in read_cells(path, (*NAMES, *WORKLOAD, *MEASURED))]


def _row(cells: Cells, place: str) -> Row:
    one_of(MODELS, cells, "setting", place)
    workload = {name: number(cells, name, place) for name in WORKLOAD}
    # A figure that is missing is not compared; the others are.
    return Row(cells, workload, {name: number(cells, name, place) for name in MEASURED if cells[name]})
