"""The tiny world, with its runs or with made-up capacities, for the tests of the cross-table and of the composition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.cross_table import capacities
from experiments.cross_table.capacities import Carried, Use
from experiments.cross_table.world import System, Workload, World
from tests.experiments.small_world import small_world


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the tiny world, which all tests have."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def world(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(kept))
    return small_world(tmp_path)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find capacities to a tenth, in fewer runs, where their digits do not matter; in this process alone."""
    for name, value in (("PRECISION", 0.1), ("NEAR", 1.1), ("STEP", 2.0)):
        monkeypatch.setattr(capacities, name, value)


def carries(system: System, workload: Workload, seed: int, world: World) -> Carried:
    """Return a made-up capacity: in proportion to the batch, up to 64, and a little more with asynchronous loads."""
    settings = system.settings
    if settings.get("eviction") == "cost_model":
        return Carried(0.0, 0.0, "replica.prefix_caching is not set")
    rate = workload.start * world.same["cluster.replicas"] * (1 + seed % 5 / 200)
    rate *= min(settings.get("replica.max_num_seqs", 1000), 64) / 64
    rate *= 1.05 if settings.get("loader") == "asynchronous" else 1.0
    return Carried(rate, 1.01 * rate, use=Use(0.9, 0.5, 0.1, 0.0, 2.0))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[System]:
    """Search for no capacity: it is made up. Return the systems whose capacities were asked for."""
    asked: list[System] = []

    def searched(
        world: World, system: System, workload: Workload, seeds: Sequence[int], near_rps: float
    ) -> dict[int, Carried]:
        asked.append(system)
        return {seed: carries(system, workload, seed, world) for seed in seeds}

    monkeypatch.setattr(capacities, "_searched", searched)
    return asked
