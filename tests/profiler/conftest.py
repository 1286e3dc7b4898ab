"""Kernels run interpreted here: Triton decides when a kernel is defined, so before anybody imports one."""

from __future__ import annotations

import os
from importlib.util import find_spec

os.environ["TRITON_INTERPRET"] = "1"
# The profiler is an extra of its own, which `make test` installs.
collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["test_*.py"]
