"""The section of report.html on prefill and decode apart: how requests got from one pool to the other."""

from __future__ import annotations

from statistics import fmean

from simlora.report.format import count, counted, percent, seconds, size
from simlora.report.markup import EMPTY, Html
from simlora.report.parts import section, table
from simlora.report.results import RunResults
from simlora.report.terminal import STATISTICS

TIMES = {"wait_s": "first token to admission", "copy_s": "admission to KV"}


def handover(results: RunResults) -> Html:
    """Return how long requests and their KV took between the pools; nothing where each replica does both."""
    facts = results.summary.get("handover")
    if not facts:
        return EMPTY
    prefill, shares = facts["prefill_replicas"], facts["link_busy_share"]
    note = (
        f"{count(prefill)} of {counted(len(shares), 'replica')} prefilled, and handed over "
        f"{counted(facts['requests'], 'request')} with {size(facts['kv_bytes'])} of KV. Figures by replica are of the "
        "replica at which a request ended."
    )
    times = ([words, *(seconds(facts[name][each]) for each in STATISTICS)] for name, words in TIMES.items())
    pools = {"out of replicas that prefill": shares[:prefill], "into replicas that decode": shares[prefill:]}
    links = (
        [words, count(len(pool)), percent(fmean(pool)), percent(max(pool))] for words, pool in pools.items()
    )
    return section(
        "From prefill to decode",
        note,
        table(["", *STATISTICS], times),
        table(["network links", "replicas", "in use, mean", "most"], links),
    )
