"""The router that sends a conversation's turns to where its KV is, on hand-made clusters."""

from __future__ import annotations

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.routing import session_bands
from simlora.policies.routing.rank_bands import RankBands
from simlora.policies.routing.session_bands import SessionBands
from tests.policies.hand import Cluster

ALL = np.arange(4)
ADAPTERS = {rank: Adapter(rank, f"rank {rank}", rank, 64 * rank, 3 * rank) for rank in (8, 16, 32, 64)}


def turn(session: str | None, rank: int = 8, tokens: int = 10) -> Request:
    return Request(0, ADAPTERS[rank], 0.0, 10, tokens, session)


def test_a_turn_goes_where_the_one_before_went_unless_that_has_too_much_to_do_or_is_gone() -> None:
    router = SessionBands(slack=2, session_slack=4)
    assert router.route(turn("a"), ALL, Cluster((1, 1, 0, 1))) == 2
    assert router.route(turn("a"), ALL, Cluster((0, 0, 3, 0))) == 2
    assert router.route(turn("b"), ALL, Cluster((0, 1, 1, 1))) == 0
    assert router.route(turn("a"), ALL, Cluster((1, 0, 4, 1))) == 1
    assert router.route(turn("a"), ALL, Cluster((0, 1, 0, 0))) == 1, "it stays there"
    assert router.route(turn("a"), np.array([0, 3]), Cluster((1, 0, 0, 0))) == 3


def test_the_session_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_bands, "MOST_SESSIONS", 2)
    router, at = SessionBands(slack=2, session_slack=9), Cluster((0, 1, 1, 1))
    for session, idlest in (("a", 1), ("b", 2)):
        router.route(turn(session), ALL, Cluster([int(i != idlest) for i in range(4)]))
    assert router.route(turn("a"), ALL, at) == 1
    assert router.route(turn("c"), ALL, at) == 0
    assert router.route(turn("a"), ALL, at) == 1, "it was used after b"
    assert router.route(turn("b"), ALL, at) == 0, "nobody knows where it was"


def test_without_sessions_it_is_rank_bands() -> None:
    plain, ours, rng = RankBands(2), SessionBands(2), np.random.default_rng(0)
    for rank in rng.choice([8, 16, 32, 64], size=50):
        view = Cluster(rng.integers(0, 4, size=4).tolist())
        assert plain.route(turn(None, rank), ALL, view) == ours.route(turn(None, rank), ALL, view)


def test_turns_that_come_back_count_for_the_width_of_their_band() -> None:
    router = SessionBands(slack=4)
    router.route(turn("a", 64, tokens=1), ALL, Cluster())
    for _ in range(9):
        router.route(turn("a", 64, tokens=10), ALL, Cluster())
    router.route(turn(None, 8, tokens=20), ALL, Cluster())
    assert (
        router.route(turn(None, 64, tokens=1), ALL, Cluster((0, 0, 1, 1))) == 1
    )  # all but the first are rank 64's
