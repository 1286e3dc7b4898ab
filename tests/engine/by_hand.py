"""The times of iterations, loads and merges as sums over lists, from the coefficients of the cases."""

import pytest

from tests.engine.cases import COEFFICIENTS as C

BOTH = pytest.mark.parametrize("fast_forward", [True, False])

READ_TWICE_S = min(C["prefill.intercept_s"], C["decode.intercept_s"])
"""What a pass that does the work of a prefill and of a decode step saves."""
FLUSH_S = C["adapter_load.flush_s"]


def prefill_s(*prompts: int) -> float:
    """Seconds to prefill whole prompts for the base model."""
    return chunks_s(*((0, prompt) for prompt in prompts))


def chunks_s(*chunks: tuple[int, int]) -> float:
    """Seconds to prefill (tokens done before, tokens now) of some prompts; attention reaches over both."""
    tokens = sum(now for _, now in chunks)
    squares = sum((before + now) ** 2 - before**2 for before, now in chunks)
    per_token_s = C["prefill.per_token_s"] * tokens + C["prefill.per_token_sq_s"] * squares
    return C["prefill.intercept_s"] + per_token_s


def step_s(*contexts: int) -> float:
    """Seconds of a decode step of the base model."""
    n = len(contexts)
    base_s = C["decode.intercept_s"] + C["decode.per_sequence_s"] * n + C["decode.per_sequence_sq_s"] * n * n
    return base_s + C["decode.per_context_token_s"] * sum(contexts)


def steps_s(count: int, *contexts: int) -> float:
    """Seconds of that many steps, the first with these contexts."""
    return sum(step_s(*(context + i for context in contexts)) for i in range(count))


def load_s(rank: int) -> float:
    """Seconds to load an adapter: 64 bytes a rank."""
    return C["adapter_load.latency_s"] + 64 * rank / C["adapter_load.bytes_per_s"]


def kv_s(tokens: int) -> float:
    """Seconds to copy the KV of so many tokens to the host or back, over an idle link: 16 bytes a token."""
    return C["adapter_load.latency_s"] + tokens * 16 / C["adapter_load.bytes_per_s"]


def merge_s(rank: int, tp: int = 1) -> float:
    """Seconds to merge an adapter, or to take it out."""
    return C["merge.intercept_s"] + C["merge.per_byte_s"] * (64 * rank // tp)


def host_s(sequences: int) -> float:
    """Seconds of an iteration during which the GPU is idle."""
    return C["host.intercept_s"] + C["host.per_sequence_s"] * sequences
