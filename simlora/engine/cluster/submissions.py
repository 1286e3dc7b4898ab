"""What was submitted to a driven run, by request id."""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from simlora.core.trace import BASE_MODEL


class Submitted(NamedTuple):
    """A request from outside: as a row of a trace. `adapter` is an index of the run's adapters, or BASE_MODEL."""

    prompt_tokens: int
    output_tokens: int
    adapter: int = BASE_MODEL
    max_output_tokens: int | None = None
    session: str | None = None
    block_hashes: tuple[int, ...] = ()


class Keep(Enum):
    """What a driven run keeps of requests that have ended.

    ALL: their rows, and what a trace says of them. ROWS: the same without sessions and hashes, which take most of the
    memory. OPEN: nothing, so that memory does not grow with the requests served; then there is no trace and no table.
    """

    ALL = "all"
    ROWS = "rows"
    OPEN = "open"


class Column(MutableSequence[Any]):
    """A value of each request, by id, from the first request that is kept; numbers are packed in an array."""

    __slots__ = ("_first", "values")

    def __init__(self, values: array[Any] | list[Any]) -> None:
        self.values, self._first = values, 0

    def __len__(self) -> int:
        return self._first + len(self.values)

    def __getitem__(self, id: Any) -> Any:
        return self.values[self._place(id)]

    def __setitem__(self, id: Any, value: Any) -> None:
        self.values[self._place(id)] = value

    def __delitem__(self, id: Any) -> None:
        raise TypeError("requests are forgotten in order of id")

    def insert(self, index: int, value: Any) -> None:
        """Add the next request's value, as `append` does."""
        assert index == len(self), "requests are submitted in order of id"
        self.values.append(value)

    def forget(self, first: int) -> None:
        """Forget the values of all requests before that one."""
        del self.values[: first - self._first]
        self._first = first

    def _place(self, id: int) -> int:
        assert id >= self._first, f"request {id} is forgotten"
        return id - self._first


class Submissions:
    """The columns of the requests that were submitted; `output_tokens` are their true lengths."""

    def __init__(self, keep: Keep) -> None:
        self.keep = keep
        self.arrival_s, self.output_tokens = Column(array("d")), Column(array("q"))
        self._adapter, self._prompt_tokens = Column(array("q")), Column(array("q"))
        self._max_output_tokens = Column(array("q"))
        self._session, self._block_hashes = Column([]), Column([])
        self.last_s = 0.0

    def __len__(self) -> int:
        return len(self.arrival_s)

    def add(self, at_s: float, submitted: Submitted, max_output_tokens: int) -> None:
        """Add a request that arrives at that time."""
        self.last_s = at_s
        self.arrival_s.append(at_s)
        self.output_tokens.append(submitted.output_tokens)
        self._adapter.append(submitted.adapter)
        self._prompt_tokens.append(submitted.prompt_tokens)
        self._max_output_tokens.append(max_output_tokens)
        if self.keep is Keep.ALL:
            self._session.append(submitted.session)
            self._block_hashes.append(submitted.block_hashes)

    def forget(self, first: int) -> None:
        """Forget all requests before that one."""
        for column in (
            self.arrival_s,
            self.output_tokens,
            self._adapter,
            self._prompt_tokens,
            self._max_output_tokens,
        ):
            column.forget(first)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a trace of all requests, by name."""
        assert self.keep is not Keep.OPEN, "requests that have ended are forgotten"
        whole = self.keep is Keep.ALL
        return {
            "arrival_s": np.array(self.arrival_s.values, dtype=np.float64),
            "adapter": np.array(self._adapter.values, dtype=np.int64),
            "prompt_tokens": np.array(self._prompt_tokens.values, dtype=np.int64),
            "output_tokens": np.array(self.output_tokens.values, dtype=np.int64),
            "max_output_tokens": np.array(self._max_output_tokens.values, dtype=np.int64),
            "session": self._session.values if whole else None,
            "block_hashes": self._block_hashes.values if whole else None,
        }
