"""The picture of a trace draws what there is, and says what there is not."""

import numpy as np
import pytest

from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.report.traces import BARS, draw_trace


def trace(n=200, adapters=5, alone=False):
    rng = np.random.default_rng(1)
    adapter = np.full(n, BASE_MODEL) if alone else rng.integers(0, adapters, n)
    tokens = rng.integers(1, 1000, n)
    return Trace(
        arrival_s=np.sort(rng.random(n) * 1000),
        adapter=adapter.astype(np.int64),
        prompt_tokens=tokens,
        output_tokens=tokens[::-1].copy(),
        max_output_tokens=tokens[::-1].copy(),
        adapters=() if alone else tuple(AdapterSpec(f"a{i}", 8) for i in range(adapters)),
    )


def panels(*arguments):
    picture = draw_trace(*arguments)
    picture.draw_without_rendering()  # labels, limits and scales agree with each other
    return {ax.get_title(): ax for ax in picture.axes}


def test_there_are_six_panels_of_all_requests():
    reuse = {"these adapters": 0.25, "one adapter for all": 0.4}
    found = panels(trace(), "title", {1.0: 1.5, 10.0: 3.0}, reuse)
    assert list(found) == ["Rate", "Gaps between arrivals", "Burstiness", "Lengths", "Adapters", "Reuse"]
    stairs = found["Rate"].patches[0].get_data()
    assert (stairs.values * np.diff(stairs.edges)).sum() * 60 == pytest.approx(200)  # minutes on the axis
    for line in found["Lengths"].lines:
        assert (line.get_ydata()[0], line.get_ydata()[-1]) == (0, 1)
    assert [bar.get_width() for bar in found["Reuse"].patches] == [25, 40]
    assert [text.get_text() for text in found["Reuse"].texts] == ["25 %", "40 %"]
    assert len(found["Adapters"].patches) == 5
    assert sum(bar.get_height() for bar in found["Adapters"].patches) == 200
    many = panels(trace(adapters=BARS + 50), "title", {}, {})["Adapters"]
    assert (len(many.patches), len(many.lines)) == (0, 1), "many adapters are a line"


def test_what_there_is_not_is_said():
    found = panels(trace(alone=True), "title", {}, {})
    words = {title: [text.get_text() for text in ax.texts] for title, ax in found.items()}
    assert words["Burstiness"] == ["too short to tell"]
    assert words["Adapters"] == ["the base model alone"]
    assert words["Reuse"] == ["neither sessions nor hashes"]


@pytest.mark.parametrize("n", [1, 2])
def test_a_few_requests_are_enough(n):
    assert len(panels(trace(n), "$x_1$ <b>", {}, {})) == 6
