"""Every policy class below simlora/policies, and every kernel, found by walking the package."""

import importlib
import pkgutil

import simlora.policies
from simlora.latency.kernels import Kernel
from simlora.policies.eviction.base import Eviction
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scheduling.base import Scheduler
from simlora.policies.scheduling.picking import Picking

SLOTS = (Scheduler, Loader, Eviction, Router, Placement, Migration, Kernel, Autoscaler)
ABSTRACT = (*SLOTS, Swapper, Picking)

ARGUMENTS: dict[str, dict] = {
    "SelectiveIlp": {"more_requests": 2},
    "Credit": {"starving": 2.0, "normal": 1.0},
    "ChunkedSlo": {"max_batched_tokens": 32, "slo_s": 0.75, "margin_s": 0.125, "pass_s": 2**-4},
    "BySchedule": {"steps": [{"at_s": 0, "replicas": 1}, {"at_s": 0.5, "replicas": 3}], "period_s": 2**-4},
    "ByQueue": {
        "target_requests": 2,
        "target_waiting": 1,
        "target_adapters": 1,
        "period_s": 2**-4,
        "down_window_s": 2**-1,
    },
    "BySlo": {"ttft_s": 2**-2, "period_s": 2**-4, "window_s": 0.5, "down_after_s": 2**-2},
    "RankDemand": {"operating_points": {8: 5500.0, 128: 4500.0}},
}
"""What the constructor of a policy needs, by class name, where it has no default."""


def make(policy: type):
    """Return a new instance."""
    return policy(**ARGUMENTS.get(policy.__name__, {}))


def _concrete(base: type) -> set[type]:
    below = {found for child in base.__subclasses__() for found in _concrete(child)}
    return below if base in ABSTRACT else below | {base}


def policies(slot: type) -> list[type]:
    """Return the classes that fill a slot, by name."""
    for module in pkgutil.walk_packages(simlora.policies.__path__, "simlora.policies."):
        importlib.import_module(module.name)
    ours = [c for c in _concrete(slot) if c.__module__.startswith(("simlora.policies.", "simlora.latency."))]
    return sorted(ours, key=lambda c: c.__name__)
