"""Conversations of several turns: each turn's prompt is all that was said before, and something new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, check_adapters
from simlora.workload.arrivals import CV_MAX, REQUESTS_MAX, Gamma
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import check_length
from simlora.workload.popularity import Popularity, check_popularity
from simlora.workload.renewals import check_renewals, epoch_factors, of_their_own
from simlora.workload.shape import FLAT, Shape, as_shape
from simlora.workload.turns import Talk

PILOT = 10_000
"""Conversations drawn first, to learn how many turns they have and how long they take: to within half a per cent."""


@dataclass(frozen=True)
class Conversations:
    """Requests for `duration_s` seconds at a mean of `rate_rps`: the turns of conversations, one adapter each.

    A turn is a message of `prompt_tokens`, answered by `output_tokens`. Its prompt is every message and every answer
    of the conversation so far and the new message, and the trace's session names the conversation. The first message
    has `first_tokens` more: instructions, a document, what has been said days ago. A conversation has `turns` turns; it
    ends early before one that would have more than `context_tokens` with its answer, and if that is the first, the
    conversation does not occur.

    Between the arrivals of a turn and the next lie gamma gaps of mean `gap_s` and variation `gap_cv`: the time to
    answer, to read and to think. The loop is open: the next turn comes at its time whether or not the one before is
    answered, and its prompt has that answer in it all the same.

    Conversations of an adapter begin with gamma gaps of variation `cv`, adapter by adapter, as requests do in
    Functions; `epochs`, `epoch_sigma_log`, `shape` and `day_s` are as there too. They say how many conversations begin,
    whose turns come later. `popularity` is how many of them each adapter has in the long run; in every epoch that is
    multiplied by a log-normal factor of its own, and all of them so that the total stays.

    At 0 everything is under way: conversations have begun long before, as many as in the first moment after it. Of
    their turns those before 0 are not in the trace, and the others have all their history, which no cache holds yet.
    The mean rate is right with these, and without the turns that would come after the end.

    Source: FastLibra §6.2, which says what its prompts are made of; it does not say how long users take.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    turns: Lengths
    popularity: Popularity
    first_tokens: Lengths | None = None
    adapters: int = 100
    ranks: Sequence[int] = (32, 64)
    gap_s: float = 60.0
    gap_cv: float = 1.0
    rate_rps: float = 1.6
    cv: float = 1.0
    epochs: int = 1
    epoch_sigma_log: float = 0.0
    duration_s: float = 1800.0
    shape: Any = None
    day_s: float | None = None
    context_tokens: int | None = 2048

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks)
        check_popularity(self.popularity, int(self.adapters))
        for key in ("prompt_tokens", "output_tokens", "turns"):
            check_length(key, getattr(self, key))
        if self.first_tokens is not None:
            check_length("first_tokens", self.first_tokens)
        number("workload.gap_s", self.gap_s, "seconds", above=0)
        number("workload.gap_cv", self.gap_cv, least=0, most=CV_MAX)
        number("workload.rate_rps", self.rate_rps, "requests per second", above=0)
        check_renewals(
            self.cv, self.epochs, self.epoch_sigma_log, self.duration_s, self.day_s, self.context_tokens
        )
        _ = self.shares, self._clock

    @property
    def shares(self) -> Floats:
        """Return the share of conversations that each adapter has in the long run [adapters]."""
        rates = self.popularity.rates(int(self.adapters))
        shares: Floats = rates / rates.sum()
        return shares

    @property
    def _talk(self) -> Talk:
        gaps = Gamma(1 / self.gap_s, self.gap_cv)
        lengths = (self.first_tokens, self.prompt_tokens, self.output_tokens)
        return Talk(self.turns, gaps, *lengths, self.context_tokens)

    @cached_property
    def _clock(self) -> tuple[Floats, Floats]:
        """Return moments from 0 to `duration_s`, and what a clock shows that goes as conversations begin."""
        shape: Shape = as_shape(self.shape, "workload.shape")
        return shape.elapsed(self.duration_s, None if shape is FLAT else self.day_s, "workload.shape")

    @property
    def lasts(self) -> dict[str, float]:
        """The keys that say how long it goes on; none with a `shape`, whose rate is another later."""
        return {} if self.shape is not None else {"duration_s": self.duration_s, "epochs": self.epochs}

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        starts, gaps, turns = stream(seed, "arrivals").spawn(3)
        messages, outputs = stream(seed, "prompt_lengths"), stream(seed, "output_lengths")
        streams = (turns, gaps, *messages.spawn(1), messages, outputs)
        begins_per_s, before_s = self._begins_per_s(streams)
        start_s, adapter = self._starts(starts, stream(seed, "adapters"), begins_per_s, before_s)
        said = self._talk.draw(streams, len(start_s))
        arrival_s = start_s[said.conversation] + said.after_s
        order = np.argsort(arrival_s, kind="stable")
        order = order[(arrival_s[order] >= 0) & (arrival_s[order] < self.duration_s)]
        if not len(order):
            raise InputError(
                f"workload.duration_s is {self.duration_s:g} seconds, in which no turn of a conversation arrives; "
                "make it longer or raise workload.rate_rps"
            )
        conversation = said.conversation[order]
        heard, session = np.unique(conversation, return_inverse=True)
        names = [f"conversation_{i}" for i in range(len(heard))]
        return Trace(
            arrival_s=arrival_s[order],
            adapter=adapter[conversation],
            prompt_tokens=said.prompts[order],
            output_tokens=said.outputs[order],
            max_output_tokens=said.outputs[order],
            adapters=adapter_specs(self.adapters, self.ranks),
            session=[names[i] for i in session],
            source=f"conversations with {self.adapters:,} adapters, popularity {type(self.popularity).__name__}",
            history_rps=self.rate_rps * self.shares,
        )

    def _begins_per_s(self, streams: Sequence[np.random.Generator]) -> tuple[float, float]:
        """Return how many conversations have to begin per second, on average over the run, and from when before 0 on.

        That is from the longest conversation of a pilot on. Of one that has turns `after_s` its beginning, as many are
        expected in the run as the clock goes on while they would be the beginnings.
        """
        pilot = self._talk.draw([rng.spawn(1)[0] for rng in streams], PILOT)
        if not len(pilot):
            raise InputError(
                f"workload.context_tokens is {self.context_tokens}, which is too few for the first turn of any "
                "conversation; raise it or shorten workload.prompt_tokens, output_tokens or first_tokens"
            )
        before_s = float(pilot.after_s.max())
        moments_s, shown_s = self._since(before_s)
        until_s = np.interp(self.duration_s - pilot.after_s, moments_s, shown_s)
        since_s = np.interp(-pilot.after_s, moments_s, shown_s)
        begins_per_s = self.rate_rps * self.duration_s * PILOT / float((until_s - since_s).sum())
        expected = begins_per_s * (self.duration_s - float(shown_s[0])) * len(pilot) / PILOT
        number(
            "workload.rate_rps x (workload.duration_s + the longest conversation)",
            expected,
            "requests",
            most=REQUESTS_MAX,
        )
        return begins_per_s, before_s

    def _since(self, before_s: float) -> tuple[Floats, Floats]:
        """Return the clock from `before_s` ahead of 0 on, where it goes as it does in the first moment of the run."""
        moments_s, shown_s = self._clock
        speed = shown_s[1] / moments_s[1]
        return np.append(-before_s, moments_s), np.append(-before_s * speed, shown_s)

    def _starts(
        self, rng: np.random.Generator, adapters: np.random.Generator, begins_per_s: float, before_s: float
    ) -> tuple[Floats, Ints]:
        """Return when conversations begin, in order, and with which adapter [conversations]."""
        rates = np.tile(self.shares, (int(self.epochs), 1))
        if self.epoch_sigma_log:
            rates *= epoch_factors(adapters, len(rates), rates.shape[1], float(self.epoch_sigma_log))
            rates /= rates.sum(axis=1, keepdims=True)
        moments_s, shown_s = self._since(before_s)
        shown, adapter = of_their_own(
            rng, begins_per_s * rates, self.duration_s, self.cv, before_s=-float(shown_s[0])
        )
        start_s = np.interp(shown, shown_s, moments_s)
        order = np.argsort(start_s, kind="stable")
        return start_s[order], adapter[order]
