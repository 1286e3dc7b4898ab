"""Functions of arrays that are the same to the bit on every CPU."""

import math

import numpy as np
import pytest

from simlora.core import libm


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sin", "cos"])
def test_every_number_is_what_the_c_library_says(name):
    values = np.random.default_rng(0).exponential(size=(40, 50))
    found = getattr(libm, name)(values)
    assert found.shape == values.shape
    assert found.tolist() == [[getattr(math, name)(value) for value in row] for row in values.tolist()]


def test_what_is_too_large_is_infinite():
    assert libm.exp([0.0, 1e4, -1e4]).tolist() == [1.0, math.inf, 0.0]
    assert libm.log1p([-1.0, 0.0]).tolist() == [-math.inf, 0.0]
    assert libm.power([2.0, 1e300, 0.0], 2).tolist() == [4.0, math.inf, 0.0]
    assert libm.power([0.0, 4.0], -0.5).tolist() == [math.inf, 0.5]
    assert libm.power([], 0.3).shape == (0,)
