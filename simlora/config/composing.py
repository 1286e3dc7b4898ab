"""Composes simlora's configuration from overrides, without running anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.crossing import HYDRA, SLOTS, Loader, crossed
from simlora.config.overrides import check_overrides
from simlora.config.own_folder import files

FOLDER = Path(__file__).resolve().parents[1] / "conf"
NAME = "config"
VERSION_BASE = "1.3"


def compose(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return the configuration without Hydra's section, and the name chosen in each group.

    Raises what Hydra raises, of which `mistakes.in_plain_words` makes a sentence, and InputError. Configurations that
    differ only in values of keys are composed once and then told the values, as Hydra does last.
    """
    check_overrides(overrides)
    try:
        parsed = [_parsed(override) for override in overrides]
        typed = {override.key_or_group for override in parsed}
        replaced = {slot for slot in SLOTS if f"{slot}._target_" in typed}
        values = [override for override in parsed if _is_value(override, replaced)]
        chosen = [str(override.input_line) for override in parsed if override not in values]
        config, choices = _composed(tuple(chosen), _digest(chosen))
        config = deepcopy(config)
        OmegaConf.set_struct(config, True)  # no new keys
        for override in values:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        OmegaConf.set_struct(config, None)
        return config, dict(choices)
    except (HydraException, OmegaConfBaseException, ValueError):
        return _by_hydra(overrides)  # which says what is wrong, as for the command


@lru_cache(maxsize=1024)
def _parsed(override: str) -> Override:
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed


def _is_value(override: Override, replaced: Set[str]) -> bool:
    """Whether it only sets a key that is there already, of the configuration itself; no slot's that is `replaced`."""
    key = override.key_or_group
    plain = (
        override.type == OverrideType.CHANGE and override.package is None and not override.is_sweep_override()
    )
    if key.partition(".")[0] in replaced:
        return False
    return plain and not key.startswith(HYDRA) and key not in _groups()


@cache
def _groups() -> frozenset[str]:
    return frozenset(groups())


@lru_cache(maxsize=256)  # half a megabyte each
def _composed(overrides: tuple[str, ...], digest: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose; `digest` is of the user's own configurations, which may be edited in between."""
    if any(HYDRA in override for override in overrides):
        return _by_hydra(overrides)
    with _composer() as composer:
        return composer.composed(NAME, list(overrides))


def _by_hydra(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Compose with Hydra's own section, which some overrides are of, and which is then left out."""
    with _composer():
        config = hydra_compose(NAME, overrides=list(overrides), return_hydra_config=True)
    choices = config.hydra.runtime.choices.items()
    ours = {str(group): str(name) for group, name in choices if not str(group).startswith(f"{HYDRA}/")}
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != HYDRA]), ours


@contextmanager
def _composer() -> Iterator[Loader]:
    """Have Hydra compose with our loader in what is inside."""
    with (
        crossed(),
        _beside_a_run(),
        initialize_config_dir(str(FOLDER), job_name="simlora", version_base=VERSION_BASE),
    ):
        running = GlobalHydra.instance().hydra
        assert running is not None
        assert isinstance(running.config_loader, Loader)
        yield running.config_loader


@contextmanager
def _beside_a_run() -> Iterator[None]:
    """Let Hydra compose again within a run that it has started itself: it has one composer at a time."""
    running, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = running


def _digest(overrides: Sequence[str]) -> str:
    """Hash the files of the user's own folders of configurations."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in files(overrides))).hexdigest()


def groups() -> list[str]:
    """Return the groups that a choice can be made in: `gpu`, `workload/popularity`."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_dir())


def choices(group: str) -> list[str]:
    """Return the names that can be chosen in a group."""
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))
