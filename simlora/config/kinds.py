"""Replicas on other GPUs than the rest."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from simlora.config.calibration import calibration_for
from simlora.config.composing import FOLDER, choices
from simlora.config.making import make
from simlora.config.replica import replica_config
from simlora.core.checks import shown, whole
from simlora.core.errors import InputError, nearest
from simlora.engine.scenario import Kind
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape

KEYS = ("gpu", "replicas", "tp", "calibration", "kv_token_budget")
EXAMPLE = "such as [{gpu: a100_80g, replicas: 2}]"


def other_kinds(
    value: Any, replica: dict[str, Any], model: ModelShape, engine: Any, chunks: bool
) -> tuple[tuple[Kind, ...], list[str]]:
    """Return the kinds that cluster.replica_groups lists, and notices about their calibrations.

    Of each `gpu`, a name or a section like `gpu`, and `replicas` must be there; `tp` is replica.tp, `calibration` that
    of the GPU, the model and tp, and `kv_token_budget` what the GPU has left, unless they are given. All else is as the
    section `replica` says. Raises InputError for anything else.
    """
    if not isinstance(value, list):
        raise InputError(f"cluster.replica_groups is {shown(value)}, must be a list, {EXAMPLE}")
    kinds, notices = [], []
    for each in value:
        if not isinstance(each, dict) or not {"gpu", "replicas"} <= each.keys() <= set(KEYS):
            raise InputError(
                f"cluster.replica_groups has {shown(each)}, must have gpu and replicas, and may have tp, calibration "
                f"and kv_token_budget, {EXAMPLE}"
            )
        gpu = _gpu(each["gpu"])
        own = {"tp": each.get("tp", replica.get("tp")), "kv_token_budget": each.get("kv_token_budget")}
        try:
            config = replica_config(replica | own, gpu, model, 1, chunks)
            calibration, differs = calibration_for(each.get("calibration"), gpu, model, config, engine)
        except InputError as error:
            raise type(error)(f"cluster.replica_groups: on {gpu.name}, {error}") from error
        count = whole("replicas of cluster.replica_groups", each["replicas"], "replicas", least=1)
        kinds.append(Kind(replicas=count, replica=config, calibration=calibration, gpu=gpu))
        notices += differs
    return tuple(kinds), notices


def _gpu(value: Any) -> Gpu:
    if isinstance(value, dict):
        return make({"gpu": value}, "gpu", Gpu)
    known = choices("gpu")
    if value not in known:
        raise InputError(
            f"gpu of cluster.replica_groups is {shown(value)}, which is unknown; {nearest(str(value), known)}"
        )
    return make({"gpu": OmegaConf.to_container(OmegaConf.load(FOLDER / "gpu" / f"{value}.yaml"))}, "gpu", Gpu)
