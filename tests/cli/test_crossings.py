"""Every system can be crossed with every policy of every slot: what it says of one is of the policy that it chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from simlora.config.composing import FOLDER, choices, compose
from simlora.config.targets import POLICIES
from tests.cli.command import SHORT, Command
from tests.config.setups import prepared


def crossed(*overrides: str) -> dict[str, Any]:
    tree = OmegaConf.to_container(compose(overrides)[0], resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def alone(slot: str, policy: str) -> Any:
    """What the file of a policy says."""
    return OmegaConf.to_container(OmegaConf.load(FOLDER / slot / f"{policy}.yaml"), resolve=False)


@pytest.mark.parametrize("system", choices("system"))
def test_every_system_takes_every_policy_of_every_slot(system: str) -> None:
    config, own = compose([f"system={system}"])
    policies = {slot: choices(slot) for slot in POLICIES}
    says = any(
        OmegaConf.to_container(config[slot], resolve=False) != alone(slot, own[slot]) for slot in POLICIES
    )
    # Slots do not affect each other in this, so that one composition has a policy of each; nor has a system that says
    # nothing of its policies anything to leave to others.
    for place in range(max(map(len, policies.values())) if says else 1):
        chosen = {slot: names[place % len(names)] for slot, names in policies.items()}
        tree = crossed(f"system={system}", *(f"{slot}={name}" for slot, name in chosen.items()))
        for slot, name in chosen.items():
            assert tree[slot].keys() == alone(slot, name).keys()
            assert name == own[slot] or tree[slot] == alone(slot, name)


CROSSINGS = (
    ("system=simlora", "router=most_idle"),
    ("system=simlora", "scheduler=fcfs", "router=rank_bands"),
    ("system=sglang", "scheduler=lcfs"),
    ("system=slora_early_abort", "scheduler=fcfs"),
    ("system=dlora_released", "migration=stay", "cluster.replicas=2"),
    ("system=fastlibra_wom", "eviction=lru"),
)


@pytest.mark.parametrize("overrides", CROSSINGS, ids=" ".join)
def test_a_crossing_is_ready_to_run(overrides: tuple[str, ...]) -> None:
    prepared(*overrides)


def test_a_systems_own_policy_keeps_what_the_system_says_of_it() -> None:
    assert crossed("system=simlora", "router=adapter_affinity")["router"]["slack"] == 32
    assert crossed("system=dlora_released", "migration=stay")["router"]["loads"] is False
    assert crossed("system=simlora", "router=rank_bands", "router.slack=7")["router"]["slack"] == 7


def test_from_the_command_line(simlora: Command) -> None:
    ended = simlora(*SHORT, "system=simlora", "router=most_idle", "calibration=null", "hydra.run.dir=out")
    assert ended.status == 0
    ended = simlora("--cfg", "job", "system=simlora", "router=most_idle")
    assert "slack" not in ended.out
    ended = simlora("-m", *SHORT, "system=simlora", "router=most_idle,random", "calibration=null")
    assert ended.status == 0


def test_systems_of_the_users_own(simlora: Command) -> None:
    Path("mine/system").mkdir(parents=True)
    system = "# @package _global_\ndefaults: [{base}, {{override /router: most_idle}}]\n{more}"
    Path("mine/system/over.yaml").write_text(system.format(base="simlora", more=""))
    more = "scheduler: {_target_: simlora.policies.scheduling.lcfs.Lcfs}\n"
    Path("mine/system/own.yaml").write_text(system.format(base="slora", more=more))
    asked = ("--config-dir", "mine", "--cfg", "job")
    assert "slack" not in simlora(*asked, "system=over").out
    assert "lcfs.Lcfs" in simlora(*asked, "system=own").out
    assert "lcfs.Lcfs" not in simlora(*asked, "system=own", "scheduler=fcfs").out
