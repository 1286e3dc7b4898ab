"""From a configuration to a scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from simlora.config.composing import choices, compose
from simlora.config.setup import Setup, prepare
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.scheduling.lcfs import Lcfs
from tests.cli.command import CALIBRATION


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    (tmp_path / "cal.yaml").write_text(CALIBRATION)
    return f"calibration={tmp_path / 'cal.yaml'}"


def setup(*overrides: str) -> Setup:
    return prepare(*compose(["workload.duration_s=5", *overrides]))


def test_slora_is_what_design_section_6_says(calibration: str):
    found = setup(calibration)
    replica, policies = found.scenario.replica, found.scenario.policies
    assert (replica.admit_every, replica.reserve) == (10, "peak")
    assert replica.max_prefill_tokens == max(replica.kv_token_budget // 6, 3072)
    assert type(policies.scheduler()) is Fcfs
    assert type(policies.loader()).__name__ == "Blocking"
    assert type(policies.eviction()).__name__ == "OnDemand"
    assert type(policies.kernel(found.scenario.calibration)).__name__ == "Mbgmv"


def test_a_system_overrides_nested_groups_and_the_user_overrides_the_system(calibration: str):
    assert type(setup(calibration, "system=slora_lcfs").scenario.policies.scheduler()) is Lcfs
    assert (
        type(setup(calibration, "system=slora_lcfs", "scheduler=fcfs").scenario.policies.scheduler()) is Fcfs
    )


def test_every_replica_gets_its_own_policies(calibration: str):
    policies = setup(calibration).scenario.policies
    assert policies.scheduler() is not policies.scheduler()


def test_the_pool_follows_from_the_gpu_unless_it_is_set(calibration: str):
    small, large = setup(calibration).scenario.replica, setup(calibration, "gpu=a100_80g").scenario.replica
    assert small.kv_token_budget < large.kv_token_budget
    assert large.max_prefill_tokens == large.kv_token_budget // 6
    assert setup(calibration, "replica.kv_token_budget=2e4").scenario.replica.kv_token_budget == 20_000


def test_outputs_do_not_change_what_is_simulated(calibration: str):
    plain, quiet = setup(calibration), setup(calibration, "report=false", "timeline=false")
    assert plain.about["config_hash"] == quiet.about["config_hash"]
    assert plain.about["config_hash"] != setup(calibration, "seed=1").about["config_hash"]


@pytest.mark.parametrize("system", choices("system"))
def test_every_system_composes(calibration: str, system: str):
    assert setup(calibration, f"system={system}").about["system"] == system


@pytest.mark.parametrize(
    "group, name",
    [
        (group, name)
        for group in ("scheduler", "loader", "eviction", "router", "placement")
        for name in choices(group)
    ],
)
def test_every_policy_can_be_chosen(calibration: str, group: str, name: str):
    assert setup(calibration, f"{group}={name}").about["policies"][group].startswith("simlora.policies.")
