"""A policy made in Python without arguments is the one that its configuration names."""

import inspect
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import simlora
from tests.policies.catalogue import SLOTS, policies

CONFIGURATIONS = {path.stem: path for path in (Path(simlora.__file__).parent / "conf").glob("*/*.yaml")}
CLASSES = {policy.__module__.rpartition(".")[2]: policy for slot in SLOTS for policy in policies(slot)}


@pytest.mark.parametrize("name", sorted(CLASSES.keys() & CONFIGURATIONS.keys()))
def test_the_defaults_of_a_class_are_those_of_its_configuration(name):
    """But for those that another section of the configuration says."""
    written = OmegaConf.to_container(OmegaConf.load(CONFIGURATIONS[name]), resolve=False)
    parameters = inspect.signature(CLASSES[name]).parameters
    defaults = {key: one.default for key, one in parameters.items() if one.default is not one.empty}
    own = {key: value for key, value in written.items() if key in defaults and "${" not in str(value)}
    assert own == {key: defaults[key] for key in own}
