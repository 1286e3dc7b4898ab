"""The section of report.html on requests over time: their rates, the tokens, first tokens and the SLO."""

from __future__ import annotations

from simlora.metrics.slo import SloTargets
from simlora.report import time_charts
from simlora.report.format import targets_in_words, time_unit
from simlora.report.markup import EMPTY, Html, tag
from simlora.report.parts import chart, colour_keys, section
from simlora.report.rates import by_time
from simlora.report.results import RunResults
from simlora.report.vega import Spec

RATES = {
    "arrivals_rps": ("arrivals", "amber"),
    "first_tokens_rps": ("first tokens", "teal"),
    "finished_rps": ("finished", "blue"),
}
TTFT = {"ttft_p50_s": ("median", "blue"), "ttft_p95_s": ("95th percentile", "amber")}


def over_time(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return requests and output tokens a second, TTFT and attainment over time; nothing without requests."""
    targets = SloTargets(**results.summary["slo"]["targets"])
    frame = by_time(results.rows, targets)
    if frame.empty:
        return EMPTY
    end_s = float(frame["time_s"].iloc[-1] + frame["time_s"].iloc[0])
    unit, factor = time_unit(float(frame["ttft_p95_s"].max()))
    specs["rates"] = time_charts.lines(frame, RATES, end_s)
    specs["tokens"] = time_charts.lines(frame, {"tokens_per_s": ("output tokens/s", "blue")}, end_s)
    specs["ttft-over-time"] = time_charts.lines(frame, TTFT, end_s, factor)
    specs["attainment-over-time"] = time_charts.lines(
        frame, {"attainment": ("attainment", "blue")}, end_s, share=True
    )
    return section(
        "Requests over time",
        f"In {len(frame)} equal stretches of time. TTFT and attainment are of the requests that arrived in each.",
        tag("h3", "Requests a second ", *_keys(RATES)),
        chart("rates", "Arrivals, first tokens and finished requests a second over time"),
        tag("h3", "Output tokens a second"),
        chart("tokens", "Output tokens a second over time"),
        tag("h3", f"TTFT ({unit}) ", *_keys(TTFT)),
        chart("ttft-over-time", "Median and 95th percentile of TTFT over time of arrival"),
        tag("h3", f"SLO attainment ({targets_in_words(results.summary['slo']['targets'])})"),
        chart("attainment-over-time", "SLO attainment over time of arrival"),
    )


def _keys(shown: dict[str, tuple[str, str]]) -> list[Html]:
    return colour_keys(*((f"bg-{colour}", title) for title, colour in shown.values()))
