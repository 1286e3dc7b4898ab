"""Reads the published profiles: what was measured, in seconds, one row a setting.

The schemas are Vidur's and Frontier's (milliseconds of each operator of one layer) and Splitwise's (milliseconds
of whole iterations). Every function raises InputError for a file or a column that is not there.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from simlora.core.errors import InputError

MATRICES = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
"""Operators of a layer that read weights."""
VECTORS = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add")
"""Operators of a layer that touch activations only."""
EMBEDDING = "emb"
"""Once a model, not once a layer."""


def operators(path: Path) -> pd.DataFrame:
    """Return the median seconds of every operator, indexed by (tp, tokens); attention is not among them."""
    names = (*MATRICES, *VECTORS, EMBEDDING)
    keys = {"num_tensor_parallel_workers": "tp", "num_tokens": "tokens"}
    medians = {f"time_stats.{name}.median": name for name in names}
    table = _read(path, [*keys, *medians]).rename(columns=keys | medians)
    return table.groupby(["tp", "tokens"]).median() / 1e3


def attention_prefill(path: Path) -> pd.DataFrame:
    """Return the median `seconds` of one layer's attention of a whole prompt of `tokens`.

    The table's time to save keys and values is not in it: its kernel works a sequence at a time and takes
    50 times as long for a prompt's token as for a decoded one. `attention_decode` has the latter.
    """
    table = _attention(path)
    prompts = table[table.is_prefill & (table.kv_cache_size == 0)]
    kept = prompts.groupby("prefill_chunk_size")["time_stats.attn_prefill.median"].median() / 1e3
    return kept.rename_axis("tokens").rename("seconds").reset_index()


def attention_decode(path: Path) -> pd.DataFrame:
    """Return the median `seconds` and `save_s` of one layer's attention for a `batch` of `context` tokens each."""
    table = _attention(path)
    steps = table[~table.is_prefill].rename(columns={"batch_size": "batch", "kv_cache_size": "context"})
    columns = {"time_stats.attn_decode.median": "seconds", "time_stats.attn_kv_cache_save.median": "save_s"}
    return (
        (steps.groupby(["batch", "context"])[list(columns)].median() / 1e3)
        .rename(columns=columns)
        .reset_index()
    )


def all_reduce(path: Path, gpus: int) -> pd.DataFrame:
    """Return the `seconds` of an all-reduce of `size` bytes among `gpus` of one node.

    The least of its repetitions, as the median has waiting for a late partner in it: at 8 kB it jumps between
    7 and 40 microseconds from one size to the next.
    """
    least = "time_stats.all_reduce.min"
    table = _read(path, [least, "num_workers", "devices_per_node", "size"])
    one_node = table[(table.num_workers == gpus) & (table.devices_per_node == gpus)]
    if one_node.empty:
        raise InputError(f"{path.name} has no all-reduce among {gpus} GPUs of one node")
    return (one_node.groupby("size")[least].median() / 1e3).rename("seconds").reset_index()


def iterations(path: Path, model: str, hardware: str, tp: int) -> pd.DataFrame:
    """Return the median `prompt_s` and `token_s` by `prompt` tokens, `batch` and `output` tokens.

    Left out: batches that cannot have run as one, as their prompts took less time than half as many took.
    """
    columns = {
        "prompt_size": "prompt",
        "batch_size": "batch",
        "token_size": "output",
        "prompt_time": "prompt_s",
        "token_time": "token_s",
    }
    table = _read(path, [*columns, "model", "hardware", "tensor_parallel"]).rename(columns=columns)
    chosen = table[(table.model == model) & (table.hardware == hardware) & (table.tensor_parallel == tp)]
    if chosen.empty:
        raise InputError(f"{path.name} has no rows for {model} on {hardware} with tensor_parallel {tp}")
    medians = chosen.groupby(["prompt", "batch", "output"])[["prompt_s", "token_s"]].median() / 1e3
    found = medians.reset_index()
    half = found.assign(batch=found.batch * 2)[["prompt", "batch", "output", "prompt_s"]]
    joined = found.merge(half, how="left", on=["prompt", "batch", "output"], suffixes=("", "_of_half"))
    return found[~(joined.prompt_s < joined.prompt_s_of_half).to_numpy()].reset_index(drop=True)


def _attention(path: Path) -> pd.DataFrame:
    names = ("attn_prefill", "attn_decode", "attn_kv_cache_save")
    columns = [f"time_stats.{name}.median" for name in names]
    return _read(path, [*columns, "batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill"])


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path} is not there") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV table: {error}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(f"{path.name} has no column {missing[0]}")
    return table[columns]
