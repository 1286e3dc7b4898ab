"""What goes wrong, and when: hosts that fail, replicas and links that are slow for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from simlora.core.checks import number, whole
from simlora.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A host fails at `at_s`, with its replicas and its memory, and is back, empty, at `until_s`; None: never."""

    host: int
    at_s: float
    until_s: float | None = None

    def __post_init__(self) -> None:
        whole("host of cluster.failures", self.host, least=0)
        _check_times("cluster.failures", self.at_s, self.until_s)


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """Whatever a replica computes takes `factor` times as long from `at_s` to `until_s`; None: to the end.

    An iteration that is under way then goes on as it began.
    """

    replica: int
    at_s: float
    factor: float
    until_s: float | None = None

    def __post_init__(self) -> None:
        whole("replica of cluster.stragglers", self.replica, least=0)
        number("factor of cluster.stragglers", self.factor, above=0)
        _check_times("cluster.stragglers", self.at_s, self.until_s)


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """What goes over a host's PCIe and network takes `factor` times as long from `at_s` to `until_s`; None: to the end.

    A transfer that has been given to a link before goes on as it began.
    """

    host: int
    at_s: float
    factor: float
    until_s: float | None = None

    def __post_init__(self) -> None:
        whole("host of cluster.slow_links", self.host, least=0)
        number("factor of cluster.slow_links", self.factor, above=0)
        _check_times("cluster.slow_links", self.at_s, self.until_s)


def check_incidents(
    key: str, incidents: Sequence[tuple[int, float, float | None]], whose: str, count: int
) -> None:
    """Raise InputError unless each (id, at_s, until_s) is of one that there is, and after the one before it.

    They are of one host or replica (`whose`) of `count`.
    """
    until: dict[int, float] = {}
    for id, at_s, until_s in sorted(incidents, key=lambda each: each[1]):
        if id >= count:
            raise InputError(f"{key} has {whose} {id}, must be one of the {count} {whose}s, from 0 on")
        if at_s < until.get(id, 0.0):
            raise InputError(f"{key} has {whose} {id} at {at_s:g} s, when what began before is not over")
        until[id] = inf if until_s is None else until_s


def _check_times(key: str, at_s: float, until_s: float | None) -> None:
    number(f"at_s of {key}", at_s, "seconds", least=0)
    if until_s is not None:
        number(f"until_s of {key}", until_s, "seconds", above=at_s)
