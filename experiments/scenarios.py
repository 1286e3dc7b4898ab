"""Scenarios from overrides, as on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.engine.scenario import Scenario


def scenario(overrides: Sequence[str]) -> Scenario:
    """Compose and check a configuration; return what the engine runs."""
    config, choices = compose(overrides)
    return prepare(config, choices).scenario
