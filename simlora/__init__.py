"""simlora: a discrete-event simulator of GPU clusters that serve many LoRA adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simlora.api import Result, simulate

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "simulate"]


def __getattr__(name: str) -> Any:
    """Import the Python interface on first use: `import simlora` alone costs almost nothing."""
    if name in ("Result", "simulate"):
        from simlora import api

        return getattr(api, name)
    raise AttributeError(f"module 'simlora' has no attribute {name!r}")
