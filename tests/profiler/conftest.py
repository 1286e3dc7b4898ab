"""Kernels run interpreted here: Triton decides when a kernel is defined, so before any is imported.

But for `pytest tests/profiler/test_on_gpu.py`, which compiles them.
"""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if not any("test_on_gpu" in argument for argument in sys.argv):
    os.environ["TRITON_INTERPRET"] = "1"
# The profiler is an extra of its own, which `make test` installs.
collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["test_*.py"]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Products of a few rows: threads would wait for each other for longer than they compute."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
