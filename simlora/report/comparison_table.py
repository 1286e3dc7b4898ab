"""The table of comparison.html: every configuration with its figures, their intervals, and marks of the winners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.metrics.slo import ATTAINMENT
from simlora.report.compared import Comparison
from simlora.report.format import ABSENT, METRIC_NAMES, count, digits_of, is_number
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import quantity, section

MOST_ROWS = 400
BEST, TIE = "best", "tie"
ROUNDING = 1e-12
"""Half an interval below this part of the mean is rounding, shown as 0."""


def name_of(figure: str) -> str:
    """Return a figure as a column's title: ttft_s.p99 as TTFT, p99."""
    names = {
        ATTAINMENT: "attainment",
        "throughput_tps": "tokens/s",
        "cost.usd_per_million_tokens": "USD per million tokens",
        "gpu_s_per_thousand_requests": "GPU-seconds per 1,000 requests",
    }
    metric, _, statistic = figure.partition(".")
    return names.get(figure) or (f"{METRIC_NAMES[metric]}, {statistic}" if metric in METRIC_NAMES else figure)


def figures_table(found: Comparison) -> Html:
    """Return every figure of every configuration, with marks of the best."""
    figures = list(found.columns)
    cells: dict[str, dict[Any, Any]] = {
        figure: found.means[figure].set_index(["line", "x"]).to_dict("index") for figure in figures
    }
    places = list(cells[ATTAINMENT])
    body = []
    for place in places[:MOST_ROWS]:
        own = cells[ATTAINMENT][place]
        runs = f"{own['runs']}" + (f" + {own['failed']} lost" if own["failed"] else "")
        load = own["load"] or ABSENT
        at = [digits_of(place[1])] if found.x else []
        body.append([place[0], *at, load, runs, *(_cell(figure, cells[figure][place]) for figure in figures)])
    titles = [
        ", ".join(found.by) or "configuration",
        *([found.x] if found.x else []),
        "load",
        "runs",
        *map(name_of, figures),
    ]
    more = len(places) - MOST_ROWS
    where = f"At each {found.x}, the" if found.x else "The"
    return section(
        "All figures",
        "Mean over seeds, of percentiles the median, ± half of its 95 % interval."
        + (f" The first {MOST_ROWS} of {count(len(places))} rows." if more > 0 else ""),
        tag("div", rows(titles, body), class_="figures"),
        tag(
            "p",
            tag("span", "best", class_="kind measured"),
            f" {where} configuration that is better than every other: the interval of the difference, seed by seed, "
            "excludes 0, or where there are no common seeds, the two intervals do not overlap. ",
            tag("span", "tie", class_="kind derived"),
            " Those that cannot be told from the one with the best mean. No mark: none can be told from it, as with "
            "one seed alone; or the times are those of runs past saturation, which say how long they lasted. "
            "Each pair is looked at by itself: of many that do not differ, one in twenty seems to.",
            class_="note",
        ),
    )


def _cell(figure: str, found: Mapping[str, Any]) -> Html:
    if not is_number(found["estimate"]):
        return Html(ABSENT)
    half = (found["high"] - found["low"]) / 2
    half = 0.0 if half < ROUNDING * abs(found["estimate"]) else half
    shown = quantity(_unit(figure), found["estimate"])
    more = tag("small", f"± {quantity(_unit(figure), half)}") if is_number(half) else EMPTY
    kinds = {BEST: "kind measured", TIE: "kind derived"}
    mark = [" ", tag("span", found["mark"], class_=kinds[found["mark"]])] if found["mark"] else []
    return join([shown, *mark, more])


def _unit(figure: str) -> str:
    """Return the part of a figure's name that says its unit: ttft_s of ttft_s.p99; slo.attainment is a share."""
    if figure in (ATTAINMENT, "slo.satisfaction"):
        return "_share"
    metric, _, statistic = figure.partition(".")
    return metric if metric.endswith("_s") and statistic else figure
