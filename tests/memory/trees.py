"""Requests for a `PrefixTree`, in blocks of four tokens; request i comes and goes at second i."""

from collections.abc import Callable, Iterator
from typing import Any

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.segments import Branch, Segment
from simlora.memory.worth import Worth

A, B = Adapter(0, "a", 8, 512, 32), Adapter(1, "b", 8, 512, 32)


class ByRule(Worth[Any]):
    """Worth by functions of an item, and of an item and the time."""

    def __init__(
        self,
        key: Callable[[Any], float],
        fade: Callable[[Any, float], float] = lambda thing, now_s: 0.0,
        most_fade: float = 0.0,
    ) -> None:
        super().__init__(most_fade)
        self._key, self._fade = key, fade

    def key(self, thing: Any) -> float:
        return self._key(thing)

    def fade(self, thing: Any, now_s: float) -> float:
        return self._fade(thing, now_s)


def request(
    id: int, *hashes: int, prompt: int = 0, adapter: Adapter | None = A, session: str | None = None
) -> Request:
    """A request whose prompt is its blocks and one token, if nothing else is said."""
    return Request(id, adapter, 0.0, prompt or 4 * len(hashes) + 1, 10, session, hashes)


def started(tree: PrefixTree, new: Request, now_s: float = 0.0) -> int:
    """Start a request as the engine does; return the tokens found."""
    new.cached_tokens = sum(map(tree.size, tree.claim_prefix(new)))
    tree.hold(new, now_s)
    return new.cached_tokens


def running(tree: PrefixTree, new: Request, now_s: float = 0.0) -> Request:
    """Start a request and prefill it; return it."""
    started(tree, new, now_s)
    tree.add(new, new.prompt_tokens, now_s)
    return new


def served(tree: PrefixTree, new: Request, output_tokens: int = 1, now_s: float | None = None) -> int:
    """Start a request, prefill it, let it go; return the tokens found."""
    now_s = float(new.id) if now_s is None else now_s
    found = started(tree, new, now_s)
    tree.add(new, new.prompt_tokens, now_s)
    tree.add(new, new.prompt_tokens + output_tokens - 1, now_s)
    tree.leave(new, now_s)
    return found


def serve(tree: PrefixTree, *paths: tuple[int, ...]) -> None:
    """Serve a request for each of these paths, number and second 0 and so on."""
    for id, hashes in enumerate(paths):
        served(tree, request(id, *hashes))


def blocks(tree: PrefixTree, resident: bool = True) -> set[tuple[int, ...]]:
    """All blocks in HBM, or on the host, each by the blocks until it, behind the number of the adapter."""
    return {path for path, segment in walk(tree) if segment.resident == resident}


def segments(tree: PrefixTree) -> list[tuple[tuple[int, ...], bool]]:
    """The blocks of each segment, and whether it is in HBM, one behind the other."""
    found = {segment: None for _, segment in walk(tree)}
    return [(tuple(segment.blocks), segment.resident) for segment in found]


def walk(tree: PrefixTree) -> Iterator[tuple[tuple[int, ...], Segment]]:
    """Every block, as in `blocks`, with the segment in which it lies."""

    def below(node: Branch | Segment, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Segment]]:
        for segment in node.children.values():
            for end in range(1, len(segment.blocks) + 1):
                yield path + tuple(segment.blocks[:end]), segment
            yield from below(segment, path + tuple(segment.blocks))

    for branch in tree._branches.values():
        yield from below(branch, (branch.adapter_id,))
