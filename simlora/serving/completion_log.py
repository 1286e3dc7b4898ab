"""What is kept of a real server's completions: when, which model, how many tokens, how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simlora.core.errors import InputError

INTERNAL_ERROR = 500
"""Status of a stream whose error has no code."""


class CompletionLog:
    """A JSON object a line for each completion, in the order in which they ended."""

    def __init__(self, path: Path, base_model: str | None = None) -> None:
        """Raise InputError for a file that cannot be written, or has lines that are no entries.

        `base_model` is that of entries without a model.
        """
        self.path, self.written, self._base_model = path, 0, base_model
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
        try:
            for _ in self.entries():  # now, and not after hours of traffic
                pass
        except InputError:
            self._file.close()
            raise

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write one, so that it is kept whatever happens next."""
        self._file.write(json.dumps({**entry, "model": entry["model"] or self._base_model}) + "\n")
        self._file.flush()
        self.written += 1

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all entries, also those of an earlier process. Raises InputError for a line that is none."""
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = None
                if not isinstance(entry, dict) or not line.endswith("\n"):
                    raise InputError(
                        f"{self.path} line {number} is not whole, or not of simlora-record; "
                        "delete it, or record into another file"
                    )
                yield entry

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Completion:
    """One request for a completion, from its arrival to its end."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._timestamp, self._began_s = datetime.now(UTC), time.perf_counter()
        self._asked, self._usage = asked, dict[str, Any]()
        self._model = asked.get("model")
        self._first_s: float | None = None
        self._error_status: int | None = None
        self._pieces = 0

    def of_stream(self, event: Mapping[str, Any]) -> None:
        """Take an event of the answer's stream. The first one with a choice is the first token, as clients see it."""
        if event.get("choices"):
            self._pieces += 1
            if self._first_s is None:
                self._first_s = time.perf_counter()
        if error := event.get("error"):
            self._error_status = _status_of(error)
        self.of_whole(event)

    def of_whole(self, answer: Mapping[str, Any]) -> None:
        """Take an answer that is no stream."""
        if isinstance(usage := answer.get("usage"), dict):
            self._usage |= usage
        self._model = self._model or answer.get("model")

    def ended(self, status: int) -> dict[str, Any]:
        """Return the log's entry. An answer whose server does not say its tokens has as many as it had events.

        A stream that had an error has the status of that: its own, which came before, says that it went well.
        """
        now_s, asked = time.perf_counter(), self._asked
        return {
            "timestamp": self._timestamp.isoformat(),
            "model": self._model,
            "status": self._error_status or status,
            "prompt_tokens": self._usage.get("prompt_tokens"),
            "completion_tokens": self._usage.get("completion_tokens", self._pieces or None),
            "max_tokens": asked.get("max_completion_tokens") or asked.get("max_tokens"),
            "ttft_s": None if self._first_s is None else round(self._first_s - self._began_s, 6),
            "latency_s": round(now_s - self._began_s, 6),
        }


def _status_of(error: Any) -> int:
    """Return the code of a stream's error; others than HTTP's, such as a name, are not one."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else INTERNAL_ERROR
