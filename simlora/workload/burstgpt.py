"""The BurstGPT trace, as published: four months and more of requests to GPT-3.5 and GPT-4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import switch
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs
from simlora.workload.columns import names, seconds, tokens
from simlora.workload.published import Published, numbered, with_one_of

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
OPTIONAL = ("Session ID", "Elapsed time")
"""Of BurstGPT_3.csv alone (release v2.0)."""


@dataclass(frozen=True)
class BurstGpt(Published):
    """Arrivals and lengths of the trace; adapters drawn by `popularity`, one a session where the file names sessions.

    `models` are those of its column Model that are kept (ChatGPT, GPT-4), `log_types` those of its Log Type
    (Conversation log, API log); None: all. Requests that failed have no response tokens and are dropped. `history` says
    that prompts of a session begin with what was said in it before, which the trace does not tell: an assumption.

    See Published for the window and the limits.
    Source: HPMLL/BurstGPT, data/BurstGPT_*.csv; BurstGPT (arXiv 2401.17644).
    """

    models: Sequence[str] | None = None
    log_types: Sequence[str] | None = None
    history: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        switch("workload.history", self.history)

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` decides which adapter each session or request has, and nothing else."""
        table = self._read(
            COLUMNS, "the BurstGPT trace", "data/BurstGPT_without_fails_1.csv from HPMLL/BurstGPT", OPTIONAL
        )
        times_s = seconds(table, "Timestamp")
        kept = np.intersect1d(
            with_one_of(table, "Model", self.models, "workload.models"),
            with_one_of(table, "Log Type", self.log_types, "workload.log_types"),
        )
        table, since_s = table.at(kept), (times_s - times_s.min())[kept]
        prompts, outputs = (tokens(table, name, least=0) for name in ("Request tokens", "Response tokens"))
        order, notices = self._window(table, "Timestamp", since_s, prompts, outputs)
        session = names(table, "Session ID") if "Session ID" in table.columns else None
        return Trace(
            arrival_s=self._arrival_s(since_s[order]),
            adapter=self._adapter(seed, session, since_s, order),
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=outputs[order],
            adapters=adapter_specs(self.adapters, self.ranks),
            session=[session[i] for i in order] if session is not None and self.history else None,
            source=f"BurstGPT trace, {table.path}",
            notices=notices,
        )

    def _adapter(
        self,
        seed: int,
        session: Sequence[str | None] | None,
        since_s: Floats,
        order: Ints,
    ) -> Ints:
        """Return the adapters [requests]. All sessions have drawn before a window is cut out of the file."""
        if session is None:
            return self._drawn(seed, len(order), self._arrival_s(since_s[order]))
        number = numbered(session, since_s)
        return self._drawn(seed, int(number.max()) + 1)[number[order]]
