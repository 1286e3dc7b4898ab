"""The router that goes where the adapter is, on hand-made clusters."""

from __future__ import annotations

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.policies.routing.adapter_affinity import AdapterAffinity
from tests.policies.hand import A, Cluster

ALL = np.arange(4)
FOR_A, FOR_NOBODY = Request(0, A, 0.0, 10, 10), Request(1, None, 0.0, 10, 10)


@pytest.mark.parametrize(
    "outstanding, has, candidates, chosen",
    [
        ((0, 3, 0, 0), {1}, ALL, 1),  # three more than the idlest
        ((0, 4, 0, 0), {1}, ALL, 0),  # four are too much
        ((2, 3, 3, 1), {1, 2}, ALL, 1),  # of equals the lowest
        ((2, 3, 2, 1), {1, 2}, ALL, 2),
        ((2, 3, 2, 1), set(), ALL, 3),
        ((0, 9, 7, 6), {1, 3}, np.array([1, 2, 3]), 3),  # who is no candidate does not count as the idlest
        ((0, 9, 1, 1), {0}, np.array([1, 2, 3]), 2),
    ],
)
def test_where_the_adapter_is_unless_that_has_too_much_to_do(
    outstanding: tuple[int, ...], has: set[int], candidates: np.ndarray, chosen: int
) -> None:
    view = Cluster(outstanding, at={A.id: has})
    assert AdapterAffinity(slack=4).route(FOR_A, candidates, view) == chosen


def test_the_base_model_goes_to_the_idlest() -> None:
    assert AdapterAffinity().route(FOR_NOBODY, ALL, Cluster((2, 1, 0, 3))) == 2


def test_no_slack_is_no_affinity() -> None:
    with pytest.raises(InputError, match=r"router\.slack is 0, must be greater than 0 requests"):
        AdapterAffinity(slack=0)
