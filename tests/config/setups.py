"""Setups from overrides, as a user writes them."""

from simlora.api.preparing import composed
from simlora.config.setup import Setup, prepare

SHORT = ("workload=synthetic", "workload.duration_s=600", "workload.adapters=10")


def prepared(*overrides: str) -> Setup:
    """What `simlora <overrides>` would simulate, of a short workload."""
    return prepare(*composed([*SHORT, *overrides]))
