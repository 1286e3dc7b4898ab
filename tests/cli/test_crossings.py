"""Every system can be crossed with every policy of every slot: what it says of one is of the policy that it chose."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from simlora.cli import sweep
from simlora.config.composing import FOLDER, choices, compose
from simlora.config.targets import POLICIES
from tests.cli.command import SHORT
from tests.config.setups import prepared
from tests.config.test_composing import composed_by_hydra


def crossed(*overrides: str) -> dict[str, Any]:
    tree = OmegaConf.to_container(compose(overrides)[0], resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


@cache
def alone(slot: str, policy: str) -> Any:
    """What the file of a policy says, and those that it begins with."""
    said = OmegaConf.load(FOLDER / slot / f"{policy}.yaml")
    assert isinstance(said, DictConfig)
    begun = [alone(slot, name) for name in said.pop("defaults", [])]
    return OmegaConf.to_container(OmegaConf.merge(*begun, said), resolve=False)


@pytest.mark.parametrize("system", choices("system"))
def test_every_system_takes_values_as_hydra_gives_them_and_another_policy_in_every_slot(system):
    typed = [f"system={system}", "seed=7", "replica.max_num_seqs=9", "slo.tpot_s=0.1"]
    config, own = compose(typed)
    assert (OmegaConf.to_container(config, resolve=False), own) == composed_by_hydra(typed)
    # Slots do not affect each other in this, so that one composition has a policy of each; other systems have others.
    place = choices("system").index(system)
    chosen = {slot: choices(slot)[place % len(choices(slot))] for slot in POLICIES}
    tree = crossed(f"system={system}", *(f"{slot}={name}" for slot, name in chosen.items()))
    for slot, name in chosen.items():
        assert tree[slot].keys() == alone(slot, name).keys()
        assert name == own[slot] or tree[slot] == alone(slot, name)


CROSSINGS = (
    ("system=simlora", "scheduler=fcfs", "router=rank_bands"),
    ("system=slora_early_abort", "scheduler=fcfs"),
    ("system=dlora_released", "migration=stay", "cluster.replicas=2"),
    ("system=vllm", "scheduler._target_=simlora.policies.scheduling.fcfs.Fcfs"),
    ("system=vllm", "++scheduler._target_=simlora.policies.scheduling.fcfs.Fcfs"),
)


@pytest.mark.parametrize("overrides", CROSSINGS, ids=" ".join)
def test_a_crossing_is_ready_to_run(overrides):
    prepared(*overrides)


def test_a_systems_own_policy_keeps_what_the_system_says_of_it():
    assert crossed("system=dlora_released", "router=pending_time")["router"]["loads"] is False
    assert crossed("system=dlora_released", "migration=stay")["router"]["loads"] is False
    assert crossed("system=simlora", "router=rank_bands", "router.slack=7")["router"]["slack"] == 7


FCFS = "scheduler._target_=simlora.policies.scheduling.fcfs.Fcfs"
CHUNKED = "scheduler._target_=simlora.policies.scheduling.chunked_prefill.ChunkedPrefill"
PENDING = "router._target_=simlora.policies.routing.pending_time.PendingTime"


def test_a_class_in_the_place_of_a_policy_has_none_of_its_keys():
    assert [*crossed("system=vllm", FCFS)["scheduler"]] == ["_target_"]
    assert crossed("system=vllm", FCFS, "+scheduler.limit=3")["scheduler"]["limit"] == 3
    assert [*crossed("system=dlora_released", "router._target_=mine.Mine")["router"]] == ["_target_"]
    assert [*crossed("workload=synthetic", "workload._target_=mine.Mine")["workload"]] == ["_target_"]
    own = crossed("workload=synthetic", "workload._target_=mine.Mine", "workload/popularity=zipf")["workload"]
    assert {*own} == {"_target_", "popularity"}


def test_keys_that_the_command_line_gives_stay():
    given = crossed("system=vllm", FCFS, "scheduler.max_batched_tokens=5")["scheduler"]
    assert [*given] == ["_target_", "max_batched_tokens"]
    assert given["max_batched_tokens"] == 5
    assert [*crossed("system=simlora", "~scheduler.margin_s", FCFS)["scheduler"]] == ["_target_"]


def test_the_class_that_stands_there_already_keeps_its_keys():
    assert crossed("system=vllm", CHUNKED) == crossed("system=vllm")
    assert crossed("system=dlora_released", PENDING) == crossed("system=dlora_released")


def test_a_class_in_a_sweep_and_on_the_command_line(simlora, capsys):
    axis = f"{FCFS},{CHUNKED.partition('=')[2]}"
    assert simlora("-m", *SHORT, "system=vllm", axis, "calibration=null", "hydra.sweep.dir=all").status == 0
    assert sweep.main([*SHORT, "system=vllm", axis, "--out=out", "--jobs=1"]) == 0
    assert "notice" not in capsys.readouterr().err
    ended = simlora(*SHORT, "system=vllm", FCFS, "scheduler.max_batched_tokens=5", "calibration=null")
    assert ended.status == 2
    assert (
        "scheduler cannot be made: Fcfs() got an unexpected keyword argument 'max_batched_t" in ended.sentence
    )


def test_a_class_that_a_users_own_system_names(simlora):
    Path("mine/system").mkdir(parents=True)
    fcfs, chunked = FCFS.partition("=")[2], CHUNKED.partition("=")[2]
    for name, base, scheduler in (
        ("other", "vllm", fcfs),
        ("same", "vllm", chunked),
        ("again", "same", f"{fcfs}, limit: 3"),
        ("over", "dlora_released, {override /router: most_idle}", fcfs),
    ):
        text = f"# @package _global_\ndefaults: [{base}]\nscheduler: {{_target_: {scheduler}}}\n"
        Path(f"mine/system/{name}.yaml").write_text(text)
    out = {
        name: simlora("--config-dir", "mine", "--cfg", "job", f"system={name}").out
        for name in ("other", "same", "again", "over")
    }
    assert ["max_batched_tokens" in text for text in out.values()] == [False, True, False, False]
    assert "limit: 3" in out["again"]
    assert "loads: " not in out["over"], "a router that another has taken the place of"
