"""Says in one plain sentence what Hydra and OmegaConf complain about in several."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException

from simlora.config.composing import choices, compose, groups
from simlora.config.names import close_keys, dotted
from simlora.config.reading import plain
from simlora.core.errors import InputError, nearest
from simlora.latency.yaml_text import read_yaml, refusal

COMPOSING = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError)
"""What a mistake in an override or a configuration file raises while the configuration is composed."""

_UNKNOWN = re.compile(r"Could not override '(?P<key>[^']+)'|config group '(?P<group>[^']+)' does not")
_SEVERAL = re.compile(
    r"(?:Ambiguous value for argument|Sweep parameters) '(?P<override>.+?)'(?:$|\n| requires)"
)
_THERE = re.compile(r"An item is already at '(?P<key>[^']+)'")
_VARIABLE = re.compile(r"Environment variable '(?P<name>[^']+)' not found")


def in_plain_words(error: BaseException, overrides: Sequence[str] = ()) -> InputError:
    """Return what went wrong while composing `overrides`, and what would be right."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, OverrideParseException):
        return InputError(_unreadable(error))
    if isinstance(error, MissingConfigException):
        return InputError(_missing_choice(error))
    if isinstance(error, OmegaConfBaseException):
        return InputError(_unresolved(error))
    if isinstance(error, yaml.YAMLError):
        return InputError(refusal(error))
    return InputError(_uncomposed(error, overrides))


def _unreadable(error: OverrideParseException) -> str:
    if "=" not in error.override and not error.override.startswith("~"):
        return f"{error.override!r} is no override, must be key=value or group=choice"
    return (
        f"{error.override!r} cannot be read, must be key=value; put a value with special characters in quotes"
    )


def _missing_choice(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if not error.options:
        return f"there is no configuration {error.missing_cfg_file!r} (--config-name, --config-dir)"
    return f"there is no {group} {name!r}; {nearest(name, error.options)}"


def _unresolved(error: OmegaConfBaseException) -> str:
    key = error.full_key or "a value"
    if isinstance(error, MissingMandatoryValue):
        return f"{key} is not set, must be given as {key}=<value>"
    variable = _VARIABLE.search(str(error))
    if variable:
        return f"{key} needs the environment variable {variable['name']}; set it, or give {key}=<value>"
    if isinstance(error, InterpolationResolutionError):
        return f"{key} cannot be resolved: {_one_line(error)}"
    return f"{key}: {_one_line(error)}"


def _uncomposed(error: BaseException, overrides: Sequence[str]) -> str:
    text = str(error)
    unknown = _UNKNOWN.search(text)
    if unknown:
        key = unknown["key"] or unknown["group"]
        inside = getattr(error.__cause__, "full_key", None) or key
        return _unknown_key(inside if inside.startswith(f"{key}.") else key, overrides)
    several = _SEVERAL.search(text)
    if several:
        return f"{several['override']} is several values; add -m to simulate each, or write [..] for a list"
    if "Config group override must be a string" in text:
        return _no_choice(overrides)
    there = _THERE.search(text)
    if there:
        return f"{there['key']} is there already; write {there['key']}=<value> without a +"
    if isinstance(error.__cause__, OmegaConfBaseException):
        return f"{_one_line(error).removeprefix('Error merging override ')} cannot be: {_one_line(error.__cause__)}"
    return _one_line(error)


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    known = _known(overrides)
    key = key.split("@")[0]
    if key in known:
        return f"{key} has no place in this configuration; --cfg job shows what has"
    return f"there is no key {key}; {close_keys(key, known)}"


def _no_choice(overrides: Sequence[str]) -> str:
    """Say which group was given a number or nothing, and what there is to choose from."""
    for override in overrides:
        group, _, value = override.partition("=")
        if not group:
            return f"{override!r} is no override, must be key=value or group=choice"
        if group in groups() and not isinstance(read_yaml(value, override), str | list):
            return f"{override} is no choice; choose one of {', '.join(choices(group))}"
    return "a group takes the name of a choice, such as gpu=a10g"


def _known(overrides: Sequence[str]) -> list[str]:
    """Return all keys and groups, those of the chosen groups if they can be composed."""
    chosen = groups()
    by_choice = [override for override in overrides if override.split("=")[0] in chosen]
    for attempt in (by_choice, []):
        try:
            tree = plain(compose(attempt)[0], resolve=False)
        except COMPOSING:
            continue
        return [*dotted(tree), *chosen, "hydra.run.dir", "hydra.sweep.dir"]
    return chosen


def _one_line(error: BaseException) -> str:
    """Return the first line of a message without Hydra's asides."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
