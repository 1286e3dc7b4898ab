"""What is asked of an import beside its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DROP, KEEP, REFUSE = "drop", "keep", "refuse"
WITH_FAILED = (DROP, KEEP, REFUSE)


@dataclass(frozen=True)
class Wishes:
    """Ranks, base models, failed requests and arrivals, as the user has said.

    `ranks` is a CSV with adapter and rank, or `rank` that of every adapter. Rows of a model in `base_models` have no
    adapter. `failed` is DROP, KEEP or REFUSE. `rate_rps` draws arrivals where the log has none: a Poisson process, or
    all at once where it is infinite; `rate_from` is what says it.
    """

    ranks: str | None = None
    rank: int | None = None
    base_models: Sequence[str] = ()
    failed: str = DROP
    rate_rps: float | None = None
    rate_from: str = "--rate"
