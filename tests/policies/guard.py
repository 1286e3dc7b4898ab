"""Views that show what their protocol names and nothing else, and cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simlora.core.request import Request
from simlora.policies.views import Admission, ClusterView, ReplicaView, WaitingView


def _members(protocol: type) -> set[str]:
    names = {
        name for base in protocol.__mro__ for name in (*vars(base), *getattr(base, "__annotations__", ()))
    }
    return {name for name in names if not name.startswith("_")}


class Guard:
    """Lets a policy read the members of a protocol; anything else fails the test."""

    def __init__(self, target: Any, protocol: type, **instead: Any) -> None:
        vars(self).update(_target=target, _protocol=protocol, _instead=instead)

    def __getattr__(self, name: str) -> Any:
        assert name in _members(self._protocol), f"{self._protocol.__name__} shows no {name}"
        if name in self._instead:
            return self._instead[name]
        value = getattr(self._target, name)
        if name == "waiting":
            return GuardedQueue(value, WaitingView)
        if name == "trial":
            return lambda *beside: Guard(value(*beside), Admission)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(f"a policy sets {name} on its view")


class GuardedQueue(Guard):
    def __len__(self) -> int:
        return len(self._target)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._target)

    def __reversed__(self) -> Iterator[Request]:
        return reversed(self._target)


def request_state(request: Request) -> tuple[Any, ...]:
    return tuple(getattr(request, name) for name in dir(request) if not name.startswith("_"))


def replica_state(view: ReplicaView) -> list[Any]:
    """Everything about a replica that a policy could have changed through its view."""
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
    held = [request_state(r) for replica in range(len(view.outstanding)) for r in view.requests_of(replica)]
    return [view.now_s, *view.outstanding.tolist(), *held]
