"""What is said of vllm_v0_runs.csv: vLLM 0.5 (V0 engine) with LoRA on an H100, which nothing was fitted to.

The calibration is composed of NVIDIA's kernels, of the host's share that vLLM published of 0.5.3, and of BGMV as
S-LoRA's server on an A100 has it.
"""

from __future__ import annotations

from pathlib import Path

from experiments.fidelity import saturating
from experiments.fidelity.cells import Cells, number, read_cells
from experiments.fidelity.saturating import Row
from experiments.fidelity.section import Section

FILE = "vllm_v0_runs.csv"
MARK = "gpu_blocks"
"""A column that only this file has."""
PROMPT_TOKENS, OUTPUT_TOKENS, BLOCK = 250, 231, 16
NUMBERS = ("max_loras", "max_lora_rank", "max_num_seqs", "duration_s", MARK)


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    others = ("max_cpu_loras", "adapter_rates", "rate_by_lora", "out_tps", "itl_mean", "ttft_med")
    return [_row(cells, place) for place, cells in read_cells(path, (*NUMBERS, *others))]


def _row(cells: Cells, place: str) -> Row:
    inputs = {name: number(cells, name, place) for name in NUMBERS}
    # Every adapter is in host memory; without a number of its own there are as many as slots.
    inputs["adapters"] = number(cells, "max_cpu_loras" if cells["max_cpu_loras"] else "max_loras", place)
    inputs["rate_rps"] = number(cells, "adapter_rates" if cells["adapter_rates"] else "rate_by_lora", place)
    rate = number(cells, "out_tps", place)
    measured = saturating.measured(cells, place, rate, "itl_mean", "ttft_med")
    saturating.check(inputs | measured, place)
    adapters, rank = int(inputs["adapters"]), int(inputs["max_lora_rank"])
    overrides = [
        *("system=vllm", "engine=vllm_v0", "scheduler=prefill_first", "kernel=bgmv"),
        "replica.adapter_tokenizers=false",
        *("gpu=h100_64g", "model=llama_2_7b", f"replica.kv_token_budget={int(inputs[MARK]) * BLOCK}"),
        *(f"replica.max_loras={int(inputs['max_loras'])}", f"replica.max_lora_rank={rank}"),
        *(f"replica.max_num_seqs={int(inputs['max_num_seqs'])}", f"replica.max_cpu_loras={adapters}"),
        *saturating.fixed_lengths(
            adapters, rank, inputs["rate_rps"], PROMPT_TOKENS, OUTPUT_TOKENS, inputs["duration_s"]
        ),
    ]
    return Row(inputs, measured, overrides)


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    return saturating.report(path, read(path), "vllm_v0", "vLLM 0.5 with LoRA on an H100", jobs)
