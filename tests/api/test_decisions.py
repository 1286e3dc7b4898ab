"""What dLoRA merged, and whom it moved, in the results of a run."""

from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

import simlora
from simlora.api.timed import Timed
from simlora.policies.migration.base import Migration, Plan

mpl.use("agg")

MERGING = ("system=dlora", "workload=functions", "workload.stride=32")
MOVING = (
    "system=dlora_released",
    "cluster.replicas=8",
    "workload=functions",
    "workload.adapters=32",
    "workload.stride=1",
    "workload.rate_rps=20",
    "workload.duration_s=60",
)
UNSOLVED = (*MOVING, "migration.solver=highs", "migration.most_nodes=0")
COLUMNS = ["time_s", "replica", "name", "adapter", "value"]


@pytest.fixture(scope="module")
def merging() -> simlora.Result:
    return simlora.simulate(MERGING)


@pytest.fixture(scope="module")
def moving() -> simlora.Result:
    return simlora.simulate(MOVING)


@pytest.fixture(scope="module")
def unsolved() -> simlora.Result:
    return simlora.simulate(UNSOLVED)


def test_every_switch_says_which_adapter_is_merged_from_then_on(merging):
    merged = merging.decisions[merging.decisions["name"] == "merged"]
    assert list(merging.decisions.columns) == COLUMNS
    assert len(merged) == merging.summary["adapters"]["switches"] > 2
    assert set(merged["adapter"]) <= {"", *merging.requests["adapter"]}
    assert ((merged["adapter"] == "") == (merged["value"] == -1)).all()


def test_the_share_of_time_with_something_merged_is_that_of_the_switches(merging):
    merged = merging.decisions[merging.decisions["name"] == "merged"]
    end_s = merging.summary["makespan_s"]
    lasted_s = merged["time_s"].shift(-1, fill_value=end_s) - merged["time_s"]
    share = lasted_s[merged["value"] >= 0].sum() / end_s
    assert merging.summary["adapters"]["merged_share"] == pytest.approx(share)
    assert 0 < share < 1


def test_every_move_has_its_plan_and_its_request(moving):
    moves, plans = moving.moves, moving.plans
    assert len(moves) > 0
    planned = plans.set_index("time_s")
    assert (planned.loc[moves["decided_s"], "reason"].to_numpy() == moves["reason"]).all()
    assert (moves["time_s"] >= moves["decided_s"] + 0.2 - 1e-9).all()
    assert (moves["source"] != moves["target"]).all()
    made = moving.requests.set_index("request_id").loc[moves["request_id"]]
    assert (made["adapter"].to_numpy() == moves["adapter"]).all()
    assert moving.requests["migrations"].sum() == len(moves)


def test_the_summary_counts_plans_and_what_moves_cost(moving):
    moves, facts = moving.moves, moving.summary["migration"]
    assert facts == {
        "plans": len(moving.plans),
        "unsolved": 0,
        "planned_moves": moving.plans["moves"].sum(),
        "moves": len(moves),
        "recomputed_tokens": moves["recomputed_tokens"].sum(),
        "adapters_loaded": len(moves[moves["loaded"]].groupby(["decided_s", "adapter", "target"])),
    }
    assert 0 < facts["moves"] <= facts["planned_moves"]


def test_planning_is_timed_on_the_wall(moving):
    """Nothing else of a run is: the digests of tests/golden are the same again and again."""
    simulation = moving.summary["simulation"]
    assert 0 < simulation["migration_wall_s"] < simulation["wall_s"]


def test_a_system_without_migration_has_no_figures_of_it():
    result = simlora.simulate(["system=slora", "workload.duration_s=5"])
    assert result.summary["migration"] is None
    assert result.summary["simulation"]["migration_wall_s"] is None
    assert result.summary["adapters"]["merged_share"] == 0
    assert [len(table) for table in (result.decisions, result.moves, result.plans)] == [0, 0, 0]


def test_a_timed_migration_is_what_it_was_to_the_engine():
    class Own(Migration):
        period_s, delay_s, brings = 7.0, 0.5, True

        def plan(self, view: Any) -> Plan:
            return Plan((), "nothing to do")

    own = Own()
    timed = Timed(own)
    facts = [name for name in vars(Migration) if not name.startswith("_") and name != "plan"]
    assert {name: getattr(timed, name) for name in facts} == {name: getattr(own, name) for name in facts}
    assert timed.plan(None) == Plan((), "nothing to do")  # type: ignore[arg-type]
    assert timed.wall_s > 0


def test_plans_that_could_not_be_solved_move_no_request_and_are_one_notice(unsolved):
    facts, plans = unsolved.summary["migration"], unsolved.plans
    assert facts["unsolved"] == facts["plans"] == len(plans) > 1
    assert facts["moves"] == unsolved.requests["migrations"].sum() == 0
    first = plans.iloc[0]
    (notice,) = unsolved.notices
    assert notice == (
        f"{len(plans)} of {len(plans)} migration plans could not be solved and left every request where it was; "
        f"the first, at {first['time_s']:g} s: {first['reason']}."
    )
    assert "found no placement within 0 nodes" in notice


def test_what_was_decided_is_saved_beside_the_rest(moving, tmp_path):
    folder = moving.save(tmp_path, report=False)
    for name in ("decisions", "moves", "plans"):
        saved = pd.read_parquet(folder / f"{name}.parquet")
        pd.testing.assert_frame_equal(saved, getattr(moving, name), check_dtype=False)
