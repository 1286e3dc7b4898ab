"""Kernels run interpreted here: Triton decides when a kernel is defined, so before anybody imports one.

But for `pytest tests/profiler/test_on_gpu.py`, which compiles them.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

if not any("test_on_gpu" in argument for argument in sys.argv):
    os.environ["TRITON_INTERPRET"] = "1"
# The profiler is an extra of its own, which `make test` installs.
collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["test_*.py"]
