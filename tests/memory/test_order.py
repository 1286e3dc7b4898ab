"""Order on its own: letters worth what a dictionary says, then things that time takes something from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.memory.order import SPARE, GreatestFirst, LeastFirst, Order
from simlora.policies.eviction.cost_model import CostModel
from tests.memory.trees import ByRule

BOTH_WAYS = pytest.mark.parametrize("least_first", [True, False], ids=["least first", "greatest first"])


def taken(order: Order, now_s: float = 0.0) -> Iterator:
    """The first item, one after the other, each discarded."""
    while (first := order.first(now_s)) is not None:
        order.discard(first[1])
        yield first[1]


def order_by(
    key: Callable, fade: Callable | None = None, most_fade: float = 0.0, least_first: bool = True
) -> Order:
    worth = ByRule(key) if fade is None else ByRule(key, fade, most_fade)
    return LeastFirst(worth) if least_first else GreatestFirst(worth)


def of(worth: dict[str, float]) -> Order[str]:
    """An order of the letters, put in one after the other."""
    order = order_by(worth.__getitem__)
    for thing in worth:
        order.put(thing)
    return order


def test_an_empty_order_has_no_first():
    order = order_by(len)
    assert order.first(0.0) is None
    order.discard("a")
    assert (len(order), "a" in order) == (0, False)


def test_an_item_can_be_put_in_the_place_of_another():
    order = of({"a": 1.0, "b": 1.0, "c": 1.0})
    place = order.place("a")
    order.discard("a")
    order.put("b")
    order.put_at("c", place)
    assert "".join(taken(order)) == "cb"
    order = of({"a": 1.0, "b": 1.0})
    assert order.first(0.0) == order.first(7.0) == (1.0, "a"), "evaluated, and so in the heap"
    order.put_at("b", order.place("a") - 1)
    assert "".join(taken(order)) == "ba"


@BOTH_WAYS
def test_an_item_that_goes_before_the_order_is_asked_is_never_evaluated(least_first):
    """Most KV that becomes idle is used again before anything has to leave."""
    asked: list[float] = []

    def key(thing: float) -> float:
        asked.append(thing)
        return thing

    order = order_by(key, least_first=least_first)
    for thing in (1.0, 2.0, 3.0):
        order.put(thing)
    order.discard(1.0)
    assert (len(order), set(order), asked) == (2, {2.0, 3.0}, [])
    assert order.first(0.0) is not None
    assert sorted(asked) == [2.0, 3.0]


@BOTH_WAYS
def test_a_heap_is_cleared_of_items_that_have_gone(least_first):
    """Also where each is asked about in between, as of a moment of its own."""
    order = order_by(float, lambda thing, now_s: 0.5, 0.5, least_first)
    for now in range(5000):
        order.put(now % 10)
        order.first(float(now))
        if now % 3:
            order.discard(now % 10)
        assert len(order._heap) + len(getattr(order, "_near", ())) <= 2 * len(order) + SPARE + 10


# As of a moment ----------------------------------------------------------------------------


@dataclass(eq=False)
class Thing:
    """What it costs to bring, how often it was used and when last; `put` counts the puts until its own."""

    cost_s: float
    visits: int
    used_s: float
    put: int = -1


def cost_model_order(model: CostModel, least_first: bool) -> Order[Thing]:
    return order_by(
        lambda thing: model.key(thing.cost_s, thing.visits, thing.used_s),
        lambda thing, now_s: model.fade(now_s - thing.used_s),
        model.most_fade,
        least_first,
    )


@pytest.mark.parametrize(
    "least_first, faded, other", [(True, "a", "b"), (False, "b", "a")], ids=["least first", "greatest first"]
)
def test_among_equals_as_of_now_the_item_that_was_put_first_is_first(least_first, faded, other):
    """One has lost all that time can take, the other nothing: they are worth the same, and were put in as a and b."""
    keys = {faded: 2.5, other: 1.5}
    order = order_by(keys.__getitem__, lambda thing, now_s: float(thing == faded), 1.0, least_first)
    for thing in "ab":
        order.put(thing)
    assert order.first(0.0) == (1.5, "a")
    assert "".join(taken(order)) == "ab"


def looks(model: CostModel, count: int) -> int:
    """How often worth is asked for while a hundred are taken, each at a moment of its own, of so many much alike."""
    seen = 0

    def fade(thing: Thing, now_s: float) -> float:
        nonlocal seen
        seen += 1
        return model.fade(now_s - thing.used_s)

    order = order_by(lambda thing: model.key(thing.cost_s, thing.visits, thing.used_s), fade, model.most_fade)
    for i in range(count):
        order.put(Thing(0.01, 1, 100.0 * i / count))
    order.first(100.0)
    seen = 0
    for i in range(100):
        first = order.first(100.1 + 0.1 * i)
        order.discard(first[1])
    return seen


@pytest.mark.parametrize("model", [CostModel(), CostModel("released")])
def test_the_items_that_are_looked_at_do_not_grow_with_the_items_there_are(model):
    assert looks(model, 40_000) < 3 * looks(model, 5_000) + 1000


def test_or_hardly_where_time_takes_from_all_of_them_bit_by_bit():
    """Not one in a hundred of those that lose up to half of their worth within minutes."""
    assert looks(CostModel(recency_s=600.0), 40_000) < 100 * 40_000 / 100


THINGS = st.builds(
    Thing,
    cost_s=st.sampled_from((0.0, 2**-8, 0.01, 0.0101, 0.02, 0.5)),
    visits=st.integers(0, 6),
    used_s=st.floats(0.0, 8.0) | st.sampled_from((0.0, 7.5, 8.0)),
)
NOWS_S = st.lists(st.floats(0.0, 6.0) | st.sampled_from((0.0, 0.1)), min_size=1, max_size=6)


@BOTH_WAYS
@given(
    things=st.lists(THINGS, max_size=30),
    laps_s=NOWS_S,
    recency_s=st.sampled_from((0.25, 1.0, 30.0, "never")),
    data=st.data(),
)
def test_the_order_is_that_of_worth_as_of_now(least_first, things, laps_s, recency_s, data):
    """Against sorting everything anew, at one moment after the other, while things are used, go and come back."""
    model = CostModel(recency_s=recency_s)
    order = cost_model_order(model, least_first)
    puts, now_s = 0, 8.0
    inside: list[Thing] = []

    def put(thing: Thing) -> None:
        nonlocal puts
        order.put(thing)
        thing.put = puts = puts + 1
        if thing not in inside:
            inside.append(thing)

    def worth(thing: Thing) -> float:
        key = model.key(thing.cost_s, thing.visits, thing.used_s)
        return key - model.fade(now_s - thing.used_s)

    def place(thing: Thing) -> tuple[float, int]:
        return (worth(thing) if least_first else -worth(thing)), thing.put

    for thing in things:
        put(thing)
    for lap_s in laps_s:
        now_s += lap_s
        for _ in range(data.draw(st.integers(0, len(inside)))):
            expected = min(inside, key=place)
            assert order.first(now_s) == (worth(expected), expected)
            match data.draw(st.sampled_from(("goes", "goes", "is used", "is put again", "stays"))):
                case "goes":
                    order.discard(expected)
                    inside.remove(expected)
                case "is used":
                    expected.visits += 1
                    expected.used_s = now_s
                    put(expected)
                case "is put again":
                    put(expected)
        assert len(order) == len(inside)
        away = [thing for thing in things if thing not in inside]
        for thing in data.draw(st.lists(st.sampled_from(away), unique=True) if away else st.just([])):
            put(thing)
    assert order.puts == puts
