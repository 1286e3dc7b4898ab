"""Draw what dLoRA's adapters add to an iteration, from calibrations: `python -m experiments.dlora.kernels [--out DIR]`.

Figure 5, what adapters add to an iteration, from the calibrations; and section 4.2's example, of one request.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dlora.calibration import (
    BATCH,
    CONTEXT_TOKENS,
    DERIVED,
    FIGURE_5,
    MEASURED,
    MERGED_S,
    UNMERGED_S,
    iteration_s,
    name,
    prefill_share,
)
from experiments.dlora.example import PUBLISHED_MS, milliseconds
from experiments.studies.command import into, program
from experiments.studies.draw import COLOURS, INK, THEIRS, plain, save
from simlora.latency import calibration as calibrations

MODELS = {"Llama-2-7B": MEASURED, "Llama-2-13B": DERIVED[0], "Llama-2-70B, TP 4": DERIVED[1]}


def lora_cost() -> list[float]:
    """Return BA x over W x of Llama-2-7B where the GPU is the bottleneck: a prefill of 16 adapters."""
    return [prefill_share(calibrations.load(name(*MEASURED)), BATCH)]


def figure_5() -> Figure:
    """What adapters add: to a prefill, by how many there are, and to a decode step of 16 requests."""
    figure, (prefill, decode) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    counts = range(1, BATCH + 1)
    for colour, (title, (shape, tp)) in zip(COLOURS, MODELS.items(), strict=False):
        calibration = calibrations.load(name(shape, tp))
        shares = [100 * prefill_share(calibration, count) for count in counts]
        prefill.plot(counts, shares, color=colour, label=title)
    prefill.plot([BATCH], [100 * FIGURE_5], color=COLOURS[0], label="published (7B)", **THEIRS)
    _axes(prefill, "prefill", "adapters in the batch", "BAx over Wx (%)")
    prefill.legend(frameon=False, fontsize="small")
    for at, (colour, (shape, tp)) in enumerate(zip(COLOURS, MODELS.values(), strict=False)):
        calibration = calibrations.load(name(shape, tp))
        for merged, where, opaque in ((True, at - 0.2, 0.45), (False, at + 0.2, 1.0)):
            decode.bar(where, 1e3 * iteration_s(calibration, merged), 0.38, color=colour, alpha=opaque)
    published = [1e3 * MERGED_S, 1e3 * UNMERGED_S]
    decode.plot([-0.2, 0.2], published, **(THEIRS | {"color": INK}), label="artifact (7B)")
    decode.set_xticks(range(len(MODELS)), list(MODELS))
    _axes(decode, f"decode, {BATCH} requests of {CONTEXT_TOKENS} tokens", "", "merged (pale), unmerged (ms)")
    decode.legend(frameon=False, fontsize="small")
    figure.suptitle("What adapters add to an iteration · dLoRA (OSDI'24), Figure 5", fontsize="medium")
    return figure


def example() -> Figure:
    """Three iterations unmerged, and after merging first."""
    figure, ax = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
    simulated = {system: milliseconds(system) for system in PUBLISHED_MS}
    rows = ((1, simulated["dlora_unmerged_only"], 0.0), (0, simulated["dlora_merged_only"], 100.0))
    for row, total_ms, switch_ms in rows:
        ax.barh(row, switch_ms, color=COLOURS[1], label="switch" if switch_ms else None)
        one_ms = (total_ms - switch_ms) / 3
        for index in range(3):
            label = "iteration" if row == index == 0 else None
            left = switch_ms + index * one_ms
            ax.barh(row, one_ms, left=left, color=COLOURS[0], edgecolor="white", label=label)
        ax.text(total_ms + 4, row, f"{total_ms:g} ms", va="center", fontsize="small")
    ax.set_yticks([1, 0], ["unmerged", "merged first"])
    ax.set_xlim(0, 400)
    _axes(ax, "", "ms", "")
    ax.grid(visible=False)
    ax.legend(frameon=False, fontsize="small", loc="center right")
    figure.suptitle("Three iterations of one request · dLoRA (OSDI'24), section 4.2", fontsize="medium")
    return figure


FIGURES = {"figure_5": figure_5, "example": example}


def _axes(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set(xlabel=x, ylabel=y, title=title)
    ax.title.set_fontsize("small")
    plain(ax)


@program(into("outputs/dlora"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    for stem, draw in FIGURES.items():
        save(draw(), folder / f"{stem}.png")
    print(f"BAx over Wx in a prefill of {BATCH} adapters: {lora_cost()[0]:.3f}, {FIGURE_5} in the paper")
