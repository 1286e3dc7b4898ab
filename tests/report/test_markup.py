"""Text stays text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.report.markup import EMPTY, Html, embedded_json, join, rows, tag

MADE = {
    "<p>a &lt; b &amp; c<b>d</b></p>": tag("p", "a < b & c", tag("b", "d")),
    '<i class="&quot;x&quot;" aria-label="a"></i>': tag("i", class_='"x"', aria_label="a", role=None),
    '<meta name="a">': tag("meta", name="a"),
    "&lt;<b>1</b>": join(["<", EMPTY, tag("b", 1)]),
}


@pytest.mark.parametrize("expected", MADE)
def test_text_and_attributes_are_escaped_and_markup_is_not(expected):
    assert MADE[expected] == expected
    assert isinstance(MADE[expected], Html)


def test_rows_escape_their_cells_and_set_text_left():
    table = rows(["<h>", "n"], [["<c>", 3]])
    assert '<th class="text">&lt;h&gt;</th><th>n</th>' in table
    assert '<td class="text">&lt;c&gt;</td><td>3</td>' in table


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_embedded_json_cannot_leave_its_script_and_says_the_same(value):
    text = embedded_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value
