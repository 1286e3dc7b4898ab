"""Compiles the kernels ahead of time, no GPU needed: `python -m profiler.kernels.compiled [--json]`.

Prints what each takes of a multiprocessor, as the assembler reports it. A kernel that spills registers to memory
is not memory-bound any more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from profiler.kernels import decode, prefill
from profiler.kernels.work import TILE_TOKENS
from simlora.cli.guarded import DONE, guarded

ARCHITECTURES = {80: "A100", 86: "A10", 90: "H100, H200"}
DTYPES = ("fp16", "bf16")
INTS = {"rows", "in_features", "out_features", "padded_rank", "x_stride", "y_stride", "table_stride"}
FLOATS = {"scales"}
WEIGHTS = {"x", "y", "a", "b"}


@dataclass(frozen=True)
class Report:
    """One kernel, one type, one architecture: registers of a thread, bytes of a program, bytes of a thread."""

    kernel: str
    dtype: str
    sm: int
    registers: int
    shared_bytes: int
    spilled_bytes: int


def reports() -> Iterator[Report]:
    """Compile every kernel for every type and architecture."""
    for sm in ARCHITECTURES:
        for dtype in DTYPES:
            for name, kernel, constants in _kernels():
                yield _compiled(name, kernel, constants, dtype, sm)


def _kernels() -> Iterator[tuple[str, triton.JITFunction, dict[str, object]]]:
    rank = {"BLOCK_RANK": decode.BLOCK_RANK, "PARTS": decode.PARTS}
    for name, padded in (("bgmv", True), ("mbgmv", False)):
        yield f"{name} shrink", decode.shrink, {"PADDED": padded, "BLOCK_IN": decode.BLOCK_IN, **rank}
        yield f"{name} expand", decode.expand, {"PADDED": padded, "BLOCK_OUT": decode.BLOCK_OUT, **rank}
    tile = {"WIDEN": False, "TILE_TOKENS": TILE_TOKENS, "BLOCK_RANK": prefill.BLOCK_RANK}
    yield "sgmv shrink", prefill.shrink, {"BLOCK_IN": prefill.BLOCK_IN, **tile}
    yield "sgmv expand", prefill.expand, {"BLOCK_OUT": prefill.BLOCK_OUT, **tile}


def _compiled(
    name: str, kernel: triton.JITFunction, constants: dict[str, object], dtype: str, sm: int
) -> Report:
    signature = {
        arg: "constexpr" if arg in constants else _type(arg, name, dtype) for arg in kernel.arg_names
    }
    # Pointers, widths and strides of real models are multiples of 16; the launcher finds that out by itself.
    unknown = {"rows", "padded_rank", "table_stride", *constants}
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, arg in enumerate(kernel.arg_names)
        if arg not in unknown
    }
    source = ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", sm, 32))
    usage = _usage(made.asm["cubin"])
    return Report(name, dtype, sm, usage["REG"], made.metadata.shared, usage["STACK"] + usage["LOCAL"])


def _type(argument: str, kernel: str, dtype: str) -> str:
    if argument in INTS:
        return "i32"
    if argument in WEIGHTS or (argument == "s" and kernel.startswith("sgmv")):
        return f"*{dtype}"
    return "*fp32" if argument in FLOATS or argument == "s" else "*i32"


def _usage(cubin: bytes) -> dict[str, int]:
    """Return what `cuobjdump -res-usage` says, by name; the assembler spills registers to STACK or LOCAL."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", said)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row a kernel; 0 when done, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m profiler.kernels.compiled", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON list")
    options = parser.parse_args(arguments)
    return guarded(lambda: _say(options.json), "interrupted; nothing is kept")


def _say(as_json: bool) -> int:
    found = list(reports())
    if as_json:
        print(json.dumps([asdict(report) for report in found]))
        return DONE
    print(f"{'kernel':14} {'type':5} {'sm':>3} {'registers':>9} {'shared':>8} {'spilled':>8}")
    for r in found:
        print(
            f"{r.kernel:14} {r.dtype:5} {r.sm:3} {r.registers:9} {r.shared_bytes:6} B {r.spilled_bytes:6} B"
        )
    return DONE


if __name__ == "__main__":
    sys.exit(main())
