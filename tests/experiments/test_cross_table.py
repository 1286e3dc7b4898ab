"""The cross-table: one world for all, capacities seed by seed, which system wins and which slot does it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

import simlora
from experiments.cross_table import __main__ as command
from experiments.cross_table import capacities
from experiments.cross_table import world as worlds
from experiments.cross_table.bound import known_before, least_s
from experiments.cross_table.capacities import (
    NEAR,
    PRECISION,
    STEP,
    Carried,
    Reading,
    Span,
    geometric,
    search,
    span,
    times,
)
from experiments.cross_table.compared import SHARE, Row, compare, with_figures
from experiments.cross_table.page import why
from experiments.cross_table.slots import OF_REPLICAS, POLICIES, exchanges, parts
from experiments.cross_table.tuning import score, told, tuned
from experiments.cross_table.world import TRAINING, System, Workload, World
from simlora.api.preparing import composed, ready
from simlora.core.trace import AdapterSpec, Trace
from tests.experiments.small_world import slora

REAL = worlds.read()


def two(world: World) -> list[System]:
    """Return a system and one with a batch of eight."""
    return [world.systems["slora"], world.systems["eager"]]


def config_of(world: World, system: System, workload: Workload, rate_rps: float = 1) -> DictConfig:
    return composed([*world.overrides(system, workload), f"{workload.key}={rate_rps}"])[0]


# The real world


@pytest.mark.parametrize(
    ("system", "workload"),
    [
        *((system, "shifting") for system in REAL.systems),
        *(("slora", workload) for workload in REAL.workloads if workload != "shifting"),
    ],
)
def test_every_system_and_every_workload_is_of_the_same_world(system: str, workload: str) -> None:
    config, choices = composed(
        [*REAL.overrides(REAL.systems[system], REAL.workloads[workload]), REAL.workloads[workload].at_start]
    )
    assert (config.gpu.name, config.model.name, config.replica.tp) == ("a100_80g", "llama_2_7b", 1)
    assert list(config.replica.target_modules) == ["q", "k", "v", "o"]
    assert config.kernel._target_.endswith(".Mbgmv")
    assert (config.slo.ttft_s, config.slo.latency_per_output_token_s) == (1, None)
    if workload == "shifting":
        config.workload.requests = 10
        if system == "loraserve":
            config.placement.operating_points = {8: 5000, 128: 4000}
        ready(config, choices)  # is not refused


# What published systems leave free


def test_what_a_system_leaves_free_has_the_value_that_carries_most_in_training(
    world: World, made_up: list[System]
) -> None:
    """A way ends where less is carried, and one key is tuned after the other."""
    base, eager = two(world)
    keys = ("replica.max_num_seqs", "replica.max_wait_tokens")
    free = replace(eager, free={keys[0]: [64, 4, 2, 1], keys[1]: [5]})
    level = replace(base, free={keys[0]: [1000, 999]})
    plain = replace(eager, name="plain")
    best, as_before, as_is = tuned(world, [free, level, plain], world.of(TRAINING), jobs=1)
    assert best.system == replace(eager, settings={**eager.settings, keys[0]: 64})
    assert told(best.system, free) == "replica.max_num_seqs 64"
    assert as_before.system == base, "its own value stays where others carry no more"
    assert (as_is.system, told(as_is.system, plain)) == (plain, "")
    assert best.score == score(best.carried.values()) > as_is.score
    tried = {tuple(map(one.settings.get, keys)) for one in made_up}
    # Of eager's, 2 and 1 lie behind 4, which is worse; then it waits with 64. S-LoRA has 1000 in the world.
    assert tried == {(8, 0), (64, 0), (4, 0), (64, 5), (None, None), (999, None)}


# Capacities


def test_a_capacity_is_what_the_command_finds(world: World) -> None:
    """Other seeds are searched from what the first found, and what is nearly known from there."""
    system, workload = world.systems["slora"], world.workloads["short"]

    def command_finds(seed: int, **near: float) -> Any:
        overrides = [*world.overrides(system, workload), f"seed={seed}"]
        return simlora.capacity(overrides, seeds=1, precision=PRECISION, longest=1, jobs=1, **near)

    first, other = search(world, [(system, workload)], (5, 0), jobs=1)["slora", "short"].values()
    assert first.met_rps == command_finds(5, start=24, step=STEP).value > 1
    assert first.met_rps < first.missed_rps <= first.met_rps * (1 + PRECISION)
    assert first.use.given_up_share == 0
    expected = command_finds(0, start=first.met_rps, step=NEAR)
    assert other.met_rps == expected.value
    assert len(expected.runs) <= 6
    near = {("slora", "short"): 30.0, ("lcfs", "short"): 3.0}
    known = search(world, [(system, workload)], [0], 1, near)["slora", "short"][0]
    expected = command_finds(0, start=30, step=NEAR)
    assert known.rate == Reading(expected.value, expected.value, expected.seeds["beyond"].iloc[0])


def test_what_is_found_does_not_depend_on_what_else_is_asked_nor_on_jobs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = world.workloads["short"].shortened(0.25)
    asked = [(system, workload) for system in two(world)]
    alone = search(world, asked[1:], (0, 1), jobs=1)
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "other"))
    together = search(world, asked, (0, 1), jobs=2)
    assert len(together) == len(asked)
    assert together.items() >= alone.items()


def test_a_system_that_simlora_refuses_says_why_and_carries_nothing(world: World) -> None:
    broken = slora("broken", {"eviction": "cost_model"})
    found = search(world, [(broken, world.workloads["short"])], [0], jobs=1)["broken", "short"][0]
    assert found.rate == Reading(0, 0, 0)
    assert "prefix_caching" in found.refused


def test_a_span_is_geometric_and_nothing_if_a_seed_has_nothing() -> None:
    assert exactly(2.0, 8.0).mean == pytest.approx(4.0)
    assert exactly(3.0, 3.0, 3.0) == pytest.approx((3.0, 3.0, 3.0))
    low, high = exactly(2.0, 8.0)[1:]
    assert low < 4.0 < high
    assert math.isnan(exactly(5.0).low)
    assert exactly(5.0, 0.0).mean == 0.0
    assert span([]).mean == 0.0
    assert geometric([2.0, 0.0]) == 0.0


def exactly(*values: float) -> Span:
    return span(Reading(value, value, value) for value in values)


def test_an_interval_takes_in_what_lies_between_met_and_missed() -> None:
    assert span([Reading(10.0, 10.0, 10.1)] * 5) == pytest.approx((10.0, 10.0, 10.1))


def test_a_ratio_is_taken_seed_by_seed_so_that_what_both_share_cancels() -> None:
    own = {0: Carried(10.0, 10.1), 1: Carried(1000.0, 1010.0)}
    found = times(own, {0: Carried(5.0, 5.05), 1: Carried(500.0, 505.0)})
    assert found[0] == pytest.approx((2.0, 10.0 / 5.05, 10.1 / 5.0))
    assert span(found.values()) == pytest.approx((2.0, 2.0 / 1.01, 2.0 * 1.01))
    nothing, some = {0: Carried(0.0, 0.5)}, {0: Carried(1.0, 1.1)}
    assert times(nothing, some)[0].value == 0.0
    assert span(times(some, nothing).values()).mean == math.inf  # more than nothing


# The table


@pytest.mark.usefixtures("coarse")
def test_rows_rank_systems_by_what_they_carry_and_compare_them_at_one_rate(world: World) -> None:
    """The best one is near the bound: runs of some seconds are served for seconds after their last arrival."""
    rows = compare(world, two(world), list(world.workloads.values()), range(2), jobs=1)
    assert all(not cell.figures for row in rows for cell in row.cells)
    for row in with_figures(world, rows, range(2), jobs=1):
        means = [cell.capacity.mean for cell in row.cells]
        assert means == sorted(means, reverse=True)
        assert row.rate_rps == pytest.approx(SHARE * means[0], rel=0.005)
        for one in times(row.best.carried, row.best.carried).values():
            assert 0 < one.value - one.least < capacities.PRECISION
            assert 0 < one.most - one.value < capacities.PRECISION
        mean, low, high = row.against_best(row.best)
        assert low < mean == 1.0 < high
        assert row.best.figures["slo.attainment"].mean >= 0.95
        assert all(0 < cell.use.hbm_share < cell.use.gpu_share <= 1 for cell in row.cells)
        assert all(0 < cell.use.link_share < 1 for cell in row.cells)
        assert row.cells[-1].system.name == "eager"  # eight at a time
        assert row.cells[-1].capacity.mean < row.rate_rps
        assert not row.cells[-1].figures, "past its capacity a mean tells how long the run was"
        assert row.level == [row.best]
        assert 0.5 < row.best.capacity.mean / row.bound.served_rps < 1.1
        assert row.bound.gpu_rps < row.bound.cheapest_rps
        assert row.bound.link_rps > row.bound.gpu_rps  # eight adapters, each loaded once
    short, long = rows
    assert short.best.capacity.mean > long.best.capacity.mean
    assert_dollars_are_the_rent_over_the_tokens(world, short)


def assert_dollars_are_the_rent_over_the_tokens(world: World, row: Row) -> None:
    cell = row.best
    rent_usd = config_of(world, cell.system, row.workload).gpu.usd_per_hour
    tokens = 35.0  # 8 to 63, all alike, 200 of them
    million_an_hour = cell.carried[0].met_rps * tokens * 3600 / 1e6
    assert cell.use.usd_per_million == pytest.approx(rent_usd / million_an_hour, rel=0.1)


# The bound


def test_no_run_takes_less_gpu_time_than_the_bound_says(world: World) -> None:
    workload = world.workloads["long"].shortened(0.5)
    for system in world.systems.values():
        overrides = [*world.overrides(system, workload), f"{workload.key}=2"]
        summary = simlora.simulate(overrides).summary
        busy_s = summary["replicas"][0]["busy_share"] * summary["makespan_s"]
        assert least_s(ready(*composed(overrides)).scenario).sum() < busy_s


def test_a_token_that_was_there_before_in_its_session_need_not_be_computed() -> None:
    answers = np.full(4, 5)
    trace = Trace(
        arrival_s=np.arange(4.0),
        adapter=np.zeros(4, dtype=np.int64),
        prompt_tokens=np.array([10, 20, 30, 5]),
        output_tokens=answers,
        max_output_tokens=answers,
        adapters=(AdapterSpec("a", 8),),
        session=["x", "y", "x", None],
    )
    assert known_before(trace).tolist() == [0, 0, 15, 0]
    assert known_before(replace(trace, session=None)).tolist() == [0, 0, 0, 0]


# Slots


def test_slots_are_exchanged_one_at_a_time(world: World) -> None:
    base, eager = two(world)
    workload = world.workloads["short"]
    found = {one.slot: one for one in exchanges(world, eager, base, workload)}
    assert found.keys() == {"loader", "admission", "batch"}
    loader, batch = found["loader"], found["batch"]
    assert (loader.had, loader.has) == ("asynchronous", "blocking")
    assert (batch.had, batch.has) == ("max_num_seqs 8", "max_num_seqs 1000")
    config, choices = composed([*world.overrides(loader.system, workload), "workload.arrivals.rate_rps=1"])
    assert choices["loader"] == "blocking"
    assert (config.replica.max_wait_tokens, config.replica.max_num_seqs) == (0, 8)
    assert exchanges(world, base, base, workload) == []


@pytest.mark.parametrize("system", REAL.systems.values(), ids=REAL.systems)
def test_slots_are_all_that_systems_differ_in(system: System) -> None:
    mine, plain = (
        dict(flat(config_of(REAL, one, REAL.workloads["shifting"])))
        for one in (system, REAL.systems["slora"])
    )
    differing = {key for key in mine.keys() | plain.keys() if mine.get(key) != plain.get(key)}
    known = {key for keys in OF_REPLICAS.values() for key in keys}
    others = {key for key in differing - known if key.partition(".")[0] not in POLICIES}
    assert others <= {"engine", "kernel._target_"}


def flat(tree: DictConfig, place: str = "") -> Iterator[tuple[str, object]]:
    for key in tree:
        value = OmegaConf.select(tree, str(key))
        if isinstance(value, DictConfig):
            yield from flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


@pytest.mark.usefixtures("made_up")
def test_why_a_system_is_behind_is_the_slot_that_holds_it_back(world: World) -> None:
    systems = [world.systems["eager"]]
    (row,) = compare(world, systems, [world.workloads["short"]], range(2), jobs=1)
    swaps = exchanges(world, row.best.system, world.systems["slora"], row.workload)
    (found,) = parts(world, [(row, row.best)], [swaps], range(2), jobs=1)
    assert [part.kept.mean for part in found] == sorted(part.kept.mean for part in found)
    assert found[-1].exchange.slot == "batch"
    assert found[-1].kept.mean > 1.5  # a batch of eight is what it suffers from
    assert "batch (max_num_seqs 8 for max_num_seqs 1000)" in why(found)


# The command


def run(monkeypatch: pytest.MonkeyPatch, world: World, *arguments: str) -> int:
    monkeypatch.setattr(command, "read", lambda: world)
    return command.main([*arguments, "--jobs", "1"])


@pytest.mark.usefixtures("made_up")
def test_the_command_writes_page_and_picture_and_the_same_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, world, "--seeds", "2", "--docs", str(tmp_path)) == 0
    page = (tmp_path / "cross_table.md").read_text()
    assert (tmp_path / "figures" / "cross_table" / "capacity.png").exists()
    assert "](figures/cross_table/capacity.png)" in page
    assert page.count("\n| newest first") == len(world.workloads)
    assert "nan" not in page
    assert run(monkeypatch, world, "--seeds", "2", "--docs", str(tmp_path)) == 0
    assert (tmp_path / "cross_table.md").read_text() == page


@pytest.mark.usefixtures("made_up")
def test_a_part_of_the_table_is_printed_and_not_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(command, "SEEDS", 1)
    assert run(monkeypatch, world, "--workload", "long", "--system", "lcfs") == 0
    assert run(monkeypatch, world, "--seeds", "2") == 0
    assert not (tmp_path / "docs").exists()
    assert "Longer ones" in capsys.readouterr().out
