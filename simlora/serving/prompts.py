"""How many tokens a prompt has, and the content of its blocks."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlora.core.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS = 4
"""Of a token, where no tokenizer is given: a rule of thumb for English, as in `workload.tokens_per_character`."""


class Prompts(ABC):
    """Turns text into token ids. `quick` characters take at most 3 ms, hashes included: streams may wait."""

    name: str
    quick: int

    @abstractmethod
    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""

    def count(self, text: str) -> int:
        """Return how many tokens a text has, at least 1."""
        return max(len(self.ids(text)), 1)


class Characters(Prompts):
    """Four characters are a token; its id is a checksum of them, as equal text has equal tokens."""

    name = f"{CHARACTERS} characters a token (no --tokenizer)"
    quick = 25_000

    def ids(self, text: str) -> list[int]:
        pieces = (text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS))
        return [zlib.crc32(piece.encode("utf-8", "surrogatepass")) for piece in pieces]

    def count(self, text: str) -> int:
        return max(-(-len(text) // CHARACTERS), 1)


class Tokenized(Prompts):
    """The tokens of a `tokenizer.json`, by the library tokenizers."""

    quick = 4_000

    def __init__(self, path: str | Path) -> None:
        """Raise InputError for a file that cannot be read, or is no tokenizer."""
        self.name = str(path)
        self._tokenizer = _read(path)

    def ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text).ids
        return found


def _read(path: str | Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError("--tokenizer needs the library tokenizers: pip install tokenizers") from None
    if not Path(path).is_file():
        raise InputError(f"--tokenizer {path} is no file, must be a tokenizer.json")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"--tokenizer {path} cannot be read: {error}; must be a tokenizer.json") from None


def chat_text(messages: list[dict[str, Any]]) -> str:
    """Return the text of a chat: each role and its content on lines of their own.

    A model's own chat template is not at hand, so a chat counts some tokens more or fewer than with it. Raises
    ValueError, naming the message, for content that is neither text nor parts of which some are text.
    """
    lines: list[str] = []
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text", "") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        if content is None:
            content = ""
        if not isinstance(content, str):
            raise ValueError(f"messages[{number}].content is no text")
        lines.append(f"{message.get('role', 'user')}\n{content}\n")
    return "".join(lines)


def packed(ids: list[int]) -> bytes:
    """Return token ids as bytes."""
    return array("Q", ids).tobytes()
