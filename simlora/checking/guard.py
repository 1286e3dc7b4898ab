"""Views that show what their protocol names and nothing else, and cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from simlora.checking.promise import Broken, promise
from simlora.core.request import Request
from simlora.policies.views import Admission, ClusterView, ReplicaView, WaitingView

TRIED = ("cached_tokens", "prefill_tokens")
"""What the engine notes on a request whenever its admission is tried."""


@cache
def _members(protocol: type) -> frozenset[str]:
    names = {
        name for base in protocol.__mro__ for name in (*vars(base), *getattr(base, "__annotations__", ()))
    }
    return frozenset(name for name in names if not name.startswith("_"))


class Guard:
    """Lets a policy read the members of a protocol; `instead` has values in place of some. Raises Broken otherwise."""

    def __init__(self, target: Any, protocol: type, **instead: Any) -> None:
        vars(self).update(_target=target, _protocol=protocol, _instead=instead)

    def __getattr__(self, name: str) -> Any:
        promise(
            name in _members(self._protocol),
            f"reads {name}, which its {self._protocol.__name__} does not show",
        )
        if name in self._instead:
            return self._instead[name]
        value = getattr(self._target, name)
        if name == "waiting":
            return GuardedQueue(value, WaitingView)
        if name == "trial":
            return lambda *beside: Guard(value(*beside), Admission)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise Broken(f"sets {name} on its view")


class GuardedQueue(Guard):
    """The waiting requests, which a policy may look through from either end."""

    def __len__(self) -> int:
        return len(self._target)

    def __iter__(self) -> Iterator[Request]:
        waiting: Iterator[Request] = iter(self._target)
        return waiting

    def __reversed__(self) -> Iterator[Request]:
        waiting: Iterator[Request] = reversed(self._target)
        return waiting


def request_state(request: Request) -> tuple[Any, ...]:
    """Return everything about a request that a policy could have changed."""
    return tuple(
        getattr(request, name) for name in dir(request) if not name.startswith("_") and name not in TRIED
    )


def replica_state(view: ReplicaView) -> list[Any]:
    """Return everything about a replica that a policy could have changed through its view."""
    return [
        view.now_s,
        view.running,
        view.loading,
        view.adapters,
        view.preempted,
        *map(request_state, view.prefilling),
        view.steps_since_prefill,
        view.max_wait_tokens,
        *map(request_state, view.waiting),
    ]


def cluster_state(view: ClusterView) -> list[Any]:
    """Return everything about a cluster that a policy could have changed through its view."""
    held = [request_state(r) for replica in range(len(view.outstanding)) for r in view.requests_of(replica)]
    return [view.now_s, *view.outstanding.tolist(), *held]
