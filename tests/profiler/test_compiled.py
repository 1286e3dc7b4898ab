"""The kernels compile ahead of time, without a GPU, for those that people have, and spill nothing."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def reports() -> list[dict[str, Any]]:
    """Compile in a process of its own: this one interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "profiler.kernels.compiled", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_all_kernels_compile_for_all_types_and_gpus(reports):
    kernels = {f"{name} {half}" for name in ("bgmv", "mbgmv", "sgmv") for half in ("shrink", "expand")}
    expected = {
        (kernel, dtype, sm) for kernel in kernels for dtype in ("fp16", "bf16") for sm in (80, 86, 90)
    }
    assert {(report["kernel"], report["dtype"], report["sm"]) for report in reports} == expected


def test_nothing_is_spilled_and_several_programs_share_a_multiprocessor(reports):
    for report in reports:
        assert report["spilled_bytes"] == 0, report
        # 65,536 registers and at least 100 KB: 4 programs of 128 threads or more.
        assert report["registers"] <= 128, report
        assert report["shared_bytes"] <= 24_000, report
