"""Which server was measured: what its benchmark's result, the command that started it and the user's overrides say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from simlora.calibrate.shapes import model_named as shape_of
from simlora.config.composing import choices
from simlora.config.engine_flags import ENGINES, OF_LORA, TODAY, WITHOUT_LORA, Started, engine, model_named
from simlora.config.setup import Setup
from simlora.core.errors import InputError, nearest
from simlora.core.trees import leaves
from simlora.validation.measured import Measured

GROUPS = ("system", "model", "gpu")
"""Choices that make another server."""


def server_of(
    found: Measured, command: Started | None, overrides: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the overrides of the measured server, the user's last, and sentences about what was taken from where.

    Raises InputError for a model that simlora does not know, where `overrides` choose none, and for models that differ.
    """
    given, own, notices = _given(overrides), [], []
    system = command.engine if command is not None else found.engine
    if system is not None and "system" not in given:
        own.append(f"system={system}")
    named = {"the command": command.model if command is not None else "", found.path: found.model or ""}
    model, said = _model({where: name for where, name in named.items() if name}, given.get("model"))
    if model is not None and "model" not in given:
        own.append(f"model={model}")
    if system == "vllm" and TODAY.partition("=")[0] not in given:
        own.append(TODAY)
    adapters = bool(found.trace.adapters)
    if command is not None:
        settings = {k: v for k, v in command.settings.items() if adapters or command.lora or k not in OF_LORA}
        own += [f"{key}={str(value).lower()}" for key, value in settings.items()]
        notices.append(f"{command.engine} as {' '.join(own)}")
        notices += [
            f"the command has {key}={_text(value)}, and {key}={given[key]} is given, which is simulated"
            for key, value in settings.items()
            if key in given and given[key] != _text(value)
        ]
        if adapters and not command.lora:
            many = len(found.trace.adapters)
            notices.append(
                f"the command does not enable LoRA, and {found.path} has {many} adapters, which are simulated as if it "
                "did; --base-model names what is none"
            )
        if command.unknown:
            notices.append(f"not simulated: {', '.join(command.unknown)}")
        notices += _too_long(found, command)
    elif own:
        says = " and ".join(name for name in (found.engine, found.model) if name)
        notices.append(f"{found.path} is of {says}; simulated is {' '.join(own)}")
    if not adapters and (command is None or not command.lora) and given.get("system", system) in ENGINES:
        without = [one for one in WITHOUT_LORA if one.partition("=")[0] not in given]
        own += without
        if without:
            words = " ".join(without)
            notices.append(f"no request is for an adapter, and the engine is simulated without LoRA: {words}")
    return [*own, *overrides], [*notices, *said]


def not_said(setup: Setup, command: Started | None, overrides: Sequence[str]) -> list[str]:
    """Return sentences about values of the simulated server that neither the command nor `overrides` say."""
    given, notices = _given(overrides), []
    groups = [f"{group}={setup.about[group]}" for group in GROUPS if group not in given]
    if groups:
        notices.append(f"simulated is {' '.join(groups)}, as nothing says another")
    left = [] if command is None else [key for key in command.left if key not in given]
    if command is not None and left:
        values = dict(leaves(yaml.safe_load(setup.config)))
        flags = ", ".join(engine(command.engine).flags[key] for key in left)
        simulated = " ".join(f"{key}={_text(values.get(key))}" for key in left)
        notices.append(
            f"the command leaves {flags} to {command.engine}, which chooses by its version, GPU and adapters; "
            f"simulated is {simulated}"
        )
    return notices


def _too_long(found: Measured, command: Started) -> list[str]:
    """Return a sentence about requests that are longer than the command lets them be, where there are some."""
    flag = engine(command.engine).context
    most = next((one.removeprefix(flag).strip() for one in command.unknown if one.startswith(f"{flag} ")), "")
    held = found.trace.prompt_tokens.astype(np.int64) + found.trace.output_tokens
    long = int((held > int(most)).sum()) if most.isdecimal() else 0
    if not long:
        return []
    return [
        f"{long:,} of {len(held):,} requests have more tokens than {flag} {most}, up to {held.max():,}: the command's "
        "server would have refused them"
    ]


def _given(overrides: Sequence[str]) -> dict[str, str]:
    """Return what overrides set, the last of each key."""
    return {key: value for key, _, value in (override.partition("=") for override in overrides)}


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower()


def _model(named: Mapping[str, str], given: str | None) -> tuple[str | None, list[str]]:
    """Return simlora's model, None where nothing names one, and sentences about names that simlora does not know.

    `named` is what names a model, by where that stands; `given` is the user's choice.
    """
    model, notices = given, []
    for where, name in named.items():
        known = model_named(name)
        if known is None and given is None:
            raise InputError(
                f"{where} has the model {name}, which simlora does not know; model=NAME must say which it is like, "
                f"{nearest(name.rpartition('/')[2], choices('model'))}"
            )
        if known is None:
            notices.append(
                f"{where} has the model {name}, which simlora does not know; simulated is model={model}"
            )
            continue
        model = model or known
        if not _alike(known, model):
            raise InputError(
                f"{where} has the model {name}, which is model={known}, and model={model} would be simulated; must be "
                "the same"
            )
    return model, notices


def _alike(one: str, other: str) -> bool:
    """Return whether models have the same shape; a model of the user's own may be any."""
    if one == other or other not in choices("model"):
        return True
    shape = shape_of(one)
    return {**vars(shape_of(other)), "name": shape.name} == vars(shape)
