"""Speculative decoding, as the section `speculation` says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf

from simlora.config.calibration import calibration_for
from simlora.config.composing import FOLDER, choices
from simlora.config.making import make
from simlora.config.reading import Tree, as_whole, section
from simlora.config.replica import SPECULATES_NOT, Speculates
from simlora.core.checks import listed, number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Kind
from simlora.engine.speculation import EAGLE, NGRAM, Speculation
from simlora.hardware.budget import NO_DRAFT, draft_memory, eagle_memory
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape

LOOKUP_MOST = 4
"""Tokens of the n-grams that vLLM looks up, at most; its documentation's example."""
KEYS = ("tokens", "draft", "acceptance", "adapter_acceptance", "most_running")


def speculation_of(tree: Tree, model: ModelShape) -> tuple[Speculation, Speculates, ModelShape | None]:
    """Return what is proposed, what that takes of a replica's memory, and the model that drafts, if one does.

    `with_calibration` adds such a model's calibration. Raises InputError.
    """
    written = section(tree, "speculation", KEYS)
    found = Speculation(
        tokens=as_whole(written.get("tokens")),
        draft=str(written.get("draft")),
        acceptance=number("speculation.acceptance", written.get("acceptance"), least=0, most=1),
        adapter_acceptance=_of_adapters(written.get("adapter_acceptance")),
        most_running=as_whole(written.get("most_running")),
    )
    draft = None if found.draft in (NGRAM, EAGLE) else _model(written.get("draft"), model)
    if not found.tokens:
        return found, SPECULATES_NOT, None
    memory = eagle_memory(model) if found.draft == EAGLE else NO_DRAFT
    return found, Speculates(found.tokens, memory if draft is None else draft_memory(draft)), draft


def with_calibration(
    found: Speculation,
    draft: ModelShape | None,
    replica: ReplicaConfig,
    gpu: Gpu,
    others: Sequence[Kind],
    engine: Any,
    apart: bool,
) -> Speculation:
    """Return the same with how long the model takes that drafts.

    Raises InputError where that is not known, and where not all replicas have the same GPUs.
    """
    if draft is None:
        return found
    if any(kind.gpu != gpu or kind.replica.tp != replica.tp for kind in others):
        raise InputError(
            f"speculation.draft={draft.name} needs cluster.replica_groups on the same GPU and with the same tp, or "
            f"{EAGLE} or {NGRAM} as draft"
        )
    apart = apart and draft.experts > 1
    try:
        return replace(found, calibration=calibration_for(None, gpu, draft, replica, engine, apart=apart)[0])
    except InputError as error:
        raise InputError(f"speculation.draft={draft.name}: {error}") from error


def speculative_flags(engine: str, speculation: Speculation) -> str | None:
    """Return what a command that starts the engine needs for it, after a blank; None where that is not known."""
    if not speculation.tokens:
        return ""
    if engine != "vllm" or speculation.most_running is not None:
        return None
    method: dict[str, Any] = {"model": speculation.draft}
    if speculation.draft == NGRAM:
        method = {"method": NGRAM, "prompt_lookup_max": LOOKUP_MOST}
    elif speculation.draft == EAGLE:
        method = {"method": EAGLE, "model": "HEAD"}
    config = json.dumps(method | {"num_speculative_tokens": speculation.tokens})
    return f" --speculative-config {shlex.quote(config)}"


def _of_adapters(value: Any) -> tuple[float, float] | dict[int, float] | None:
    key = "speculation.adapter_acceptance"
    if value is None:
        return None
    if isinstance(value, dict):
        return {whole(f"a rank of {key}", as_whole(rank), least=1): value[rank] for rank in value}
    both = listed(key, value, "[0.5, 0.8]")
    if len(both) != 2:
        raise InputError(f"{key} is {shown(value)}, must have two numbers, such as [0.5, 0.8]")
    low, high = (number(key, one, least=0, most=1) for one in both)
    return low, high


def _model(name: Any, target: ModelShape) -> ModelShape:
    """Return the model that drafts for a target."""
    known = choices("model")
    if name not in known:
        ours = (NGRAM, EAGLE, *known)
        raise InputError(f"speculation.draft is {shown(name)}, which is unknown; {nearest(str(name), ours)}")
    draft = make(
        {"model": OmegaConf.to_container(OmegaConf.load(FOLDER / "model" / f"{name}.yaml"))},
        "model",
        ModelShape,
    )
    if draft.vocab != target.vocab:
        raise InputError(
            f"speculation.draft is {draft.name}, whose vocabulary has {draft.vocab:,} tokens, must have the "
            f"{target.vocab:,} of {target.name}"
        )
    return draft
