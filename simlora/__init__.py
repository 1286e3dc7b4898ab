"""simlora: a discrete-event simulator of GPU clusters that serve many LoRA adapters."""

from __future__ import annotations

from simlora.core.starting import stoppable

stoppable()  # while the rest is imported

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from simlora.core.build import BUILD, WHY_INTERPRETED  # noqa: E402  # before any room that may be compiled

if TYPE_CHECKING:
    from simlora.api import Result, simulate
    from simlora.planning import Plan, plan
    from simlora.sweeps import Capacities, Capacity, Sweep, capacities, capacity, sweep
    from simlora.validation import Validation, validate

__version__ = "0.2.0"
__all__ = [
    "BUILD",
    "WHY_INTERPRETED",
    "Capacities",
    "Capacity",
    "Plan",
    "Result",
    "Sweep",
    "Validation",
    "__version__",
    "capacities",
    "capacity",
    "plan",
    "simulate",
    "sweep",
    "validate",
]
_ROOMS = {
    "Capacities": "simlora.sweeps",
    "Capacity": "simlora.sweeps",
    "Plan": "simlora.planning",
    "Result": "simlora.api",
    "Sweep": "simlora.sweeps",
    "Validation": "simlora.validation",
    "capacities": "simlora.sweeps",
    "capacity": "simlora.sweeps",
    "plan": "simlora.planning",
    "simulate": "simlora.api",
    "sweep": "simlora.sweeps",
    "validate": "simlora.validation",
}


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use: `import simlora` alone costs almost nothing."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'simlora' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)
