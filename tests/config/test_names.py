"""A mistyped key finds what it was meant to be."""

import pytest

from simlora.config.names import RENAMED, close_keys
from simlora.core.errors import InputError
from tests.config.setups import prepared

KNOWN = [
    "seed",
    "workload.seed",
    "cluster",
    "cluster.replicas",
    "replica",
    "replica.max_wait_tokens",
    "replica.tp",
]


@pytest.mark.parametrize(
    "key, hint",
    [
        ("sed", "did you mean seed or workload.seed?"),
        ("max_wait_tokens", "did you mean replica.max_wait_tokens?"),
        ("replica.max_wait_tokns", "did you mean replica.max_wait_tokens?"),
        ("replica.colour", "replica has max_wait_tokens, tp"),
        ("colour", "simlora --help lists the keys"),
        ("max_batch_size", "it is called replica.max_num_seqs now"),
    ],
)
def test_close_keys(key, hint):
    assert close_keys(key, KNOWN) == hint


@pytest.mark.parametrize("old, new", RENAMED.items())
def test_a_key_by_its_old_name_is_refused_with_the_new_one_named(old, new):
    with pytest.raises(InputError, match=rf"there is no key {old}; it is called {new} now"):
        prepared(f"{old}=1")
