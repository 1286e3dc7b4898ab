"""Scenarios from overrides, as on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.api.preparing import composed, ready
from simlora.engine.scenario import Scenario


def scenario(overrides: Sequence[str]) -> Scenario:
    """Return what the engine runs for these overrides. Raises InputError for a mistake in them."""
    return ready(*composed(overrides)).scenario
