"""LoRAServe's Figures 3, 4 and 5, one request at a time: `python -m experiments.loraserve.ranks`.

What ranks do to a request that is alone, by length of prompt, model and degree of tensor parallelism. Only eight GPUs
were measured (docs/calibrations.md); there the measured runs stand beside, where they are. Figure 3's degree is not
stated: it is taken to be one GPU, where adapters weigh most.
"""

from __future__ import annotations

from experiments.loraserve.fitting import MEASURED, RUNS, Runs, Single, available, name, runs
from experiments.studies.command import program
from experiments.studies.markdown import by_column
from simlora.latency import calibration as calibrations

RANKS = (8, 16, 32, 64, 128)
LOWEST, HIGHEST = RANKS[0], RANKS[-1]
PROMPT = 2000
MODELS = {("llama_7b", 8): "7B", ("llama_30b_m", 8): "30B", ("llama_2_70b_mha", 8): "70B"}
DEGREES = {("llama_7b", tp): str(tp) for tp in (1, 2, 4, 8)}
PUBLISHED = {"figure_3": 2.7, "figure_4": 45.0, "figure_5": 20.0}
"""Rank 128 over rank 8; and by how many per cent it is above."""


def single(shape: str, tp: int) -> Single:
    """Return what one request takes."""
    return Single(calibrations.load(name(shape, tp)))


def figure_3() -> float:
    """Return the claim ls-f3: the prefill of rank 128 over that of rank 8, Llama-7B on one GPU."""
    one = single("llama_7b", 1)
    return one.pass_s(PROMPT, HIGHEST) / one.pass_s(PROMPT, LOWEST)


def figure_4() -> float:
    """Return the claim ls-f4: by how many per cent rank 128 lengthens the TTFT of the 70B on eight GPUs."""
    return 100 * (relative("llama_2_70b_mha", 8, HIGHEST) - 1)


def figure_5() -> float:
    """Return the claim ls-f5: by how many per cent rank 128 lengthens the TTFT of the 7B on eight GPUs."""
    return 100 * (relative("llama_7b", 8, HIGHEST) - 1)


def relative(shape: str, tp: int, rank: int) -> float:
    """Return the TTFT over that of the lowest rank."""
    one = single(shape, tp)
    return one.ttft_s(PROMPT, rank) / one.ttft_s(PROMPT, LOWEST)


def measured_relative(data: Runs | None, shape: str, tp: int) -> float | None:
    """Return the measured TTFT of the highest rank over the lowest; None where it was not measured."""
    if data is None or (shape, tp) not in MEASURED:
        return None
    rows = (data.shape == shape) & (data.prompt == PROMPT)
    high, low = (float(data.ttft_s[rows & (data.rank == rank)].item()) for rank in (HIGHEST, LOWEST))
    return high / low


def table(data: Runs | None) -> str:
    """Return the figures' numbers in Markdown."""
    columns = {}
    settings = {**DEGREES, **MODELS}
    for shape, tp in settings:
        one, theirs = single(shape, tp), measured_relative(data, shape, tp)
        rows = {f"TTFT, ms, rank {rank}": f"{1e3 * one.ttft_s(PROMPT, rank):.0f}" for rank in RANKS}
        rows[f"rank {HIGHEST} over {LOWEST}: prefill"] = (
            f"{one.pass_s(PROMPT, HIGHEST) / one.pass_s(PROMPT, LOWEST):.2f}"
        )
        rows["TTFT"] = f"{relative(shape, tp, HIGHEST):.2f}"
        rows["TTFT as measured"] = "" if theirs is None else f"{theirs:.2f}"
        columns[f"{shape} tp{tp}"] = rows
    return by_column("", columns)


@program()
def main() -> None:
    """Print the figures' numbers."""
    data = runs() if available() else None
    print(f"A prompt of {PROMPT:,} tokens:\n\n{table(data)}\n")
    print(f"Figure 3: {figure_3():.2f} times, published {PUBLISHED['figure_3']}")
    print(f"Figure 4: {figure_4():.0f} % more, published {PUBLISHED['figure_4']:.0f} %")
    print(f"Figure 5: {figure_5():.0f} % more, published {PUBLISHED['figure_5']:.0f} %")
    if data is None:
        print(f"skipped the measured runs: there is no {RUNS}; SIMLORA_MEASURED_DIR says where it is")
