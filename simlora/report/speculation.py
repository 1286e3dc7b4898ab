"""The section of report.html on speculative decoding: what a draft proposed, and what was accepted of it."""

from __future__ import annotations

from simlora.report.format import count, percent
from simlora.report.markup import EMPTY, Html
from simlora.report.parts import section, table
from simlora.report.results import RunResults


def speculation(results: RunResults) -> Html:
    """Return how many of a draft's tokens were accepted; nothing without a draft."""
    facts = results.summary.get("speculation")
    if not facts or not facts["steps"]:
        return EMPTY
    note = (
        f"A draft ({facts['draft']}) proposed tokens of each running request, and one pass of the adapted model "
        "verified them. All tokens of a step come at once, as one gap in the times between tokens."
    )
    row = [
        count(facts["steps"]),
        count(facts["draft_tokens"]),
        count(facts["accepted_tokens"]),
        percent(facts["acceptance"]),
        f"{facts['tokens_per_step']:.2f}",
    ]
    columns = [
        "steps of requests",
        "tokens proposed",
        "accepted",
        "share",
        "tokens a step, with the model's own",
    ]
    return section("Speculative decoding", note, table(columns, [row]))
