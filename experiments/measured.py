"""Where other people's measurements lie, if they are there at all."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "measured"


def measured_dir() -> Path:
    """Return the folder of measured runs: SIMLORA_MEASURED_DIR, or ../shared/measured beside the project."""
    return Path(os.environ.get("SIMLORA_MEASURED_DIR", DEFAULT))
