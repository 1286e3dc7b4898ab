"""comparison.html: what several configurations did, side by side, on one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from simlora.core.files import whole_file
from simlora.metrics.slo import ATTAINMENT
from simlora.metrics.summary import TIMES
from simlora.report import lines
from simlora.report.compared import SHARES, Comparison
from simlora.report.comparison_table import figures_table, name_of
from simlora.report.format import METRIC_NAMES, count, counted, digits_of
from simlora.report.html import document
from simlora.report.markup import EMPTY, Html, join, tag
from simlora.report.modes import PALETTE
from simlora.report.parts import chart, legend, section, table
from simlora.report.vega import Spec

MOST_LINES = len(PALETTE)
MOST_LOST = 100
SIDE_TITLES = {"gpu": "GPU", "model": "model", "engine": "engine", "slo": "SLO", "calibration": "calibration"}


def write_comparison(path: Path, comparison: Comparison) -> None:
    """Write the page; it appears when it is whole. Raises OSError."""
    page = render(comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8")


def render(comparison: Comparison) -> str:
    """Return the page."""
    specs: dict[str, Spec] = {}
    page: dict[str, Any] = {"charts": specs, "series": {}}
    main = tag(
        "main",
        _header(comparison),
        _attainment(comparison, specs),
        _asked(comparison, specs),
        _pareto(comparison, specs),
        _over(comparison, specs),
        _distributions(comparison, specs, page),
        figures_table(comparison),
        _lost(comparison.lost, comparison.x),
        section("How it was made", "", tag("pre", comparison.command, class_="command")),
        tag("footer", "This page stands alone: it loads nothing from the network."),
    )
    return document(f"{len(comparison.lines)} configurations compared", main, page)


def _header(found: Comparison) -> Html:
    over = f" over {found.x}" if found.x else ""
    what = f" by {', '.join(found.by)}" if found.by else ""
    notices = [*found.notices]
    if len(found.lines) > MOST_LINES:
        notices.append(
            f"Of {len(found.lines)} lines the figures show the first {MOST_LINES}; the table has the others, too. "
            "Fewer keys in --by, or fewer runs, make fewer lines."
        )
    return tag(
        "header",
        tag("p", "simlora · comparison of simulated runs", class_="eyebrow"),
        tag("h1", f"{counted(found.runs, 'run')} compared", tag("small", f"{what}{over}")),
        tag("p", " · ".join(found.sources), class_="lede"),
        _sides(found),
        join(tag("p", notice, class_="note") for notice in notices),
    )


def _sides(found: Comparison) -> Html:
    """Return what each side runs on and is judged by: a sentence where it is the same for all."""
    if len(found.sides) == 1:
        return tag("p", f"All run {found.sides[0].conditions}.", class_="note")
    titles = ("configuration", *SIDE_TITLES.values())
    body = ([side.name, *(getattr(side, name) for name in SIDE_TITLES)] for side in found.sides)
    what = "What each configuration runs on and is judged by."
    return section("Sides", what, table(titles, body, texts=len(titles)))


def _shown(found: Comparison) -> Sequence[str]:
    return found.lines[:MOST_LINES]


def _legend(names: Sequence[str]) -> Html:
    """Return the colours of lines; nothing where there is but one."""
    return tag("p", *legend(zip(names, PALETTE, strict=False))) if len(names) > 1 else EMPTY


def _attainment(found: Comparison, specs: dict[str, Spec]) -> Html:
    seeds = int(found.means[ATTAINMENT]["runs"].max())
    band = (
        "Means over seeds, with 95 % intervals." if seeds > 1 else "One seed each, so there is no interval."
    )
    specs["attainment"] = lines.over(found.means[ATTAINMENT], _shown(found), found.x, share=True)
    return section(
        "SLO attainment",
        f"{band} Open points are past saturation: what they show depends on how long the runs were.",
        _legend(_shown(found)),
        chart("attainment", f"SLO attainment over {found.x or 'configurations'}"),
    )


def _asked(found: Comparison, specs: dict[str, Spec]) -> Html:
    """Return the figures that were asked for."""
    parts = []
    for figure in found.asked:
        specs[f"asked-{figure}"] = lines.over(found.means[figure], _shown(found), found.x)
        parts += [tag("h3", figure), chart(f"asked-{figure}", f"{figure} over {found.x or 'configurations'}")]
    return section("Figures asked for", "", _legend(_shown(found)), *parts) if parts else EMPTY


def _pareto(found: Comparison, specs: dict[str, Spec]) -> Html:
    """Return cost against attainment; the dashed line joins configurations that no other beats in both."""
    if found.cost is None:
        return section(
            "Cost against attainment",
            "Not drawn: the table says neither what these runs cost nor how many GPUs they had.",
        )
    both = lines.with_cost(found.means[found.cost], found.means[ATTAINMENT])
    if both.empty:
        return EMPTY
    specs["pareto"] = lines.pareto(both, _shown(found), found.x, name_of(found.cost))
    return section(
        "Cost against attainment",
        f"Each point is one configuration{f' at one {found.x}' if found.x else ''}. On the dashed line are those that "
        "no other beats: none is cheaper and meets the SLO as often.",
        _legend(_shown(found)),
        chart("pareto", "Cost against SLO attainment"),
    )


def _over(found: Comparison, specs: dict[str, Spec]) -> Html:
    """Return the median and the 99th percentile of times over x."""
    parts = []
    for metric in TIMES:
        if not {f"{metric}.p50", f"{metric}.p99"} <= found.means.keys():
            continue
        name = f"over-{metric}"
        specs[name] = lines.quantiles(
            found.means[f"{metric}.p50"], found.means[f"{metric}.p99"], _shown(found), found.x
        )
        title = METRIC_NAMES[metric]
        body = chart(name, f"Median and 99th percentile of {title} over {found.x or 'configurations'}")
        parts.append(tag("div", tag("h3", title), body))
    return section(
        "How long it took",
        "Solid and filled: the median; dashed and hollow: the 99th percentile. Of each run, and then the median over "
        "seeds. Of those past saturation both depend on how long the runs were.",
        _legend(_shown(found)),
        tag("div", *parts, class_="three"),
    )


def _distributions(found: Comparison, specs: dict[str, Spec], page: dict[str, Any]) -> Html:
    title = "Distributions"
    if not found.quantiles:
        return section(
            title,
            "Not drawn: a sweep keeps no requests. Give simlora-report folders of runs, as simlora writes them.",
        )
    shown = next(iter(found.quantiles))
    page["series"]["cdf"] = lines.cdf_series(found.quantiles, _shown(found), SHARES)
    drawn = dict.fromkeys(
        name for own in found.quantiles.values() for metric in own.values() for name in metric
    )
    parts = []
    for metric in TIMES:
        specs[f"cdf-{metric}"] = lines.cdf(metric, found.quantiles)
        parts.append(
            tag(
                "div",
                tag("h3", METRIC_NAMES[metric]),
                chart(f"cdf-{metric}", f"{METRIC_NAMES[metric]} distribution"),
            )
        )
    options = [tag("option", f"{found.x} = {value}", value=value) for value in found.quantiles]
    choice = (
        tag("p", tag("select", *options, data_of="cdf", aria_label=str(found.x)))
        if len(options) > 1
        else EMPTY
    )
    at = f", at {found.x} = {shown}" if found.x and not choice else ""
    return section(
        title,
        f"Share of finished requests at or below each time{at}, of all seeds together, up to the 99.5th percentile.",
        choice,
        _legend(
            [name for name in _shown(found) if name in drawn]
            if len(drawn) < len(_shown(found))
            else _shown(found)
        ),
        tag("div", *parts, class_="three"),
    )


def _lost(lost: pd.DataFrame, x: str | None) -> Html:
    if lost.empty:
        return EMPTY
    more = f" The first {MOST_LOST} of {count(len(lost))}." if len(lost) > MOST_LOST else ""
    titles = ["configuration", *([x] if x else []), "seed", "status", "reason"]
    body = (
        [row.line, *([digits_of(row.x)] if x else []), row.seed, row.status, row.reason]
        for row in lost.head(MOST_LOST).itertuples()
    )
    return section(
        "Runs without figures", f"They were refused, or failed.{more}", table(titles, body, texts=len(titles))
    )
