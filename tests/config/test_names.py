"""A mistyped key finds what it was meant to be."""

from __future__ import annotations

import pytest

from simlora.config.names import close_keys, dotted

KNOWN = [
    "seed",
    "workload.seed",
    "cluster",
    "cluster.replicas",
    "replica",
    "replica.admit_every",
    "replica.tp",
]


@pytest.mark.parametrize(
    "key, hint",
    [
        ("sed", "did you mean seed or workload.seed?"),
        ("admit_every", "did you mean replica.admit_every?"),
        ("replica.admit_evry", "did you mean replica.admit_every?"),
        ("replica.colour", "replica has admit_every, tp"),
        ("colour", "simlora --help lists the keys"),
    ],
)
def test_close_keys(key: str, hint: str):
    assert close_keys(key, KNOWN) == hint


def test_dotted_names_sections_and_values():
    assert dotted({"a": {"b": 1}, "c": 2}) == ["a", "a.b", "c"]
