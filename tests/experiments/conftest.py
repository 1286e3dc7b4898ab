"""The tiny world, with its runs, for the tests of the cross-table and of the composition."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cross_table import capacities
from experiments.cross_table.world import World
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
