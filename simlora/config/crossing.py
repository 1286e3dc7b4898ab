"""Crosses systems with policies: what a system says of a slot goes with the policy that it chose for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import IO, Any, ClassVar

import yaml
from hydra._internal import defaults_list as listing
from hydra._internal import hydra as hydras
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.defaults_list import Overrides
from hydra._internal.defaults_list import _create_interpolation_map as listed
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault, ResultDefault
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf import _utils as omegaconf
from omegaconf import base as nodes
from omegaconf.grammar_parser import parse

from simlora.config.targets import DECODE_ROUTER, LOGS, POLICIES, check_hydras_own, item
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.latency.yaml_text import TreeLoader

HYDRA, SYSTEMS = "hydra", "system/"
SLOTS = (*POLICIES, "workload")
"""Sections of which `_target_` may be given instead of a choice, with keys that go with it."""


@contextmanager
def crossed() -> Iterator[None]:
    """Have Hydra compose what is inside with `Loader`, from files that are read with `TreeLoader`.

    What the same ${...} says is found out once, and choices are listed only for files whose defaults have a ${...}.
    """
    names = ConfigLoaderImpl.__name__, "get_yaml_loader"  # by which Hydra's command and its compose find them
    with (
        instead(hydras, names[0], Loader),
        instead(omegaconf, names[1], lambda: _loader),
        instead(nodes, parse.__name__, _parse),
        instead(listing, listed.__name__, _listed),
    ):
        yield


_parse = lru_cache(maxsize=1024)(parse)


def _listed(overrides: Overrides, defaults: list[InputDefault], self_added: bool) -> DictConfig:
    """Return the choices that a ${...} in a list of defaults may name; none if none does, a quarter of the time."""
    named = any(default.is_interpolation() for default in defaults)
    return listed(overrides, defaults, self_added) if named else DictConfig({})


def _loader(stream: str | IO[Any]) -> TreeLoader | _Once:
    """Return what `yaml.load` reads a text with, or a file."""
    return TreeLoader(stream) if isinstance(stream, str) else _Once(stream)


class _Once:
    """Reads files of the same text once in a process; OmegaConf copies what is read, and so nothing changes it."""

    read: ClassVar[dict[str | bytes, Any]] = {}

    def __init__(self, stream: IO[Any]) -> None:
        self._stream, self._text = stream, stream.read()

    def get_single_data(self) -> Any:
        """Return the tree of plain values."""
        if self._text not in self.read:
            self._stream.seek(0)
            self.read[self._text] = yaml.load(self._stream, TreeLoader)  # noqa: S506  # a safe loader
        return self.read[self._text]

    def dispose(self) -> None:
        """Do nothing, as there is nothing to close."""


@contextmanager
def instead(owner: ModuleType | type, name: str, value: Any) -> Iterator[None]:
    """Have a name of a module or class stand for something else in what is inside."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Loader(ConfigLoaderImpl):
    """Hydra's, but for keys of a slot that a system sets for the policy that it chose.

    They are left out where another policy has been chosen since, by a system on top of it or on the command line:
    `system=simlora scheduler=fcfs` has no `scheduler.margin_s`. So is a class of the user's own that a system names
    where the command line chooses a policy. Where a slot's `_target_` is replaced, by a system or on the command line,
    so are the keys that stood beside it, but for those that the command line gives.
    """

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        parsed, repo = super()._parse_overrides_and_create_caching_repo(config_name, overrides)
        self._typed = {override.key_or_group for override in parsed}
        self._targets = {
            slot: override.value()
            for override in parsed
            for slot in SLOTS
            if override.key_or_group == f"{slot}._target_"
            and not (override.is_delete() or override.is_sweep_override())
        }
        return parsed, repo

    def composed(self, config_name: str, overrides: list[str]) -> tuple[DictConfig, dict[str, str]]:
        """Return the configuration without Hydra's own section, of which overrides say nothing, and the choices.

        Leaving that section out takes half the time. Raises what Hydra raises.
        """
        parsed, repo = self._parse_overrides_and_create_caching_repo(config_name, overrides)
        self.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=False)
        main = repo.load_config(config_name)
        assert main is not None
        assert main.defaults_list is not None
        main.defaults_list = [one for one in main.defaults_list if not _is_hydras(one)]
        listed = listing.create_defaults_list(
            repo, config_name, parsed, prepend_hydra=False, skip_missing=False
        )
        config = self._compose_config_from_defaults_list(listed.defaults, repo)
        OmegaConf.set_struct(config, True)
        self._apply_overrides_to_config(listed.config_overrides, config)
        OmegaConf.set_struct(config, None)
        del config[HYDRA]
        return config, {str(group): str(name) for group, name in listed.overrides.known_choices.items()}

    def _load_configuration_impl(self, config_name: str | None, *args: Any, **keywords: Any) -> DictConfig:
        config = super()._load_configuration_impl(config_name, *args, **keywords)
        # --hydra-help composes Hydra's own configuration alone, whose log of a run it does not open.
        check_hydras_own(config.hydra, LOGS if config_name is not None else LOGS[1:])
        _expand(config.hydra)
        return config

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        of_slots = [default for default in defaults if default.package != DECODE_ROUTER]
        paths = [str(default.config_path).rpartition("/") for default in of_slots]
        self._chosen = {group: name for group, _, name in paths if group in POLICIES}
        self._gone = set[tuple[str, str]]()
        for slot in SLOTS:
            self._gone |= {(path, slot) for path in self._before_another(slot, of_slots, repo)}
        config = super()._compose_config_from_defaults_list(defaults, repo)
        for slot, target in self._targets.items():
            section = config.get(slot)
            if isinstance(section, DictConfig) and item(section, "_target_") not in (None, target):
                with open_dict(section):
                    for key in [*section]:
                        if key != "_target_" and not self._types(f"{slot}.{key}"):
                            del section[key]
        return config

    def _types(self, place: str) -> bool:
        """Whether the command line gives a key, or one below it."""
        return any(f"{key}.".replace("/", ".").startswith(f"{place}.") for key in self._typed)

    def _before_another(
        self, slot: str, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> Iterator[str]:
        """Yield which files say something of a slot before a system's file names another class for it."""
        before, standing = list[str](), None
        for default in defaults:
            path = str(default.config_path)
            loaded = repo.load_config(path) if path.startswith((SYSTEMS, f"{slot}/")) else None
            section = loaded.config if loaded is not None else None
            if path.startswith(SYSTEMS) and isinstance(section, DictConfig):
                section = section.get(slot)
                if self._replaced(slot, path, section, repo):
                    continue
            if not isinstance(section, DictConfig):
                continue
            whole = (
                path.startswith(SYSTEMS) or path.rpartition("/")[0] == slot
            )  # and not a part, as of workload
            target = section.get("_target_") if whole else None
            if target is not None and standing not in (None, target):
                yield from before
                before = []
            standing = target or standing
            before.append(path)

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        path = str(default.config_path)
        if isinstance(loaded.config, DictConfig):
            for slot in SLOTS:
                if slot in loaded.config and (
                    (path, slot) in self._gone
                    or (path.startswith(SYSTEMS) and self._replaced(slot, path, loaded.config[slot], repo))
                ):
                    with open_dict(loaded.config):
                        del loaded.config[slot]
        return loaded

    def _replaced(self, slot: str, path: str, section: Any, repo: IConfigRepository) -> bool:
        """Whether a system's section is of another policy than the slot has now."""
        if slot not in POLICIES:
            return False
        if slot in self._typed and isinstance(section, DictConfig) and "_target_" in section:
            return True
        own = _choice(slot, path, repo)
        return own is not None and own != self._chosen.get(slot, own)


def _is_hydras(default: InputDefault) -> bool:
    """Whether a default is a choice of Hydra's own section."""
    return isinstance(default, GroupDefault) and str(default.group).startswith(f"{HYDRA}/")


def _expand(hydra: DictConfig) -> None:
    """Replace the `~` with which a folder for results begins, which Hydra would make a folder of this name.

    Raises InputError where it begins the name of a folder within that one.
    """
    if str(within := item(hydra, "output_subdir")).startswith("~"):
        raise InputError(
            f"hydra.output_subdir is {shown(within)}, must be the name of a folder in hydra.run.dir, or null"
        )
    for key in ("run.dir", "sweep.dir", "sweep.subdir"):
        section, _, name = key.partition(".")
        written: Any = OmegaConf.to_container(hydra[section])
        for folder in (written[name], item(hydra[section], name)):
            if str(folder).startswith("~"):
                OmegaConf.update(hydra, key, str(expanded(folder)))
                break


def _choice(slot: str, path: str, repo: IConfigRepository) -> str | None:
    """Return which policy a system chooses for a slot, or the system that it is built on; None if neither does."""
    loaded = repo.load_config(path)
    defaults: Sequence[Any] = (loaded.defaults_list if loaded is not None else None) or []
    for default in defaults:
        if isinstance(default, GroupDefault) and str(default.group).lstrip("/") == slot:
            return str(default.value)
    for default in reversed(defaults):
        if isinstance(default, ConfigDefault) and default.path and not default.is_self():
            below = default.path.lstrip("/") if default.path.startswith("/") else f"{SYSTEMS}{default.path}"
            if found := _choice(slot, below, repo):
                return found
    return None
