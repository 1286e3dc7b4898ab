"""Pictures of the search and of the judgement, and conf/system/simlora.yaml, a system that anybody can run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from omegaconf import OmegaConf

from experiments.composition.search import Tried
from experiments.cross_table.capacities import Ratios, span
from experiments.cross_table.compared import Row
from experiments.cross_table.slots import POLICIES, ordinary
from experiments.cross_table.world import HELD_OUT, System
from experiments.studies.look import COLOURS, GRID, INK, save

BLUE, AMBER = COLOURS[:2]


def draw_search(tried: Sequence[Tried], begun: Sequence[str], path: Path) -> None:
    """Draw the score of every trial, the published systems' among them, and the best so far."""
    done = [(one.number, math.exp(one.score)) for one in tried if one.ranks]
    numbers, rates = [number for number, _ in done], [rate for _, rate in done]
    first = sum(number < len(begun) for number in numbers)
    figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    ax.scatter(numbers, rates, s=14, color=BLUE, alpha=0.6, label="a composition")
    ax.scatter(
        numbers[:first], rates[:first], s=34, marker="D", color=AMBER, label="slots of a published system"
    )
    ax.step(
        numbers,
        list(accumulate(rates, max)),
        where="post",
        color=INK,
        linewidth=1.2,
        label="the best so far",
    )
    ax.set(
        xlabel="trial", ylabel="capacity on training workloads,\ngeometric mean (requests/s)", ylim=(0, None)
    )
    ax.legend(frameon=False, loc="lower right")
    ax.grid(color=GRID, linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def draw_ahead(rows: Sequence[Row], ratios: Ratios, rivals: Mapping[str, str], path: Path) -> None:
    """Draw, for each workload, how many times the best published system's capacity the composition has."""
    figure, ax = plt.subplots(figsize=(8, 1.3 + 0.42 * len(rows)), layout="constrained")
    for place, row in enumerate(reversed(rows)):
        found = span(ratios[row.workload.name].values())
        held_out = row.workload.part == HELD_OUT
        ax.errorbar(
            found.mean,
            place,
            xerr=[[max(found.mean - found.low, 0.0)], [max(found.high - found.mean, 0.0)]]
            if found.low > 0
            else None,
            marker="o",
            markersize=7,
            color=BLUE,
            markerfacecolor=BLUE if held_out else "white",
            capsize=3,
        )
    ax.axvline(1.0, color=INK, linewidth=1)
    ax.axvline(1.1, color=AMBER, linewidth=1, linestyle="--")
    labels = [f"{row.workload.title}\nagainst {rivals[row.workload.name]}" for row in reversed(rows)]
    ax.set_yticks(range(len(rows)), labels, fontsize=8)
    ax.set_xlabel("capacity over that of the best published system (filled: held out; dashed: 10 % ahead)")
    ax.grid(color=GRID, linewidth=0.7, axis="x")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    save(figure, path)


HEAD = """\
# @package _global_
# What a search over all policy slots found best on workloads of five papers, and what it carries on others:
# docs/composition.md.
# Written by python -m experiments.composition, which finds it again, on this GPU and model.
"""


def text(system: System, same: Mapping[str, Any]) -> str:
    """Return the file. Of what is the `same` for all systems that it was held against it has the GPU and the model."""
    settings = dict(system.settings)
    base = settings.pop("system")
    hardware = {key: same[key] for key in ("gpu", "model") if key in same}
    groups = {key: settings.pop(key) for key in list(settings) if key in POLICIES}
    for slot, choice in groups.items():  # what a policy's own file says is not said again
        usual = {f"{slot}.{key}": value for key, value in ordinary(slot, choice).items()}
        settings = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    lines = [HEAD + "defaults:", f"  - {base}"]
    lines += [f"  - override /{group}: {choice}" for group, choice in {**hardware, **groups}.items()]
    tree = OmegaConf.create({})
    for key, value in settings.items():
        OmegaConf.update(tree, key, value)
    return "\n".join(lines) + "\n" + (OmegaConf.to_yaml(tree) if settings else "")
