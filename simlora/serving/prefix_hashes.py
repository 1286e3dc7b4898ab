"""Hashes of a prompt's blocks, each of all tokens before it too: what a prefix cache, or its router, goes by."""

from __future__ import annotations

from hashlib import blake2b

from simlora.serving.prompts import packed


def prefix_hashes(ids: list[int], block_tokens: int, adapter: str) -> tuple[int, ...]:
    """Return a hash of 63 bits for every whole block of a prompt, chained, with the adapter's name in each.

    Source: vLLM, v1/core/kv_cache_utils.py: a block's hash is that of its parent's hash, its tokens and extra keys,
    among which is the adapter. Differs: another hash function, so that numbers are not those of a vLLM.
    """
    found: list[int] = []
    key, parent = adapter.encode("utf-8", "surrogatepass"), b""
    for begin in range(0, len(ids) - block_tokens + 1, block_tokens):
        content = packed(ids[begin : begin + block_tokens])
        parent = blake2b(parent + content + key, digest_size=8).digest()
        found.append(int.from_bytes(parent, "little") >> 1)
    return tuple(found)
