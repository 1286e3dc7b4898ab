"""Sections of simlora's own are made without Hydra, and are what Hydra makes."""

import pytest
from hydra.utils import instantiate

from simlora.api.preparing import composed
from simlora.config.making import partial_of
from simlora.config.setup import resolved
from simlora.config.targets import POLICIES

LATER = {"_partial_": True, "_convert_": "all"}


@pytest.mark.parametrize("more", [{}, {"_convert_": "none"}, {"_recursive_": True}], ids=str)
def test_a_section_is_what_hydra_makes_of_it_also_with_keys_of_hydras(more):
    tree = resolved(composed(["system=simlora", "workload=synthetic"])[0])
    for key in (*POLICIES, "gpu", "model", "workload"):
        ours, theirs = partial_of({key: tree[key] | more}, key), instantiate(tree[key] | more | LATER)
        assert ours.func is theirs.func
        assert ours.keywords == theirs.keywords, key
