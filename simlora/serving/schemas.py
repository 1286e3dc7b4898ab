"""The bodies of requests, as far as they change what is simulated; other fields of OpenAI's and vLLM's are ignored."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from simlora.serving.errors import ApiError

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
T = TypeVar("T")


class StreamOptions(msgspec.Struct):
    """Whether the last event of a stream, or each, has the usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Wanted(msgspec.Struct, kw_only=True):
    """What completions and chats have in common."""

    model: str | None = None
    max_tokens: Positive | None = None
    min_tokens: NotNegative = 0
    ignore_eos: bool = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = 1
    temperature: float | None = None

    @property
    def answers(self) -> int:
        """How many answers each prompt gets: vLLM makes as many requests of it."""
        return self.n or 1

    @property
    def usage_at_end(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def usage_always(self) -> bool:
        """Whether each event of a stream has the usage so far."""
        return self.usage_at_end and bool(self.stream_options and self.stream_options.continuous_usage_stats)


class Completion(Wanted, kw_only=True):
    """`/v1/completions`. `prompt`: text, token ids, or a list of these."""

    prompt: str | list[Any]
    max_tokens: Positive | None = 16

    @property
    def asked_tokens(self) -> int | None:
        """The tokens that an answer may have; None: as many as there is room for."""
        return self.max_tokens


class Chat(Wanted, kw_only=True):
    """`/v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    max_completion_tokens: Positive | None = None

    @property
    def asked_tokens(self) -> int | None:
        """The tokens that an answer may have; None: as many as there is room for."""
        return self.max_completion_tokens or self.max_tokens


class Tokenize(msgspec.Struct, kw_only=True):
    """`/tokenize`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


class LoadAdapter(msgspec.Struct, kw_only=True):
    """`/v1/load_lora_adapter`. `rank` is ours; `load_inplace` takes the place of one that has the name."""

    lora_name: Annotated[str, msgspec.Meta(min_length=1)]
    lora_path: str = ""
    load_inplace: bool = False
    rank: Positive | None = None


class UnloadAdapter(msgspec.Struct, kw_only=True):
    """`/v1/unload_lora_adapter`."""

    lora_name: Annotated[str, msgspec.Meta(min_length=1)]


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`/simlora/faults`. `replica`: None: the first one of the port; `for_s` are simulated seconds; None: for good.

    A step under way keeps its speed when a fault ends. `factor` is at most 1,000, so that this takes no hours.
    """

    kind: str
    replica: NotNegative | None = None
    for_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    factor: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 2.0


def decoded(body: bytes, schema: type[T]) -> T:
    """Return a body. Raises ApiError 400 for what is no JSON or has another shape."""
    try:
        return msgspec.json.decode(body, type=schema)
    except msgspec.DecodeError as error:
        message = str(error)
        where = message.partition("$.")[2].rstrip("`") or None
        raise ApiError(400, message, where) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deep") from None
