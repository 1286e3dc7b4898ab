"""report.html: what was measured, what was fitted to it, and how far off that is."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

from profiler.fit import Fitted, readings
from simlora.core.files import whole_file
from simlora.hardware.model import ModelShape
from simlora.report.colours import BLUE, GRID, INK
from simlora.report.markup import Html, rows, tag

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

ACROSS = 3
MANY = 0.1
"""A relative error that is worth a second look, drawn as the edge of a band."""


def lines(fitted: Sequence[Fitted]) -> list[str]:
    """Return one line a model for the terminal."""
    return [
        f"{each.model.name:32} {len(each.points):3} points, {100 * each.mape:5.1f} % off where unseen, R2 {each.r2:.3f}"
        for each in fitted
    ]


def answers(fitted: Sequence[Fitted]) -> list[str]:
    """Return sentences on what LoRA kernels follow, the sum of ranks or the highest, with the errors of each."""
    by_name = {each.model.name: each for each in fitted}
    found = []
    for kernel in ("bgmv", "mbgmv"):
        mine = by_name.get(f"kernels.{kernel}.decode")
        if mine is None or "decode" not in by_name or "per_rank_sum_s" not in mine.model.features:
            continue
        errors = readings(mine, by_name["decode"])
        said = ", ".join(f"{100 * error:.1f} % with {name}" for name, error in errors.items())
        part = _shares(mine)
        found.append(
            f"{kernel.upper()} on this device: steps that a fit has not seen are off by {said}. Of what it adds to the "
            f"steps measured, {part['per_rank_sum_s']:.0%} follows the sum of ranks, "
            f"{part['per_sequence_max_rank_s']:.0%} the highest rank times the batch."
        )
    return found


def write(
    path: Path, model: ModelShape, identity: Mapping[str, Any], fitted: Sequence[Fitted], table: pd.DataFrame
) -> None:
    """Write the page; it loads nothing from anywhere. `identity` is the calibration's provenance."""
    css = (resources.files("simlora.report") / "page.css").read_text(encoding="utf-8")
    said = [(name, value) for name, value in identity.items() if isinstance(value, str | int)]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{model.name} on {identity['device']}"),
        tag("style", Html(css)),
    )
    body = tag(
        "main",
        tag("header", tag("h1", f"{model.name} on {identity['device']}")),
        tag(
            "section",
            tag("h2", "How good are the fits?"),
            tag(
                "p",
                "Errors are of points that a fit has not seen: each fifth is predicted from the other four.",
            ),
            rows(
                ("model", "points", "mean error", "R²"),
                ((e.model.name, len(e.points), f"{100 * e.mape:.1f} %", f"{e.r2:.4f}") for e in fitted),
            ),
            *(tag("p", sentence) for sentence in answers(fitted)),
            Html(_residuals(fitted)),
        ),
        tag(
            "section",
            tag("h2", "Coefficients"),
            rows(
                ("coefficient", "value", "95 % from", "to"),
                (
                    (f"{e.model.name}.{name}", f"{value:.4g}", *(f"{end:.3g}" for end in e.intervals[name]))
                    for e in fitted
                    for name, value in e.coefficients.items()
                ),
            ),
        ),
        tag("section", tag("h2", "Copies and other processes"), _copies(table)),
        tag("section", tag("h2", "Where this comes from"), rows(("what", "value"), said, texts=2)),
    )
    page = f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8")


def _shares(fitted: Fitted) -> dict[str, float]:
    """Return each coefficient's share of what the model adds over all its points."""
    added = {
        name: value * float(pd.Series(fitted.model.features[name](fitted.points)).sum())
        for name, value in fitted.coefficients.items()
    }
    whole = sum(added.values()) or 1.0
    return {name: value / whole for name, value in added.items()}


def _copies(table: pd.DataFrame) -> Html:
    loads = table[table["section"] == "adapter_load"]
    syncs = table[table["section"] == "cpu_sync"]
    found = [
        (f"adapter of rank {ranks}, from {memory} memory", f"{1e3 * seconds:.3f} ms")
        for ranks, memory, seconds in zip(loads["ranks"], loads["kernel"], loads["seconds"], strict=True)
    ]
    found += [("to another process and back", f"{1e6 * seconds:.2f} µs") for seconds in syncs["seconds"]]
    return rows(("what", "median"), found)


def _residuals(fitted: Sequence[Fitted]) -> str:
    """Return a drawing of every model's relative errors over what was measured, as SVG."""
    down = -(-len(fitted) // ACROSS)
    figure, axes = plt.subplots(down, ACROSS, figsize=(11, 2.6 * down), squeeze=False, layout="constrained")
    for ax in axes.flat[len(fitted) :]:
        ax.remove()
    for ax, each in zip(axes.flat, fitted, strict=False):
        points = each.points
        off = points["predicted_s"] / points["seconds"] - 1.0
        ax.axhspan(-MANY, MANY, color=GRID, zorder=0)
        ax.axhline(0.0, color=INK, linewidth=0.8)
        ax.plot(1e3 * points["seconds"], off, "o", color=BLUE, markersize=4)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(ticker.NullFormatter())
        most = max(1.15 * float(off.abs().max()), 1.5 * MANY)
        ax.set_ylim(-most, most)
        ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        ax.set_title(each.model.name, fontsize="small")
        ax.set_xlabel("measured, ms", fontsize="small")
        ax.tick_params(labelsize="small")
        ax.spines[["top", "right"]].set_visible(False)
    figure.supylabel("predicted unseen against measured", fontsize="small")
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "simlora"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
