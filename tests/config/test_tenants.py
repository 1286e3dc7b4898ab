"""Classes of tenants: whose adapters are whose, and which targets go before which."""

import numpy as np
import pandas as pd
import pytest

from simlora.config.tenants import slo_targets, ttft_targets_s, with_classes
from simlora.core.errors import InputError
from simlora.core.trace import AdapterSpec
from simlora.metrics.slo import SloTargets, attainment, met
from tests.config.setups import prepared

NAMES = ("acme-1", "acme-2", "bravo-1", "bravo-2", "bravo-3")
ADAPTERS = tuple(AdapterSpec(name, 8) for name in NAMES)
GENERAL = SloTargets(ttft_s=6.0, tpot_s=0.1)


def classes(*listed: dict) -> dict[str, set[str]]:
    found = with_classes(GENERAL, list(listed), ADAPTERS, 0).classes
    return {each.name: set(each.adapters) for each in found}


def test_a_pattern_names_adapters_and_the_first_class_that_does_has_them():
    gold, rest = {"name": "gold", "adapters": "acme-*"}, {"name": "rest", "adapters": ["*-1", "bravo-2"]}
    assert classes(gold, rest) == {"gold": {"acme-1", "acme-2"}, "rest": {"bravo-1", "bravo-2"}}
    gold = {"name": "gold", "adapters": [" acme-*", "bravo-3 "]}
    assert classes(gold, rest)["gold"] == {"acme-1", "acme-2", "bravo-3"}, "white space does not count"
    gold = {"name": "gold", "adapters": "acme-* "}
    assert classes(rest, gold) == {"rest": {"acme-1", "bravo-1", "bravo-2"}, "gold": {"acme-2"}}


def test_a_share_is_drawn_from_those_that_no_pattern_names():
    found = classes({"name": "free", "share": 0.6}, {"name": "gold", "adapters": "acme-*"})
    assert found["free"] == {"bravo-1", "bravo-2", "bravo-3"}
    some = [
        with_classes(GENERAL, [{"name": "free", "share": 0.4}], ADAPTERS, seed).classes[0].adapters
        for seed in range(9)
    ]
    assert {len(each) for each in some} == {2}
    assert len(set(some)) > 1, "the seed draws them"


def test_two_shares_have_no_adapter_in_common():
    found = classes({"name": "a", "share": 0.4}, {"name": "b", "share": 0.6})
    assert not found["a"] & found["b"]
    assert found["a"] | found["b"] == set(NAMES)


def test_a_class_has_the_general_targets_but_those_of_its_own():
    (gold,) = with_classes(GENERAL, [{"name": "g", "adapters": "a*", "ttft_s": 1}], ADAPTERS, 0).classes
    assert gold.targets.set == {"ttft_s": 1.0, "tpot_s": 0.1}
    (free,) = with_classes(GENERAL, [{"name": "f", "adapters": "a*", "tpot_s": None}], ADAPTERS, 0).classes
    assert free.targets.set == {"ttft_s": 6.0}


def test_a_request_meets_what_its_tenant_was_promised():
    targets = with_classes(
        SloTargets(ttft_s=6.0), [{"name": "gold", "adapters": "acme-*", "ttft_s": 1}], ADAPTERS, 0
    )
    requests = pd.DataFrame(
        {
            "adapter": ["acme-1", "acme-1", "bravo-1", "bravo-1", None],
            "status": ["finished"] * 5,
            "ttft_s": [0.5, 2.0, 2.0, 7.0, 2.0],
        }
    )
    assert met(requests, targets).tolist() == [True, False, True, False, True]
    assert attainment(requests, targets) == pytest.approx(3 / 5)


def test_when_first_tokens_are_due_by_adapter_and_for_the_base_model():
    targets = with_classes(
        slo_targets({"ttft_s": 6}),
        [
            {"name": "gold", "adapters": "acme-*", "ttft_s": 1},
            {"name": "batch", "adapters": "*-3", "ttft_s": None},
        ],
        ADAPTERS,
        0,
    )
    assert ttft_targets_s(targets, ADAPTERS).tolist() == [1.0, 1.0, 6.0, 6.0, np.inf, 6.0]
    assert ttft_targets_s(SloTargets(), ADAPTERS).tolist() == [np.inf] * 6


@pytest.mark.parametrize(
    "listed, message",
    [
        ("gold", "slo.classes is 'gold', must be a list, such as"),
        ([{"adapters": "a*"}], "slo.classes has {'adapters': 'a*'}, must have a name and either adapters"),
        ([{"name": "g", "share": 0}], "slo.classes: share of g is 0, must be greater than 0 and at most 1"),
        ([{"name": "g", "share": 1, "ttft": 1}], "slo.classes: g has a key ttft, which there is not; "),
        ([{"name": "g", "share": 1, "ttft_s": -1}], "slo.classes: g.ttft_s is -1, must be greater than 0"),
        ([{"name": "g", "adapters": "x*"}], "slo.classes: g has none of the 5 adapters, which are called"),
        ([{"name": "g", "share": 0.5}] * 2, "slo.classes has two classes of one name among g, g"),
        ([{"name": "g", "adapters": 7}], "slo.classes: adapters of g is 7, must be a pattern"),
    ],
)
def test_what_is_no_class_is_said_plainly(listed, message):
    with pytest.raises(InputError) as error:
        with_classes(GENERAL, listed, ADAPTERS, 0)
    assert str(error.value).startswith(message)


def test_a_configuration_has_them():
    setup = prepared("slo.classes=[{name: gold, share: 0.2, ttft_s: 1}]")
    (gold,) = setup.targets.classes
    assert len(gold.adapters) == 2
    due_s = setup.scenario.ttft_targets_s
    assert sorted(due_s.tolist()) == [1.0] * 2 + [6.0] * 9
