"""The routers that keep requests of like rank, and turns of a conversation, together, on hand-made clusters."""

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


def told(tokens_of: dict[int, int], slack: float) -> RankBands:
    """Return a router that has seen a request for so many tokens of each rank."""
    router = RankBands(slack)
    for rank, tokens in tokens_of.items():
        router.route(asked(rank, tokens), ALL, Cluster())
    return router


IDLE, SOME = (0, 0, 0, 0), np.array([1, 3])
EQUAL = {8: 10, 16: 10, 32: 10, 64: 10}


@pytest.mark.parametrize(
    "tokens_of, rank, outstanding, candidates, chosen",
    [
        *((EQUAL, rank, IDLE, ALL, chosen) for chosen, rank in enumerate(EQUAL)),  # a replica each
        ({8: 29, 64: 10}, 8, (1, 2, 0, 0), ALL, 2),  # a band as wide as its share: three of four, the idlest
        ({8: 29, 64: 10}, 64, (0, 0, 0, 1), ALL, 3),
        ({8: 1000}, 64, (0, 0, 0, 1), ALL, 3),  # a rank that was never asked for has one all the same
        ({64: 1000}, 8, (1, 0, 0, 0), ALL, 0),
        (EQUAL, 8, (1, 0, 0, 0), ALL, 0),  # within the slack
        (EQUAL, 8, (2, 0, 1, 1), ALL, 1),
        (EQUAL, 8, (9, 8, 8, 8), ALL, 0),  # which is against the idlest of all
        ({8: 10, 64: 10}, 8, IDLE, SOME, 1),  # the row is of replicas that may serve it
        ({8: 10, 64: 10}, 64, IDLE, SOME, 3),
        ({8: 10, 64: 10}, 64, IDLE, np.array([2]), 2),
        ({0: 10, 64: 10}, 0, IDLE, ALL[:2], 0),  # the base model stands below all ranks
        ({0: 10, 64: 10}, 64, IDLE, ALL[:2], 1),
    ],
)
def test_ranks_stand_in_a_row_each_as_wide_as_its_share_of_the_tokens(
    tokens_of, rank, outstanding, candidates, chosen
):
    assert told(tokens_of, slack=2).route(asked(rank, tokens=1), candidates, Cluster(outstanding)) == chosen


def crowded(requests: dict[int, list[Request]]) -> Cluster:
    return Cluster(requests={replica: (own, []) for replica, own in requests.items()})


def test_a_replica_with_too_much_to_do_is_left_out_for_one_that_is_as_slow_already():
    router = told(EQUAL, slack=2)
    view = crowded({1: [asked(16), asked(16)], 3: [asked(64)]})
    assert router.route(asked(16, tokens=1), ALL, view) == 3  # whose rank is higher, though 0 and 2 are idle
    view = crowded({1: [asked(16), asked(16)], 0: [asked(8)]})
    assert router.route(asked(16, tokens=1), ALL, view) == 2  # none has a higher one: the idlest


def test_what_was_asked_long_ago_counts_no_more():
    router = RankBands(window=3)
    for request in (asked(64), asked(64), asked(64), asked(8), asked(8), asked(8)):
        router.route(request, ALL, Cluster())
    assert router.route(asked(8), ALL, Cluster((1, 1, 1, 0))) == 3  # all of them are rank 8's
    assert router.route(asked(64), ALL, Cluster((0, 0, 1, 1))) == 3  # of whose three last one is rank 64's


# Conversations, whose turns go to where their KV is


def turn(session: str | None, rank: int = 8, tokens: int = 10) -> Request:
    return Request(0, asked(rank).adapter, 0.0, 10, tokens, session)


def test_a_turn_goes_where_the_one_before_went_unless_that_has_too_much_to_do_or_is_gone():
    router = SessionBands(slack=2, session_slack=4)
    assert router.route(turn("a"), ALL, Cluster((1, 1, 0, 1))) == 2
    assert router.route(turn("a"), ALL, Cluster((0, 0, 3, 0))) == 2
    assert router.route(turn("b"), ALL, Cluster((0, 1, 1, 1))) == 0
    assert router.route(turn("a"), ALL, Cluster((1, 0, 4, 1))) == 1
    assert router.route(turn("a"), ALL, Cluster((0, 1, 0, 0))) == 1, "it stays there"
    assert router.route(turn("a"), np.array([0, 3]), Cluster((1, 0, 0, 0))) == 3


def test_the_session_used_longest_ago_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(session_bands, "MOST_SESSIONS", 2)
    router, at = SessionBands(slack=2, session_slack=9), Cluster((0, 1, 1, 1))
    for session, idlest in (("a", 1), ("b", 2)):
        router.route(turn(session), ALL, Cluster([int(i != idlest) for i in range(4)]))
    assert router.route(turn("a"), ALL, at) == 1
    assert router.route(turn("c"), ALL, at) == 0
    assert router.route(turn("a"), ALL, at) == 1, "it was used after b"
    assert router.route(turn("b"), ALL, at) == 0, "its replica is not known"


def test_without_sessions_it_is_rank_bands():
    plain, ours, rng = RankBands(2), SessionBands(2), np.random.default_rng(0)
    for rank in rng.choice([8, 16, 32, 64], size=50).tolist():
        view = Cluster(rng.integers(0, 4, size=4).tolist())
        assert plain.route(turn(None, rank), ALL, view) == ours.route(turn(None, rank), ALL, view)


def test_turns_that_come_back_count_for_the_width_of_their_band():
    router = SessionBands(slack=4)
    router.route(turn("a", 64, tokens=1), ALL, Cluster())
    for _ in range(9):
        router.route(turn("a", 64, tokens=10), ALL, Cluster())
    router.route(turn(None, 8, tokens=20), ALL, Cluster())
    assert (
        router.route(turn(None, 64, tokens=1), ALL, Cluster((0, 0, 1, 1))) == 1
    )  # all but the first are rank 64's
