"""Speculative decoding, expert parallelism, a LoRA server and quantised adapters, as a configuration says them."""

import pytest

from experiments.scenarios import scenario
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.building import latency_models
from simlora.hardware.model import ModelShape

ON = (
    "gpu=h100_80g",
    "model=qwen3_32b",
    "replica.tp=2",
    "system=vllm",
    "replica.max_loras=4",
    "replica.max_lora_rank=16",
    "workload.ranks=[16]",
    "workload.duration_s=5",
    "timeline=false",
)
MIXTURE = ("model=qwen3_30b_a3b", "replica.tp=4")


def pool(*overrides: str) -> int:
    return scenario([*ON, *overrides]).replica.kv_token_budget


def command(*overrides: str) -> str | None:
    found: str | None = prepare(*compose([*ON, *overrides])).about["serve"]
    return found


def test_a_draft_takes_weights_and_kv_of_its_own():
    """Qwen3-8B beside Qwen3-32B: 16.4 GB of weights, and 147,456 bytes of KV beside 262,144."""
    target, draft = (shape(name) for name in ("qwen3_32b", "qwen3_8b"))
    free_bytes = pool() * target.kv_bytes_per_token
    expected = (free_bytes - draft.weight_bytes) / (target.kv_bytes_per_token + draft.kv_bytes_per_token)
    assert pool("speculation.tokens=3", "speculation.draft=qwen3_8b") == pytest.approx(expected, abs=2)
    assert pool("speculation.tokens=3") == pool(), "n-grams take nothing"
    assert pool("speculation.draft=qwen3_8b") == pool(), "without tokens there is no draft"


def test_eagles_head_takes_a_layer():
    target = shape("qwen3_32b")
    free_bytes = pool() * target.kv_bytes_per_token - 2 * target.eagle_parameters
    expected = free_bytes / (target.kv_bytes_per_token * 65 / 64)
    assert pool("speculation.tokens=3", "speculation.draft=eagle") == pytest.approx(expected, abs=2)


def test_a_replica_boots_with_the_weights_of_its_draft():
    def boot_s(*more: str) -> float:
        return scenario([*ON, "autoscaler=by_queue", "cluster.start_s=0", *more]).scaling.boot_s

    own, draft = shape("qwen3_32b").weight_bytes, shape("qwen3_8b").weight_bytes
    both_s = boot_s("speculation.tokens=3", "speculation.draft=qwen3_8b")
    assert both_s / boot_s() == pytest.approx((own + draft) / own, rel=1e-3)


def shape(name: str) -> ModelShape:
    return scenario([f"model={name}", "gpu=h100_80g", "workload.duration_s=1"]).model


def test_a_model_that_drafts_has_its_own_calibration_on_the_same_gpus():
    found = scenario([*ON, "speculation.tokens=3", "speculation.draft=qwen3_8b"])
    assert found.speculation.calibration.path == "h100_80g-qwen3_8b-tp2-vllm"
    assert latency_models(found, found.kinds[0]).draft is not None


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("null", None),
        ("[0.4,0.8]", (0.4, 0.8)),
        ("{16: 0.5}", {16: 0.5}),
    ],
)
def test_acceptance_of_adapters(given, found):
    of = scenario([*ON, f"speculation.adapter_acceptance={given}"]).speculation.adapter_acceptance
    assert of == found


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["speculation.draft=qwen3_9b"], "speculation.draft is 'qwen3_9b', which is unknown; did you mean"),
        (["speculation.draft=llama_3_1_8b"], "whose vocabulary has 128,256 tokens, must have the 151,936"),
        (["speculation.adapter_acceptance=[0.4]"], "must have two numbers"),
        (["speculation.adapter_acceptance={8: 0.5}"], "has no rank 16, which an adapter has"),
        (
            [
                "speculation.draft=qwen3_8b",
                "cluster.replica_groups=[{gpu: a100_80g, replicas: 1, tp: 4}]",
                "cluster.replicas=2",
            ],
            "needs cluster.replica_groups on the same GPU",
        ),
        (["replica.expert_parallel=true"], "needs a model with experts"),
        (["replica.adapter_bits='8'"], "replica.adapter_bits is '8', must be 16, 8, 4 or null"),
    ],
)
def test_what_cannot_be_is_one_sentence(overrides, message):
    with pytest.raises(InputError, match=message.replace("[", r"\[").replace("{", r"\{")):
        scenario([*ON, "speculation.tokens=3", *overrides])


def test_the_command_that_starts_the_engine_has_the_draft_and_the_experts():
    with_draft = command("speculation.tokens=3", "speculation.draft=qwen3_8b") or ""
    assert with_draft.endswith(
        """--speculative-config '{"model": "qwen3_8b", "num_speculative_tokens": 3}'"""
    )
    assert '"method": "ngram"' in (command("speculation.tokens=2") or "")
    assert (command(*MIXTURE, "replica.expert_parallel=true") or "").endswith("--enable-expert-parallel")


@pytest.mark.parametrize(
    "overrides",
    [
        ["replica.adapter_bits=4"],
        ["speculation.tokens=2", "speculation.most_running=8"],
        ["system=sglang", "speculation.tokens=2"],
    ],
)
def test_no_command_is_shown_that_starts_something_else(overrides):
    assert command(*overrides) is None
