"""simlora-calibrate as a user types it."""

from __future__ import annotations

import json

import pytest

from simlora.calibrate import aiconfigurator
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.cli.calibrate import main
from simlora.latency import calibration as calibrations
from simlora.latency.parts.composed import composed
from simlora.latency.parts.kernel_times import shipped

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "My-Model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def test_list_shows_what_has_all_words_in_its_name(capsys):
    assert main(["list", "h100_64g", "vllm", "8b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = {line.split()[0]: line.split()[1] for line in lines}
    assert kinds["h100_64g-llama_3_1_8b-tp1-vllm"] == "published"
    assert kinds["h100_64g-qwen3_8b-tp2-vllm"] == "derived"
    assert all("h100_64g" in name for name in kinds)


def test_what_is_shown_is_a_calibration_file(capsys, tmp_path):
    assert main(["show", "l40s-mistral_7b-tp2-vllm"]) == 0
    shown = calibrations.parse(capsys.readouterr().out, "shown")
    known = composed(gpu_named("l40s"), model_named("mistral_7b"), 2, "vllm")
    assert known is not None
    assert shown.coefficients == pytest.approx(known.coefficients, rel=1e-5)


def test_derive_writes_the_calibration_of_a_folder_and_says_how_to_run_it(
    monkeypatch, folder, tmp_path, capsys
):
    def answer(gpu, model, tp, engine):
        assert (gpu, model.name, model.layers, model.qkv_bias) == ("l40s", "my_model", 28, True)
        return shipped()[("l40s", "qwen_2_5_7b", tp, engine)]

    monkeypatch.setattr(aiconfigurator, "measured", answer)
    out = tmp_path / "own.yaml"
    assert main(["derive", "--gpu", "l40s", "--model", str(folder), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "++model.name=my_model" in said.out
    assert f"calibration={out}" in said.out
    assert "is derived" in said.err
    assert calibrations.load(str(out)).provenance["kind"] == "derived"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["list", "h900"], "no calibration has h900 in its name"),
        (["show"], "show takes the name of one calibration"),
        (["show", "l40s-mistral_7b-tp2-vlm"], "did you mean l40s-mistral_7b-tp2-vllm"),
        (["derive", "--gpu", "l40s"], "needs --model"),
        (["derive", "--gpu", "l4os", "--model", "mistral_7b"], "did you mean l40s"),
        (["derive", "--gpu", "npu_64g", "--model", "mistral_7b"], "kernels of npu_64g are not known"),
        (
            ["derive", "--gpu", "l40s", "--model", "mistral_7b", "--tp", "5"],
            "must divide the 32 attention heads",
        ),
        (["derive", "--gpu", "l40s", "--model", "mistral_7b", "--tp", "0"], "--tp is 0, must be at least 1"),
    ],
)
def test_a_mistake_is_said_in_a_sentence(arguments, sentence, capsys):
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"architectures": ["MambaForCausalLM"]}, "has architecture 'MambaForCausalLM', must be one of"),
        ({"hidden_size": None}, "has hidden_size None, must be a whole number"),
    ],
)
def test_a_config_that_is_not_of_the_family_is_refused(change, sentence, folder, capsys):
    (folder / "config.json").write_text(json.dumps(CONFIG | change))
    assert main(["derive", "--gpu", "l40s", "--model", str(folder)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_mixture_of_experts_has_its_own_keys(folder):
    mixture = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "head_dim": 128,
    }
    (folder / "config.json").write_text(json.dumps(CONFIG | mixture))
    model = model_named(str(folder))
    assert (model.experts, model.experts_per_token, model.intermediate, model.head_dim) == (60, 4, 1408, 128)
    assert not model.qkv_bias
