"""YAML that is read as a tree of plain values: what cannot be one is refused before it takes memory or time."""

from __future__ import annotations

import re
from typing import Any

import yaml

from simlora.core.checks import DIGITS_MOST
from simlora.core.errors import InputError

DEEPEST, VALUES_MOST = 100, 100_000
"""Levels of a file; values of a file with aliases."""
INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0b[0-1_]+|0o[0-7_]+|0x[0-9a-fA-F_]+)$")
FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class Refused(yaml.MarkedYAMLError):
    """YAML that is valid and yet not read; `problem` says what it has, and what would be right."""


def too_long(digits: int, most: int) -> str:
    """Return what is said of a number of too many digits, after the name of what has it."""
    return f"has a number of {digits} digits, must have at most {most}"


def _refused(problem: str, mark: Any) -> Refused:
    return Refused(problem=problem, problem_mark=mark)


class TreeLoader(yaml.SafeLoader):
    """PyYAML's safe loader, but that 1e-4 is a number and a date is text.

    Refused are tags; keys that are given twice; more than DEEPEST levels; numbers of more than DIGITS_MOST digits; and
    aliases by which a file contains itself, or has more than VALUES_MOST values where they are written out. `1:30`
    and `010` are text, and not 90 and 8 as in YAML 1.1.
    """

    level = deepest = values = 0

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._whole: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node, unless it has a tag, lies too deep, or brings too much by an alias."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(super().compose_node(parent, index), event)
        if event.tag is not None:
            raise _refused(f"has a tag ({event.tag.rpartition(':')[2]}), leave it out", event.start_mark)
        before, deepest = self.values, self.deepest
        self._descend(1, event)
        self.values, self.deepest, self.level = before + 1, self.level + 1, self.level + 1
        node = super().compose_node(parent, index)
        self.level -= 1
        self._whole[id(node)] = self.values - before, self.deepest - self.level
        self.deepest = max(self.deepest, deepest)
        return node

    def _aliased(self, node: Any, event: Any) -> Any:
        """Return a node that an alias stands for, and count what it brings."""
        if id(node) not in self._whole:
            raise _refused(f"contains itself (*{event.anchor}), write the value out", event.start_mark)
        values, levels = self._whole[id(node)]
        self._descend(levels, event)
        self.values += values
        self.deepest = max(self.deepest, self.level + levels)
        if self.values > VALUES_MOST:
            words = f"has more than {VALUES_MOST:,} values where aliases (*{event.anchor}) are written out"
            raise _refused(words, event.start_mark)
        return node

    def _descend(self, levels: int, event: Any) -> None:
        if self.level + levels > DEEPEST:
            raise _refused(f"has more than {DEEPEST} levels", event.start_mark)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number."""
        digits = sum(each.isalnum() for each in node.value)
        if digits > DIGITS_MOST:
            raise _refused(too_long(digits, DIGITS_MOST), node.start_mark)
        return int(super().construct_yaml_int(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Return a mapping, each of whose keys is there once."""
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise _refused(f"has the key {key.value} twice", key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


TreeLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag.rpartition(":")[2] not in ("int", "float", "timestamp")
    ]
    for first, resolvers in TreeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in (("float", FLOAT), ("int", INT)):
    TreeLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, list("-+0123456789."))
TreeLoader.add_constructor("tag:yaml.org,2002:int", TreeLoader.construct_yaml_int)


def read_yaml(text: str, name: str) -> Any:
    """Return what a YAML text says. Raises InputError, with the `name` of the text and the line, if it is not read."""
    try:
        return yaml.load(text, TreeLoader)  # noqa: S506  # a safe loader
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(refusal(error, name)) from None


def refusal(error: Exception, name: str = "") -> str:
    """Return the sentence for YAML that cannot be read, named as given or as its file is."""
    mark = getattr(error, "problem_mark", None)
    place = name or (mark.name if mark else "a configuration file")
    line = f" (line {mark.line + 1})" if mark else ""
    return f"{place} {error.problem if isinstance(error, Refused) else 'is not valid YAML'}{line}"
