"""LoRAServe's Figures 3, 4 and 5, one request at a time: `python -m experiments.loraserve.ranks [--out DIR]`.

What ranks do to a request that is alone, by length of prompt, model and degree of tensor parallelism. Only eight GPUs
were measured (docs/calibrations.md); there the measured runs stand beside, where they are. Figure 3's degree is not
stated: it is taken to be one GPU, where adapters weigh most.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.loraserve.fitting import name
from experiments.loraserve.runs import OUTPUT_TOKENS, RUNS, Runs, available, runs
from experiments.loraserve.single import Single
from experiments.studies.command import command, into
from experiments.studies.draw import COLOURS, THEIRS, plain, save
from experiments.studies.markdown import by_column
from simlora.latency import calibration as calibrations

RANKS = (8, 16, 32, 64, 128)
LOWEST, HIGHEST = RANKS[0], RANKS[-1]
PROMPTS = tuple(range(200, 2001, 200))
PROMPT = 2000
SETTINGS = {
    ("llama_7b", 1): "7B, 1 GPU",
    ("llama_7b", 8): "7B, 8 GPUs",
    ("llama_2_70b_mha", 8): "70B, 8 GPUs",
}
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


def measured(data: Runs | None, shape: str, tp: int, rank: int, what: str) -> dict[int, float]:
    """Return what was measured in ms by length of prompt: `ttft_s` or `step_s`; nothing where nothing was."""
    if data is None or tp != 8:
        return {}
    rows = (data.shape == shape) & (data.rank == rank)
    return dict(zip(data.prompt[rows].tolist(), (1e3 * getattr(data, what)[rows]).tolist(), strict=True))


def measured_relative(data: Runs | None, shape: str, tp: int) -> float | None:
    """Return the measured TTFT of the highest rank over the lowest."""
    high, low = (measured(data, shape, tp, rank, "ttft_s").get(PROMPT) for rank in (HIGHEST, LOWEST))
    return high / low if high and low else None


def by_prompt(data: Runs | None) -> Figure:
    """Draw Figure 3: TTFT above, time between tokens below."""
    figure, axes = plt.subplots(2, len(SETTINGS), figsize=(11, 5.8), layout="constrained", sharex=True)
    for column, ((shape, tp), title) in enumerate(SETTINGS.items()):
        one = single(shape, tp)
        for colour, rank in zip(COLOURS, RANKS, strict=False):
            first_ms = [1e3 * one.ttft_s(prompt, rank) for prompt in PROMPTS]
            step_ms = [1e3 * one.step_s(1, prompt + OUTPUT_TOKENS // 2, rank) for prompt in PROMPTS]
            for row, (ms, what) in enumerate(((first_ms, "ttft_s"), (step_ms, "step_s"))):
                ax = axes[row, column]
                ax.plot(PROMPTS, ms, color=colour, linewidth=1.6, label=f"rank {rank}")
                theirs = measured(data, shape, tp, rank, what)
                look = {"color": colour, "markersize": 5, "markeredgewidth": 1.2}
                ax.plot(list(theirs), list(theirs.values()), **(THEIRS | look))
        axes[0, column].set_title(title, fontsize="small")
        axes[1, column].set_xlabel("prompt (tokens)", fontsize="small")
        axes[1, column].set_xticks(PROMPTS[1::2])
        _from_zero(axes[0, column], axes[1, column])
    axes[0, 0].set_ylabel("TTFT (ms)", fontsize="small")
    axes[1, 0].set_ylabel("time between tokens (ms)", fontsize="small")
    _legend(figure, axes[0, 0], data)
    figure.suptitle("LoRAServe, Figure 3 · one request, by its prompt and rank", fontsize="medium")
    return figure


def by_setting(
    data: Runs | None, settings: dict[tuple[str, int], str], label: str, title: str, published: float
) -> Figure:
    """Draw Figures 4 and 5: TTFT over that of the lowest rank, bars of ranks beside each other."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    width = 0.8 / len(RANKS)
    for place, (shape, tp) in enumerate(settings):
        for order, (colour, rank) in enumerate(zip(COLOURS, RANKS, strict=False)):
            at = place + (order - (len(RANKS) - 1) / 2) * width
            text = None if place else f"rank {rank}"
            ax.bar(at, relative(shape, tp, rank), width, color=colour, label=text)
        theirs = measured_relative(data, shape, tp)
        if theirs is not None:
            at = place + (len(RANKS) - 1) / 2 * width
            ax.plot([at], [theirs], **(THEIRS | {"color": "black", "markersize": 6}))
    last = len(settings) - 1
    ax.plot([last - 0.45, last + 0.45], [published] * 2, color="black", linewidth=1.0, linestyle="--")
    ax.set_xticks(range(len(settings)), list(settings.values()))
    ax.set_xlabel(label, fontsize="small")
    ax.set_ylabel("TTFT, rank 8 = 1", fontsize="small")
    _from_zero(ax)
    _legend(figure, ax, data, f"published {published:.2f}")
    figure.suptitle(title, fontsize="medium")
    return figure


def _from_zero(*axes: Axes) -> None:
    for ax in axes:
        plain(ax)
        ax.tick_params(labelsize="small")
        ax.set_ylim(0, 1.1 * max(ax.dataLim.ymax, 0.0))


def _legend(figure: Figure, ax: Axes, data: Runs | None, published: str = "") -> None:
    handles, labels = ax.get_legend_handles_labels()
    if data is not None:
        handles.append(Line2D([], [], **(THEIRS | {"color": "black", "markersize": 6})))
        labels.append("measured, ranks 8 and 128" if not published else "measured, rank 128")
    if published:
        handles.append(Line2D([], [], color="black", linewidth=1.0, linestyle="--"))
        labels.append(published)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4 + (not published) * 2,
        fontsize="small",
        frameon=False,
    )


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


@command(into("outputs/loraserve"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    data = runs() if available() else None
    print(f"A prompt of {PROMPT:,} tokens:\n\n{table(data)}\n")
    print(f"Figure 3: {figure_3():.2f} times, published {PUBLISHED['figure_3']}")
    print(f"Figure 4: {figure_4():.0f} % more, published {PUBLISHED['figure_4']:.0f} %")
    print(f"Figure 5: {figure_5():.0f} % more, published {PUBLISHED['figure_5']:.0f} %")
    if data is None:
        print(f"skipped the measured runs: there is no {RUNS}; SIMLORA_MEASURED_DIR says where it is")
    title = f"one request, prompt of {PROMPT:,} tokens"
    figures = {
        "figure_3": by_prompt(data),
        "figure_4": by_setting(data, MODELS, "Llama, 8 GPUs", f"LoRAServe, Figure 4 · {title}", 1.45),
        "figure_5": by_setting(data, DEGREES, "GPUs", f"LoRAServe, Figure 5 · Llama-7B, {title}", 1.2),
    }
    for key, figure in figures.items():
        path = folder / f"{key}.png"
        save(figure, path)
