"""Transcripts: what people and models said to each other, as text without times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import AdapterSpec, Trace
from simlora.workload.adapters import adapter_specs, base_model, check_adapters
from simlora.workload.arrivals import CV_MAX, Arrivals, Gamma, check_arrivals
from simlora.workload.columns import refuse
from simlora.workload.popularity import Popularity, check_popularity
from simlora.workload.table import Table
from simlora.workload.turns import laid_out

ASKS, ANSWERS = ("human", "user"), ("gpt", "chatgpt", "assistant", "bing", "bard", "model")
"""The speakers as such files call them. All others (system, tool) are part of the next prompt."""


@dataclass
class Said:
    """Turns [turns] of one conversation after the other: tokens that are new before each answer, and the answer's.

    `counts` [conversations] says how many turns each has.
    """

    counts: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Transcripts(ABC):
    """Requests made of conversations: a turn is a question, and its prompt is all that was said before, too.

    Conversations begin, in the order of the file, as `arrivals` say, whose rate is that of conversations; between the
    arrivals of a turn and the next lie gamma gaps of mean `gap_s` and variation `gap_cv`. Neither is in the files.

    Texts have `tokens_per_character` tokens, rounded up: 0.25 is the rule of thumb for English, other languages
    and code have more. Turns without a question or an answer are left out, and a conversation ends before the turn that
    would have more than `context_tokens` with its answer; a notice says how often. Of the file no more than the first
    `rows` are read. Each conversation has one adapter, drawn by `popularity`; `adapters` 0 is the base model alone.
    """

    path: str
    popularity: Popularity
    arrivals: Arrivals | None = None
    adapters: int = 100
    ranks: Sequence[int] = (8,)
    tokens_per_character: float = 0.25
    gap_s: float = 60.0
    gap_cv: float = 1.0
    context_tokens: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks, least=0)
        if self.arrivals is not None:
            check_arrivals(self.arrivals)
        if self.adapters:
            check_popularity(self.popularity, int(self.adapters))
        number("workload.tokens_per_character", self.tokens_per_character, "tokens", above=0, most=10)
        number("workload.gap_s", self.gap_s, "seconds", above=0)
        number("workload.gap_cv", self.gap_cv, least=0, most=CV_MAX)
        for key, unit, least in (("context_tokens", "tokens", 2), ("rows", "rows", 1)):
            if getattr(self, key) is not None:
                whole(f"workload.{key}", getattr(self, key), unit, least=least)

    @abstractmethod
    def _table(self) -> Table:
        """Return the file's table, a row a conversation."""

    @abstractmethod
    def _said(self, table: Table) -> Said:
        """Return what was said, in tokens."""

    def _begin_s(self, table: Table, seed: int) -> Floats:
        """Return when each conversation begins [conversations]."""
        if self.arrivals is None:
            raise InputError(
                "workload.arrivals is empty, must be chosen with workload/arrivals=poisson or another: "
                f"{table.path} says nothing about time"
            )
        gaps_s = self.arrivals.gaps_s(stream(seed, "arrivals").spawn(2)[0], len(table))
        return self.arrivals.arrivals_s(gaps_s)

    def _adapters(self, table: Table, seed: int) -> tuple[Ints, tuple[AdapterSpec, ...]]:
        """Return the adapter of each conversation [conversations], and all adapters."""
        adapters = int(self.adapters)
        if not adapters:
            return base_model(len(table)), ()
        drawn = self.popularity.draw(stream(seed, "adapters"), adapters, len(table))
        return drawn, adapter_specs(adapters, self.ranks)

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        table = self._table()
        said = self._said(table)
        counts, new, outputs = (
            np.array(part, dtype=np.int64) for part in (said.counts, said.new, said.outputs)
        )
        gaps_s = Gamma(1 / self.gap_s, self.gap_cv).gaps_s(stream(seed, "arrivals").spawn(2)[1], len(new))
        turns = laid_out(counts, new, outputs, gaps_s, self.context_tokens)
        arrival_s = self._begin_s(table, seed)[turns.conversation] + turns.after_s
        if not len(turns):
            raise InputError(
                f"{table.path} has no turn with a question and an answer within workload.context_tokens"
            )
        order = np.argsort(arrival_s, kind="stable")
        conversation, outputs = turns.conversation[order], turns.outputs[order]
        adapter, specs = self._adapters(table, seed)
        return Trace(
            arrival_s=arrival_s[order],
            adapter=adapter[conversation],
            prompt_tokens=turns.prompts[order],
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=specs,
            session=[f"conversation_{i}" for i in conversation],
            source=f"{type(self).__name__} transcripts, {table.path}",
            notices=_notices(table, said, len(turns)),
        )

    def _in_tokens(self, table: Table, name: str, speaker: str, text: str) -> Said:
        """Return the turns of a column of messages, each of which has the keys `speaker` and `text`."""
        said = Said()
        talks = [_messages(cell, speaker, text) for cell in table.columns[name]]
        must = f"a list of messages, each with {speaker} and {text}"
        refuse(table, name, np.array([talk is None for talk in talks]), must)
        for talk in talks:
            before = len(said.new)
            new, asked = 0, False
            for speaker_name, characters in talk or ():
                count = ceil(characters * self.tokens_per_character)
                if speaker_name in ANSWERS and asked and count:
                    said.new.append(new)
                    said.outputs.append(count)
                    new, asked = 0, False
                else:
                    new += count
                    asked |= speaker_name in ASKS and count > 0
            said.counts.append(len(said.new) - before)
        return said


def _notices(table: Table, said: Said, kept: int) -> tuple[str, ...]:
    """Return what to say of the conversations and turns that were left out; `kept` turns were not."""
    notices = []
    if silent := said.counts.count(0):
        notices.append(
            f"{table.path}: {silent:,} of {len(table):,} rows have no question with an answer and were dropped."
        )
    if long := len(said.new) - kept:
        notices.append(
            f"{table.path}: {long:,} of {len(said.new):,} turns exceed workload.context_tokens and were dropped."
        )
    return tuple(notices)


def _messages(cell: object, speaker: str, text: str) -> list[tuple[str, int]] | None:
    """Return the speaker and the characters, message by message; None where the cell is something else."""
    if not isinstance(cell, list | np.ndarray):
        return None
    found = []
    for message in cell:
        if not isinstance(message, dict):
            return None
        speaker_name, what = message.get(speaker), message.get(text)
        if not isinstance(speaker_name, str) or not isinstance(what, str):
            return None
        found.append((speaker_name, len(what)))
    return found
