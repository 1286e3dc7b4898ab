"""The picture of an inference: what is left of each unknown's range, and what is predicted of each claim."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.claims.verdicts import shown
from experiments.infer.conditions import shares
from experiments.infer.emulating import BINS, Posterior
from experiments.infer.inference import Inference, Predicted
from experiments.infer.unknowns import Unknown
from experiments.studies.look import COLOURS, INK, plain

WIDE, TITLE_CHARACTERS = 10.0, 62


AXIS = (-1.0, 100.0)
"""Ends of the axis of claims: what lies beyond is drawn at the end, with an arrow."""


def draw(found: Inference) -> Figure:
    """Return the figure: on the left a row an unknown, on the right a row a number of a claim."""
    unknowns = found.unknowns.unknowns
    numbers = sum(len(one.numbers) for one in found.predicted)
    high = max(1.0 * len(unknowns), 0.24 * numbers) + 1.0
    figure = plt.figure(figsize=(WIDE, high), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.35))
    for axes, unknown in zip(np.atleast_1d(left.subplots(len(unknowns), 1)), unknowns, strict=True):
        _unknown(axes, found.left, unknown)
    left.suptitle(
        "What is left of each range\n(dashed: even; band: 90 %; orange: default)",
        fontsize="medium",
        x=0.02,
        ha="left",
    )
    _claims(right.subplots(), found.predicted)
    right.suptitle(
        "90 % intervals of claims: fitted green, held back blue\n(x: defaults; arrow: beyond the axis)",
        fontsize="medium",
    )
    return figure


def _unknown(axes: Axes, left: Posterior, unknown: Unknown) -> None:
    heights = left.histogram(unknown)
    places = np.arange(len(heights))
    axes.bar(places, heights * len(heights), 0.92, color=COLOURS[0])
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    title = f"{unknown.title}, {unknown.unit}" if unknown.unit else unknown.title
    axes.set_title(fill(title, TITLE_CHARACTERS), fontsize="small", loc="left")
    axes.set_yticks([])
    if unknown.choices:
        axes.set_xticks(places, list(unknown.choices), fontsize="small")
        axes.get_xticklabels()[list(unknown.choices).index(str(unknown.default))].set_color(COLOURS[1])
    else:
        at = (0.0, 0.5, 1.0)
        axes.set_xticks([BINS * share - 0.5 for share in at], [shown(unknown.at(share)) for share in at])
        low, high = (BINS * unknown.share(bound) - 0.5 for bound in left.interval(unknown))
        axes.axvspan(low, high, color=COLOURS[0], alpha=0.12, linewidth=0)
        axes.axvline(BINS * unknown.share(unknown.default) - 0.5, color=COLOURS[1], linewidth=1.5)
    axes.tick_params(labelsize="small")
    plain(axes)


def _claims(axes: Axes, predicted: Sequence[Predicted]) -> None:
    rows = [(one, index) for one in predicted for index in range(len(one.numbers))]
    least = np.inf
    for row, (one, index) in enumerate(rows):
        interval = shares(np.quantile(one.left[:, index], (0.05, 0.5, 0.95)))
        low, middle, high = np.clip(interval, *AXIS)
        colour = COLOURS[2] if one.fitted else COLOURS[0]
        axes.plot([low, high], [row, row], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot(middle, row, "o", color=colour, markersize=4)
        by_default = float(shares(one.default[:, index].mean()))
        axes.plot(np.clip(by_default, *AXIS), row, "x", color=COLOURS[1], markersize=5)
        for end, marker, beyond in zip(
            AXIS, "<>", (interval[0] < AXIS[0], interval[2] > AXIS[1]), strict=True
        ):
            if beyond:
                axes.plot(end, row, marker, color=colour, markersize=6, clip_on=False)
        least = min(least, low, by_default)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.1)
    # The scale itself would begin at -1, and end where the last interval does.
    axes.set_xlim(0.0 if least > 0.0 else AXIS[0], min(AXIS[1], axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(-1, len(rows))
    names = [f"{one.claim.id} {index + 1}" if len(one.numbers) > 1 else one.claim.id for one, index in rows]
    axes.set_yticks(range(len(rows)), names, fontsize="x-small")
    axes.invert_yaxis()
    axes.set_xlabel("simulated over published")
    plain(axes)
