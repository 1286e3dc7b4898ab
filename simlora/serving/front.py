"""What stands behind one port: a live cluster, and how requests to it are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.submissions import Submitted
from simlora.serving.adapters import KnownAdapters
from simlora.serving.answer_lengths import AnswerLengths
from simlora.serving.errors import ApiError
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.prefix_hashes import prefix_hashes
from simlora.serving.prompts import Prompts, chat_text
from simlora.serving.schemas import Chat, Completion, Wanted

MOST_ANSWERS = 1024
"""Of one HTTP request: they are submitted at once, while streams wait."""


@dataclass
class Front:
    """`max_model_len` are the most tokens of prompt and answer, `max_body_bytes` of a request's body.

    `hashes`: whether the cluster caches prefixes, so that prompts are hashed.
    """

    cluster: LiveCluster
    adapters: KnownAdapters
    prompts: Prompts
    lengths: AnswerLengths
    max_model_len: int
    max_body_bytes: int
    hashes: bool
    _ids: count[int] = field(default_factory=count)

    def id(self, kind: str) -> str:
        """Return a new id of an answer."""
        return f"{kind}-simlora-{self.cluster.number}-{next(self._ids)}"

    def models(self) -> list[dict[str, Any]]:
        """Return what /v1/models lists: the base model, and the adapters."""
        known = self.adapters
        return [
            {
                "id": name,
                "object": "model",
                "created": created_s,
                "owned_by": "simlora",
                "root": root,
                "parent": None if name == known.base else known.base,
                "max_model_len": self.max_model_len if name == known.base else None,
            }
            for name, root, created_s in known.listed()
        ]

    def completion(self, wanted: Completion) -> list[Submitted]:
        """Return the requests of a completion, prompt by prompt. Raises ApiError."""
        prompts = _prompts(wanted.prompt)
        if (answers := len(prompts) * wanted.answers) > MOST_ANSWERS:
            raise ApiError(400, f"{answers} answers are asked for, must be at most {MOST_ANSWERS}", "prompt")
        return [each for prompt in prompts for each in self._submitted(wanted, *prompt, wanted.asked_tokens)]

    def chat(self, wanted: Chat) -> list[Submitted]:
        """Return the requests of a chat. Raises ApiError."""
        return self._submitted(wanted, text_of_chat(wanted.messages), None, wanted.asked_tokens)

    def _submitted(
        self, wanted: Wanted, text: str, ids: list[int] | None, asked: int | None
    ) -> list[Submitted]:
        """Return a request for each answer to a prompt, which share its hashes."""
        if wanted.answers > 1 and wanted.temperature == 0:
            raise ApiError(400, f"n must be 1 when using greedy sampling, got {wanted.n}.", "n")
        adapter = self.adapters.number(wanted.model)
        if self.hashes and ids is None:
            ids = self.prompts.ids(text)
        prompt_tokens = max(len(ids), 1) if ids is not None else self.prompts.count(text)
        room = self.max_model_len - prompt_tokens
        if room < (asked or 1):
            raise ApiError(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                f"{prompt_tokens + (asked or 1)} tokens ({prompt_tokens} in the prompt, "
                f"{asked or 1} in the completion).",
            )
        most = asked or (room if wanted.ignore_eos else min(self.lengths.longest, room))
        if wanted.min_tokens > most:
            raise ApiError(
                400, f"min_tokens is {wanted.min_tokens}, must be at most max_tokens={most}", "min_tokens"
            )
        hashes: tuple[int, ...] = ()
        if self.hashes and ids is not None:
            name = "" if adapter == BASE_MODEL else self.cluster.simulation.adapters[adapter].name
            hashes = prefix_hashes(ids, self.cluster.scenario.cache_block_tokens, name)
        lengths = (
            most if wanted.ignore_eos else max(min(self.lengths.draw(), most), wanted.min_tokens)
            for _ in range(wanted.answers)
        )
        return [Submitted(prompt_tokens, length, adapter, most, None, hashes) for length in lengths]


def text_of_chat(messages: list[dict[str, Any]]) -> str:
    """Return the text of a chat. Raises ApiError 400 for content that is no text."""
    try:
        return chat_text(messages)
    except ValueError as error:
        raise ApiError(400, str(error), "messages") from None


def _prompts(prompt: str | list[Any]) -> list[tuple[str, list[int] | None]]:
    """Return each prompt's text, or its token ids. Raises ApiError 400."""
    if isinstance(prompt, str):
        return [(prompt, None)]
    if prompt and all(isinstance(each, str) for each in prompt):
        return [(each, None) for each in prompt]
    several = prompt if prompt and isinstance(prompt[0], list) else [prompt]
    if not all(map(_are_ids, several)):
        raise ApiError(
            400, "prompt must be a text, token ids, or a list of texts or of lists of ids", "prompt"
        )
    return [("", ids) for ids in several]


def _are_ids(ids: Any) -> bool:
    return (
        isinstance(ids, list) and bool(ids) and all(type(each) is int and 0 <= each < 1 << 63 for each in ids)
    )
