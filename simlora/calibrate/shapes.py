"""GPUs and models by name, and models from Hugging Face's config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simlora.config.composing import choices, compose
from simlora.config.making import make
from simlora.config.own_folder import own_choices, own_folder
from simlora.core.errors import InputError, nearest
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
MIXTURES = ("MixtralForCausalLM", "Qwen3MoeForCausalLM")


def gpu_named(name: str, own: Path | None = None) -> Gpu:
    """Return a GPU of `own`, a folder of the user's configurations, or of simlora. Raises InputError for neither."""
    return make({"gpu": _chosen("gpu", name, own)}, "gpu", Gpu)


def model_named(name: str, own: Path | None = None) -> ModelShape:
    """Return a model of a folder with config.json, of `own`, or of simlora. Raises InputError for none of them."""
    folder = Path(name)
    if (folder / "config.json").is_file():
        return from_hugging_face(folder)
    return make({"model": _chosen("model", name, own)}, "model", ModelShape)


def from_hugging_face(folder: Path) -> ModelShape:
    """Return the shape that a folder's config.json describes, named after the folder.

    Raises InputError, naming the file and the key, for what it lacks and for architectures that are not of the Llama
    family.
    """
    path = folder / "config.json"
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path} is not a mapping, must be a model's configuration as Hugging Face has it")
    architecture = (tree.get("architectures") or [None])[0]
    known = (*ARCHITECTURES, *MIXTURES)
    if architecture not in known:
        raise InputError(f"{path} has architecture {architecture!r}, must be one of {', '.join(known)}")
    hidden, heads = _whole(tree, "hidden_size", path), _whole(tree, "num_attention_heads", path)
    experts, each = 1, 1
    intermediate = _whole(tree, "intermediate_size", path)
    if architecture in MIXTURES:
        experts = _whole(tree, "num_experts" if "num_experts" in tree else "num_local_experts", path)
        each = _whole(tree, "num_experts_per_tok", path)
        intermediate = int(tree.get("moe_intermediate_size", intermediate))
    return ModelShape(
        name=_identifier(folder.resolve().name),
        layers=_whole(tree, "num_hidden_layers", path),
        hidden=hidden,
        heads=heads,
        kv_heads=int(tree.get("num_key_value_heads") or heads),
        head_dim=int(tree.get("head_dim") or hidden // heads),
        intermediate=intermediate,
        vocab=_whole(tree, "vocab_size", path),
        tied_embeddings=bool(tree.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM",
        lora_vocabulary=architecture in ("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
        experts=experts,
        experts_per_token=each,
    )


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


def _whole(tree: dict[str, Any], key: str, path: Path) -> int:
    value = tree.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path} has {key} {value!r}, must be a whole number of at least 1")
    return value


def _chosen(group: str, name: str, own: Path | None) -> Any:
    """Return what a choice says. Raises InputError if the group has none of that name."""
    override = () if own is None else (own_folder(own),)
    known = sorted({*choices(group), *own_choices(group, override)})
    if name not in known:
        raise InputError(f"there is no {group} {name!r}; {nearest(name, known)}")
    config, _ = compose([*override, f"{group}={name}"])
    return OmegaConf.to_container(config[group])
