"""Walks over trees of mappings."""

from simlora.core.trees import leaves


def test_leaves_have_dotted_names_and_come_in_order():
    tree = {"b": {"y": 1, "x": {"z": [2, {"w": 3}]}}, "a": None}
    assert list(leaves(tree)) == [("b.y", 1), ("b.x.z", [2, {"w": 3}]), ("a", None)]
    assert list(leaves(tree["b"], "b.")) == [("b.y", 1), ("b.x.z", [2, {"w": 3}])]


def test_an_empty_mapping_has_none():
    assert list(leaves({"a": {}})) == []
