"""YAML that cannot be a tree of plain values is refused, at once and in a sentence."""

import re
from contextlib import suppress
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.latency.yaml_text import read_yaml

NAMES = [f"n{i}" for i in range(20)]
BOMB = "n0: &n0 [1, 1]\n" + "\n".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in pairwise(NAMES))
LADDER = "n0: &n0 [1]\n" + "\n".join(f"n{i + 1}: &n{i + 1} [*n{i}]" for i in range(3000))
REFUSED = {
    BOMB: "f.yaml has more than 100,000 values where aliases (*n",
    LADDER: "f.yaml has more than 100 levels (line 99)",
    "a: &a [*a]": "f.yaml contains itself (*a), write the value out (line 1)",
    "a: &a {b: {c: *a}}": "f.yaml contains itself (*a)",
    "a: *b": "f.yaml is not valid YAML (line 1)",
    "[" * 3000 + "]" * 3000: "f.yaml has more than 100 levels (line 1)",
    "\n".join(" " * i + "a:" for i in range(3000)): "f.yaml has more than 100 levels (line 100)",
    "a: " + "9" * 401: "f.yaml has a number of 401 digits, must have at most 18 (line 1)",
    "a: 1\nb: {c: 1,\n c: 2}": "f.yaml has the key c twice (line 3)",
    "{8: 1, 16: 2, 8: 3}": "f.yaml has the key 8 twice",
    "a: !!python/object/apply:os.getcwd []": "f.yaml has a tag",
    "a: !!int ''": "f.yaml has a tag (int), leave it out",
    "a: [": "f.yaml is not valid YAML (line 1)",
    "a\x00b": "f.yaml is not valid YAML",
    "? [1, 2]\n: 3": "f.yaml is not valid YAML",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_tree_is_refused(text):
    with pytest.raises(InputError) as caught:
        read_yaml(text, "f.yaml")
    assert str(caught.value).startswith(REFUSED[text])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("1e-4", 1e-4),
        ("1.0e+10", 1e10),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("10_000", 10_000),
        ("0x1F", 31),
        ("-7", -7),
        ("2026-11-22", "2026-11-22"),
        ("yes", True),
        ("a: &a {b: 1}\nc: {<<: *a, d: *a}", {"a": {"b": 1}, "c": {"b": 1, "d": {"b": 1}}}),
        ("~", None),
    ],
)
def test_a_value_is_what_it_looks_like(text, value):
    assert read_yaml(text, "f.yaml") == value
    assert type(read_yaml(text, "f.yaml")) is type(value)


# PyYAML writes 1e4 and 0o17 without quotes: in YAML 1.1 they are text, and here numbers.
TEXTS = st.text().filter(lambda text: not re.match(r"[-+]?([0-9][0-9_]*[eE]|0o)", text))
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False) | TEXTS,
    lambda below: st.lists(below) | st.dictionaries(TEXTS, below),
    max_leaves=8,
)


@given(TREES)
def test_what_was_written_is_read(tree):
    assert read_yaml(yaml.safe_dump(tree), "f.yaml") == tree


@given(st.text(alphabet="ab: -[]{}&*!|>\n\t'\"#%@,?01.e+", max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text):
    with suppress(InputError):
        read_yaml(text, "f.yaml")
