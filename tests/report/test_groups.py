"""Figures of groups of requests are those that pandas finds."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.report.groups import Groups

VALUES = st.lists(st.tuples(st.integers(0, 3), st.just(np.nan) | st.floats(-1e6, 1e6)), max_size=30)


@given(VALUES)
def test_figures_are_those_of_the_values_of_each_group(pairs):
    frame = pd.DataFrame(pairs, columns=["group", "value"]).astype({"group": np.int64, "value": np.float64})
    groups = Groups(frame["group"].to_numpy(), 4)
    values = frame["value"].to_numpy()
    values.flags.writeable = False  # as a column of a DataFrame is
    own = frame.groupby("group")["value"]
    for found, wanted in (
        (groups.sizes, own.size()),
        (groups.total(values), own.sum()),
        (groups.mean(values), own.mean()),
        *((groups.quantile(values, share), own.quantile(share)) for share in (0, 0.3, 0.95, 1)),
    ):
        assert found[wanted.index] == pytest.approx(wanted.to_numpy(), rel=1e-9, abs=1e-6, nan_ok=True)
    nothing = groups.sizes == 0
    assert np.isnan(groups.quantile(values, 0.5)[nothing]).all()
    assert np.isnan(groups.mean(values)[nothing]).all()
