"""Configurations are composed once for all values of their keys, and come out as Hydra composes them."""

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.composing import FOLDER, NAME, VERSION_BASE, compose


def composed_by_hydra(overrides: list[str]) -> tuple[object, dict[str, str]]:
    with initialize_config_dir(str(FOLDER), job_name="simlora", version_base=VERSION_BASE):
        config = hydra_compose(NAME, overrides=overrides, return_hydra_config=True)
    choices = config.hydra.runtime.choices.items()
    chosen = {str(group): str(choice) for group, choice in choices if not str(group).startswith("hydra/")}
    tree = OmegaConf.to_container(config, resolve=False)
    assert isinstance(tree, dict)
    del tree["hydra"]
    return tree, chosen


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["workload.rate_rps=3", "system=dlora", "workload=functions", "cluster.replicas=8"],
        ["workload=loraserve", "workload/popularity=rank_power_law", "workload.popularity.alpha=1e-1"],
        ["workload=synthetic", "workload/prompt_tokens=fixed", "workload.prompt_tokens.tokens=200"],
        ["placement=rank_demand", "placement.operating_points={8: 5500, 128: 4500}"],
        ["seed=1", "seed=2", "system=slora", "system=vllm"],
        ["+eviction.more=1", "~slo.tpot_s"],
        ["scheduler._target_=my_module.MyScheduler"],
        ["calibration=${gpu.name}.yaml"],
    ],
)
def test_it_is_what_hydra_composes(overrides):
    try:
        expected = composed_by_hydra(overrides)
    except (HydraException, OmegaConfBaseException) as error:
        with pytest.raises(type(error)):
            compose(overrides)
        return
    config, chosen = compose(overrides)
    assert OmegaConf.to_container(config, resolve=False) == expected[0]
    assert chosen == expected[1]


def test_defaults_may_name_choices(tmp_path):
    for group, text in (("system", "defaults: [slora, {/more: '${system}'}]"), ("more", "seed: 13")):
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    overrides = [f"hydra.searchpath=[file://{tmp_path}]", "system=mine"]
    config, chosen = compose(overrides)
    assert (OmegaConf.to_container(config, resolve=False), chosen) == composed_by_hydra(overrides)
    assert config.seed == 13


def test_one_configuration_is_not_changed_by_the_next():
    first, _ = compose(["cluster.replicas=3"])
    second, _ = compose([])
    assert (first.cluster.replicas, second.cluster.replicas) == (3, 1)
    second.cluster.replicas = 9
    assert compose([])[0].cluster.replicas == 1


@pytest.mark.parametrize(
    "override",
    ["no_key=1", "workload.rate=1", "seed", "gpu=b200", "workload.rate_rps=[1", "seed=1,2", "gpu.name.x=1"],
)
def test_mistakes_are_hydras_own(override):
    with pytest.raises((HydraException, OmegaConfBaseException)) as expected:
        composed_by_hydra([override])
    with pytest.raises(type(expected.value)) as found:
        compose([override])
    assert str(found.value) == str(expected.value)
