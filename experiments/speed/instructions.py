"""Instructions that a request of plain S-LoRA takes, counted by Valgrind: `python -m experiments.speed.instructions`.

With other checkouts, `python -m experiments.speed.instructions ../before`: theirs beside, and the ratio. They have to
be compiled if this one is. Counts vary by less than a thousandth between runs, where times vary by a tenth.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.same_bytes.checkouts import checked, run_in
from experiments.studies.command import option, program
from simlora.core.errors import InputError

FEW, MANY = 2_000, 12_000
"""Requests of two runs, whose difference leaves out what a run takes to begin."""
PLAYED = """
import simlora, sys
simlora.simulate(["system=slora", "gpu=a10g", "model=llama_7b", "workload=synthetic", "workload.duration_s=null",
                  "workload.arrivals.rate_rps=5", f"workload.requests={sys.argv[1]}", "report=false"])
"""
COUNTED = re.compile(r"I +refs: +([\d,]+)")


def instructions(checkout: Path, requests: int) -> int:
    """Return the instructions of a process that simulates so many requests with the code of a checkout."""
    path = shutil.which("valgrind")
    if path is None:
        raise InputError("there is no valgrind, which counts instructions; install it")
    counting = [path, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*counting, sys.executable, "-c", PLAYED, str(requests)]
    same = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    done = run_in(checkout, command, "does not run under valgrind", **same)
    found = COUNTED.search(done.stderr)
    if found is None:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise InputError(f"valgrind printed no count of instructions ('I refs: …'), but: {said[-1]}")
    return int(found[1].replace(",", ""))


@program(option("checkouts", nargs="*", type=Path, help="others to compare with"))
def main(checkouts: Sequence[Path]) -> None:
    """Count and print."""
    first = 0.0
    for checkout in [checked(each) for each in (Path(__file__).parents[2], *checkouts)]:
        few, many = (instructions(checkout, requests) for requests in (FEW, MANY))
        each = (many - few) / (MANY - FEW)
        first = first or each
        print(
            f"{checkout.name:20} {each:10,.0f} instructions a request, {each / first:.4f} of the first",
            flush=True,
        )
