"""The text of answers, which says that it is none."""

from __future__ import annotations

TEXT = "This text is filler: simlora simulates the times of a server, and has no model that answers."
WORDS = [f" {word}" for word in TEXT.split()]
"""One a token, in turn."""
JSON_WORDS = [f'"{word}"'.encode() for word in WORDS]


def text_of(tokens: int) -> str:
    """Return the text of an answer."""
    whole, rest = divmod(tokens, len(WORDS))
    return ("".join(WORDS) * whole + "".join(WORDS[:rest])).removeprefix(" ")


def json_of(begin: int, end: int) -> bytes:
    """Return the tokens from one number, from 0 on, to another as a JSON string."""
    if end - begin == 1 and begin:
        return JSON_WORDS[begin % len(WORDS)]
    text = "".join(WORDS[number % len(WORDS)] for number in range(begin, end))
    return f'"{text if begin else text.removeprefix(" ")}"'.encode()
