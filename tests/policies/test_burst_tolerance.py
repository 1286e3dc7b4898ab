"""dLoRA's preloading: small examples by hand, and what holds for every plan."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed
from simlora.policies.placement.burst_tolerance import BurstTolerance
from tests.policies.hand import Cluster

ADAPTER_TOKENS = 10


def adapters(*tokens: int) -> tuple[Adapter, ...]:
    return tuple(Adapter(i, f"a{i}", 8, 64 * size, size) for i, size in enumerate(tokens))


def placed(
    loads_rps: tuple[float, ...] | None, pools: tuple[int, ...], count: int = 3, **arguments: object
) -> Placed:
    view = Cluster((0,) * len(pools), budgets=pools, history_rps=loads_rps)
    return BurstTolerance(**arguments).place(adapters(*[ADAPTER_TOKENS] * count), view)


def plain(part: dict[int, np.ndarray]) -> dict[int, list[int]]:
    return {id: part[id].tolist() for id in sorted(part)}


def preloads(*args: object, **arguments: object) -> dict[int, list[int]]:
    return plain(placed(*args, **arguments).preloads)


# Ninety slots are left, 9 requests each: tolerances 9/4, 9/2, 9. A goes to C's replica, where less is to come. Then
# they are 17/4, 9/2, 8; a third copy beside B would leave B 8/2, less than 17/4.
HEAVIEST_COPIED = ((4.0, 2.0, 1.0), (100,) * 3, {"request_tokens": 10}, {0: [0, 2], 1: [1], 2: [2]})
# Of requests with 20 slots, 4 fit into 90 and into 80: tolerances 1, 2, 4; A takes nothing from C, nor from B. Then
# they are 3, 2, 4: B goes to the emptiest, beside A, and takes nothing either: 3, 4, 4. A is everywhere.
MEMORY_FOR_A_PART = ((4.0, 2.0, 1.0), (100,) * 3, {"request_tokens": 20}, {0: [0, 1, 2], 1: [0, 1], 2: [2]})


@pytest.mark.parametrize(
    "loads_rps, pools, arguments, found",
    [
        HEAVIEST_COPIED,  # the heaviest is copied until that takes too much from another
        MEMORY_FOR_A_PART,  # memory for a part of a request goes to adapters
        # load counts, not the id
        ((1.0, 2.0, 4.0), (100,) * 3, {"request_tokens": 10}, {0: [2], 1: [1], 2: [0, 2]}),
        # first copies go to the emptiest: the fourth joins the third, and so on back
        (
            (6.0, 5.9, 5.8, 5.7, 5.6, 5.5),
            (100,) * 3,
            {"request_tokens": 10, "most_adapters": 2},
            {0: [0], 1: [1], 2: [2], 3: [2], 4: [1], 5: [0]},
        ),
        # then to where least is to come
        ((3.0, 2.0, 1.0), (25, 30, 100), {"request_tokens": 60}, {0: [2], 1: [2], 2: [2]}),
        # copies share the load: the next goes where a third of two requests a second is to come
        ((2.0, 1.0), (30, 50, 30), {"request_tokens": 5}, {0: [0, 1, 2], 1: [1, 2]}),
        # a copy takes a part of what the earlier copies expect: of A, of 4/s, the first expects 4/3
        ((4.0, 1.0), (30, 30, 30), {"request_tokens": 10}, {0: [0, 1, 2], 1: [0, 1]}),
        # adapters of equal load have one copy if every slot counts
        ((0.5,) * 3, (100,) * 3, {"request_tokens": 1}, {0: [0], 1: [1], 2: [2]}),
        # an adapter that was never used tolerates everything: it has its one copy last
        ((0.0, 1.0), (100, 100), {"request_tokens": 50}, {0: [1], 1: [0, 1]}),
        # without any load there is nothing to copy for
        ((0.0, 0.0), (100, 100), {"request_tokens": 50}, {0: [0], 1: [1]}),
        ((1.0,), (30, 15), {"request_tokens": 5}, {0: [0, 1]}),  # a copy leaves room for a request
        # a copy without a request beside it is of no use
        ((1.0,), (30, 15), {"request_tokens": 10}, {0: [0]}),
    ],
)
def test_the_lowest_tolerance_of_bursts_is_raised_by_copies(loads_rps, pools, arguments, found):
    assert preloads(loads_rps, pools, len(loads_rps), **arguments) == found


def test_without_a_history_all_are_alike():
    for request_tokens in (1, 7, 10, 40):
        arguments = {"pools": (100, 90), "count": 5, "request_tokens": request_tokens}
        assert preloads(None, **arguments) == preloads((2.0,) * 5, **arguments)


def test_only_replicas_that_have_an_adapter_may_serve_it_where_that_binds():
    loads_rps, pools = (4.0, 2.0, 1.0), (100,) * 3
    serves, there, _ = placed(loads_rps, pools, binding=True)
    assert plain(serves) == plain(there) == preloads(loads_rps, pools)
    assert placed(loads_rps, pools).serves == {}


def test_an_adapter_that_fits_nowhere_is_served_where_least_is_to_come():
    """And no adapter is copied further: the lowest tolerance is nothing, and stays so."""
    serves, there, _ = placed((4.0, 2.0, 1.0), (15, 15, 5), binding=True, request_tokens=1)
    assert plain(there) == {0: [0], 1: [1]}
    assert plain(serves) == {0: [0], 1: [1], 2: [2]}
    serves, there, _ = placed((4.0, 2.0, 1.0), (100, 100), binding=True, request_tokens=1, most_adapters=1)
    assert plain(there) == {0: [0], 1: [1]}
    assert plain(serves) == {0: [0], 1: [1], 2: [1]}


def extra(kind: str | None, pools: int, count: int) -> dict[int, list[int]]:
    return preloads(None, (100,) * pools, count, history=False, request_tokens=1, extra=kind)


def test_the_released_code_makes_as_many_copies_more_as_there_are_other_replicas():
    assert extra(None, 3, 3) == {0: [0], 1: [1], 2: [2]}
    assert extra("rotate", 3, 3) == {0: [0], 1: [0, 1], 2: [1, 2]}, (
        "each gets the next adapter that it has not got"
    )
    assert sorted(map(len, extra("one", 3, 3).values())) == [1, 1, 3]
    assert extra("rotate", 1, 4) == extra("one", 1, 4) == {id: [0] for id in range(4)}


class Setting(NamedTuple):
    """What a placement goes by."""

    tokens: tuple[int, ...]
    loads_rps: tuple[float, ...]
    pools: tuple[int, ...]
    request_tokens: int
    most_adapters: int | None

    def place(self) -> Placed:
        policy = BurstTolerance(True, self.request_tokens, self.most_adapters)
        view = Cluster((0,) * len(self.pools), budgets=self.pools, history_rps=self.loads_rps)
        return policy.place(adapters(*self.tokens), view)

    def free(self, at: np.ndarray) -> np.ndarray:
        """What adapters leave of each pool."""
        return np.array(self.pools) - np.array(self.tokens) @ at

    def tolerances(self, at: np.ndarray) -> list[float]:
        """By the definition, adapter by adapter."""
        capacity = at @ (self.free(at) // self.request_tokens)
        return [
            float(c / rate) if rate else float("inf")
            for c, rate in zip(capacity, self.loads_rps, strict=True)
        ]


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    count = draw(st.integers(1, 8))
    rates = st.sampled_from((0.0, 0.1, 1.0, 1.0, 2.0, 3.5, 8.0))
    return Setting(
        tuple(draw(st.lists(st.sampled_from((4, 8, 8, 32)), min_size=count, max_size=count))),
        tuple(draw(st.lists(rates, min_size=count, max_size=count))),
        tuple(draw(st.lists(st.integers(1, 200), min_size=1, max_size=5))),
        draw(st.sampled_from((1, 5, 20, 64))),
        draw(st.sampled_from((None, None, 1, 3))),
    )


def matrix(setting: Setting, part: dict[int, np.ndarray]) -> np.ndarray:
    at = np.zeros((len(setting.tokens), len(setting.pools)), dtype=np.int64)
    for id, replicas in part.items():
        at[id, replicas] = 1
    return at


@given(settings())
def test_every_adapter_is_somewhere_and_no_pool_is_overfull(setting):
    serves, there, _ = setting.place()
    assert set(serves) == set(range(len(setting.tokens)))
    at = matrix(setting, there)
    assert (setting.free(at) >= 0).all()
    assert at.sum(axis=0).max(initial=0) <= (setting.most_adapters or len(setting.tokens))
    for adapter in set(serves) - set(there):
        fits = (setting.free(at) >= setting.tokens[adapter]) & (
            at.sum(axis=0) < (setting.most_adapters or len(setting.tokens))
        )
        assert not fits.any(), "it would have fitted"
        assert len(serves[adapter]) == 1


@given(settings())
def test_one_more_copy_of_the_lowest_would_lower_the_lowest_tolerance(setting):
    at = matrix(setting, setting.place().preloads)
    tolerances = setting.tolerances(at)
    lowest = min(tolerances)
    # Of equals the one with the heavier load is asked, then the one with the lower id.
    asked = min(range(len(tolerances)), key=lambda a: (tolerances[a], -setting.loads_rps[a]))
    if lowest == float("inf"):
        assert (at.sum(axis=1) <= 1).all()
        return
    for replica in range(len(setting.pools)):
        more = at.copy()
        more[asked, replica] = 1
        if at[asked, replica] or (setting.free(more) < setting.request_tokens)[replica]:
            continue
        if setting.most_adapters is not None and more[:, replica].sum() > setting.most_adapters:
            continue
        assert min(setting.tolerances(more)) < lowest
