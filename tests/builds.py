"""What holds only where simlora's hot rooms are interpreted."""

import pytest

from simlora.core.build import BUILD

FRAMES = pytest.mark.skipif(BUILD == "compiled", reason="compiled functions have no frames to count")
ARRAYS = pytest.mark.skipif(BUILD == "compiled", reason="compiled latency models take no arrays")
"""Routers price many replicas at once with arrays; compiled, one after the other is faster."""
