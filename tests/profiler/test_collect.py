"""Samples are kept, a plan goes on where it was interrupted, and every point really runs on this machine's CPU."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.bench import TIMED, Bench
from profiler.collect import Samples, collect
from profiler.device import choose
from profiler.points import Plan, Point
from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape

TINY = ModelShape("tiny", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=50)
A, B, C = (Point("decode", requests=n, tokens=8) for n in (1, 2, 3))
PLAN = Plan("made up", rounds=2, points=(A, B, C))
THIS = {"device": "this one"}


class Timer:
    """Says that a point takes as many milliseconds as it has requests; gives up after so many points."""

    def __init__(self, gives_up_after: int = 1000) -> None:
        self.asked: list[Point] = []
        self.gives_up_after = gives_up_after

    def __call__(self, point: Point) -> Sequence[float]:
        if len(self.asked) == self.gives_up_after:
            raise KeyboardInterrupt
        self.asked.append(point)
        return [1e-3 * point.requests, 2e-3 * point.requests, 9e-3 * point.requests]


def run(folder: Path, timer: Timer, plan: Plan = PLAN, seed: int = 0) -> Samples:
    samples = Samples(folder, THIS)
    collect(plan, timer, samples, seed, lambda done, total: None)
    return samples


def test_every_point_is_timed_once_a_round_and_its_median_counts(tmp_path):
    timer = Timer()
    found = run(tmp_path, timer).by_point().set_index("requests")
    assert sorted(timer.asked) == sorted(PLAN.points * 2)
    assert found.seconds.to_dict() == pytest.approx({1: 2e-3, 2: 4e-3, 3: 6e-3})
    assert (found.samples == 6).all()


def test_rounds_have_orders_of_their_own_which_the_seed_fixes(tmp_path):
    plan = Plan("longer", 2, tuple(Point("decode", requests=n, tokens=8) for n in range(1, 20)))
    first, again, other = Timer(), Timer(), Timer()
    run(tmp_path / "first", first, plan)
    run(tmp_path / "again", again, plan)
    run(tmp_path / "other", other, plan, seed=1)
    assert first.asked == again.asked
    assert first.asked != other.asked
    assert first.asked[:19] != first.asked[19:]


def test_an_interrupt_keeps_what_was_measured_and_the_next_run_measures_the_rest(tmp_path):
    early, late, idle = Timer(gives_up_after=4), Timer(), Timer()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, early)
    samples = run(tmp_path, late)
    assert len(early.asked) + len(late.asked) == 6
    assert (samples.by_point().samples == 6).all()
    run(tmp_path, idle)
    assert idle.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["measurements.parquet"], "no draft is left"


def test_samples_of_another_machine_are_not_mixed_in(tmp_path):
    run(tmp_path, Timer())
    with pytest.raises(
        InputError, match=r"measurements\.parquet was measured on .*this one.*name another folder"
    ):
        Samples(tmp_path, {"device": "that one"})


def test_a_file_that_is_none_of_ours_is_named(tmp_path):
    (tmp_path / "measurements.parquet").write_text("not a table")
    with pytest.raises(InputError, match=r"measurements\.parquet is not a file of simlora-profile"):
        Samples(tmp_path, THIS)


POINTS = (
    Point("prefill", requests=1, tokens=9),
    Point("prefill", "bgmv", 2, 9, (4, 8)),
    Point("prefill", "mbgmv", 3, 5, (4,)),
    Point("decode", requests=4, tokens=17),
    Point("decode", "bgmv", 3, 17, (4, 8)),
    Point("decode", "mbgmv", 4, 17, (4, 4, 8)),
    Point("adapter_load", "pageable", ranks=(8,)),
    Point("adapter_load", "device", ranks=(8,)),
    Point("merge", ranks=(8,)),
    Point("cpu_lora", tokens=16, ranks=(8,), cores=1),
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(choose("cpu", threads=1), TINY, POINTS)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.section} {point.kernel}")
def test_every_kind_of_point_is_timed(bench, point):
    found = bench.samples_s(point)
    assert len(found) == TIMED
    assert min(found) > 0.0


def test_merging_leaves_the_weights_as_they_were(bench):
    before = [layer.qkv.clone() for layer in bench.engine.model.layers]
    bench.samples_s(Point("merge", ranks=(8,)))
    for layer, was in zip(bench.engine.model.layers, before, strict=True):
        assert (layer.qkv - was).abs().max() < 1e-5


def test_a_model_that_does_not_fit_is_named():
    huge = ModelShape(
        "huge", layers=8, hidden=1 << 20, heads=4, kv_heads=4, head_dim=16, intermediate=96, vocab=50
    )
    with pytest.raises(InputError, match=r"huge with .* does not fit the memory of"):
        Bench(choose("cpu", threads=1), huge, POINTS)


def test_handing_work_to_another_process_is_timed_and_needs_no_model(monkeypatch):
    monkeypatch.setattr("profiler.host.ROUND_TRIPS", 5)
    huge = ModelShape("huge", 1000, 65536, 512, 512, 128, 10**6, 10**6)
    bench = Bench(choose("cpu", threads=1), huge, [Point("cpu_sync")])
    found = bench.samples_s(Point("cpu_sync"))
    assert len(found) == TIMED
    assert all(0.0 < seconds < 1.0 for seconds in found)
