"""The routers that keep requests of like rank, and turns of a conversation, together, on hand-made clusters."""

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


def asked(rank: int, tokens: int = 10) -> Request:
    adapter = Adapter(rank, f"rank {rank}", rank, 64 * rank, 3 * rank) if rank else None
    return Request(rank, adapter, 0.0, 10, tokens)


def told(*requests: Request, slack: float = 4) -> RankBands:
    """Return a router that has seen these requests."""
    router = RankBands(slack)
    for request in requests:
        router.route(request, ALL, Cluster())
    return router


@pytest.mark.parametrize("rank, chosen", [(8, 0), (16, 1), (32, 2), (64, 3)])
def test_four_ranks_alike_have_a_replica_each(rank: int, chosen: int) -> None:
    router = told(asked(8), asked(16), asked(32), asked(64))
    for _ in range(3):  # what one asks more changes its share by less than a replica
        assert router.route(asked(rank, tokens=1), ALL, Cluster()) == chosen


def test_a_band_is_as_wide_as_its_share_of_the_tokens() -> None:
    router = told(asked(8, tokens=29), asked(64, tokens=10))
    assert (
        router.route(asked(8, tokens=1), ALL, Cluster((1, 2, 0, 0))) == 2
    )  # three of four, the idlest of them
    assert router.route(asked(64, tokens=0), ALL, Cluster((0, 0, 0, 3))) == 3


def test_a_rank_that_nobody_asks_for_has_one_replica_all_the_same() -> None:
    router = told(asked(8, tokens=1000))
    assert router.route(asked(64, tokens=1), ALL, Cluster((0, 0, 0, 3))) == 3
    router = told(asked(64, tokens=1000))
    assert router.route(asked(8, tokens=1), ALL, Cluster((3, 0, 0, 0))) == 0


def crowded(requests: dict[int, list[Request]]) -> Cluster:
    return Cluster(requests={replica: (own, []) for replica, own in requests.items()})


def test_who_has_too_much_to_do_is_left_out_for_one_that_is_as_slow_already() -> None:
    router = told(asked(8), asked(16), asked(32), asked(64), slack=2)
    view = crowded({1: [asked(16), asked(16)], 3: [asked(64)]})
    assert router.route(asked(16, tokens=1), ALL, view) == 3  # whose rank is higher, though 0 and 2 are idle
    view = crowded({1: [asked(16), asked(16)], 0: [asked(8)]})
    assert (
        router.route(asked(16, tokens=1), ALL, view) == 2
    )  # nobody has a higher one: the idlest, the lowest number


def test_what_was_asked_long_ago_counts_no_more() -> None:
    router = RankBands(window=3)
    for request in (asked(64), asked(64), asked(64), asked(8), asked(8), asked(8)):
        router.route(request, ALL, Cluster())
    assert router.route(asked(8), ALL, Cluster((1, 1, 1, 0))) == 3  # all of them are rank 8's
    assert router.route(asked(64), ALL, Cluster((0, 0, 1, 1))) == 3  # of whose three last one is rank 64's


def test_the_slack_is_against_the_idlest_of_all() -> None:
    router = told(asked(8), asked(16), asked(32), asked(64), slack=2)
    assert router.route(asked(8, tokens=1), ALL, Cluster((1, 0, 0, 0))) == 0
    assert router.route(asked(8, tokens=1), ALL, Cluster((2, 0, 1, 1))) == 1
    assert router.route(asked(8, tokens=1), ALL, Cluster((9, 8, 8, 8))) == 0


def test_the_row_is_of_those_who_may_serve_it() -> None:
    router = told(asked(8), asked(64))
    some = np.array([1, 3])
    assert router.route(asked(8, tokens=1), some, Cluster()) == 1
    assert router.route(asked(64, tokens=1), some, Cluster()) == 3
    assert router.route(asked(64, tokens=1), np.array([2]), Cluster()) == 2


def test_the_base_model_stands_below_all_ranks() -> None:
    router = told(asked(0), asked(64))
    assert router.route(asked(0, tokens=1), np.array([0, 1]), Cluster()) == 0
    assert router.route(asked(64, tokens=1), np.array([0, 1]), Cluster()) == 1


# Conversations, whose turns go to where their KV is


def turn(session: str | None, rank: int = 8, tokens: int = 10) -> Request:
    return Request(0, asked(rank).adapter, 0.0, 10, tokens, session)


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
