"""A configuration names code where a policy, a workload or a part stands, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command import SHORT, Command

REFUSED = {
    "cluster.network={_target_: evil.Evil}": "cluster.network names 'evil.Evil' to be called",
    "cluster={network: {_target_: evil.Evil}}": "cluster.network names",
    "+replica.more={_target_: evil.Evil}": "replica.more names",
    "+more={_target_: evil.Evil}": "more names",
    "slo.classes=[{_target_: evil.Evil}]": "slo.classes.0 names",
    "+scheduler.more={_target_: evil.Evil}": "scheduler.more names",
    "parts=[{_target_: my.Part, more: {_target_: evil.Evil}}]": "parts.0.more names",
    "gpu._target_=evil.Evil": "gpu names",
    "model._target_=evil.Evil": "model names",
    "gpu.host_link={_target_: evil.Evil}": "gpu.host_link names",
    "cluster.replica_groups=[{gpu: {_target_: evil.Evil}, replicas: 1}]": "cluster.replica_groups.0.gpu names",
    "+hydra.callbacks.more={_target_: evil.Evil}": "hydra.callbacks.more names",
    "hydra.callbacks.folder._target_=evil.Evil": "hydra.callbacks.folder names",
    "hydra.launcher._target_=evil.Evil": "hydra.launcher names",
    "hydra.sweeper._target_=evil.Evil": "hydra.sweeper names",
    "+hydra.launcher.more={_target_: evil.Evil}": "hydra.launcher.more names",
    "+hydra.job_logging.handlers={h: {class: evil.Evil}}": "hydra.job_logging.handlers.h names",
    "+hydra.callbacks.more=${more} +more={_target_: evil.Evil}": "hydra.callbacks.more names",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_code_is_not_run_where_none_belongs(simlora: Command, typed: str) -> None:
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    ended = simlora(*SHORT, *typed.replace(" +", "\n+").split("\n"))
    assert ended.status == 2
    assert REFUSED[typed] in ended.sentence
    assert "docs/configurations.md" in ended.sentence
    assert not os.path.exists("outputs")


@pytest.mark.parametrize(
    "written",
    ["{callbacks: {more: {_target_: evil.Evil}}}", "{job_logging: {handlers: {more: {(): evil.Evil}}}}"],
)
def test_a_configuration_file_is_no_other(simlora: Command, written: str) -> None:
    Path("mine/system").mkdir(parents=True)
    Path("mine/system/evil.yaml").write_text(f"# @package _global_\nhydra: {written}\n")
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    ended = simlora(*SHORT, "--config-dir", "mine", "system=evil")
    assert "more names 'evil.Evil'" in ended.sentence


def test_the_classes_of_a_users_own_are_made(simlora: Command) -> None:
    Path("own_policy_here.py").write_text(
        "from simlora.policies.scheduling.fcfs import Fcfs\nclass Own(Fcfs):\n    pass\n"
    )
    ended = simlora(*SHORT, "scheduler._target_=own_policy_here.Own", "hydra.run.dir=out")
    assert ended.status == 0
