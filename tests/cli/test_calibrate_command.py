"""simlora-calibrate as a user types it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.calibrate import aiconfigurator
from simlora.calibrate.host import lora_s, read_steps
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.cli.calibrate import main
from simlora.latency import calibration as calibrations
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Vllm
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
    assert shown.coefficients == pytest.approx(known.coefficients, rel=1e-5)


def test_derive_writes_the_calibration_of_a_folder_and_says_how_to_run_it(monkeypatch, folder, capsys):
    def answer(gpu, model, tp, engine):
        assert (gpu, model.name, model.layers, model.qkv_bias) == ("l40s", "my_model", 28, True)
        return shipped()[("l40s", "qwen_2_5_7b", tp, engine)]

    monkeypatch.setattr(aiconfigurator, "measured", answer)
    assert main(["derive", "--gpu", "l40s", "--model", str(folder), "--out", "own.yaml"]) == 0
    said = capsys.readouterr()
    assert "++model.name=my_model" in said.out
    assert "calibration=own.yaml" in said.out
    assert "is derived" in said.err
    assert calibrations.load("own.yaml").provenance["kind"] == "derived"


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
    sizes = {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "head_dim": 128}
    mixture = CONFIG | sizes | {"architectures": ["Qwen3MoeForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(mixture))
    model = model_named(str(folder))
    assert (model.experts, model.experts_per_token, model.intermediate, model.head_dim) == (60, 4, 1408, 128)
    assert not model.qkv_bias


HOST, PARTS = (0.004, 3e-5), ("intercept", "per_sequence")
"""Seconds of a step and of a sequence, of a server of one's own."""


FIT = ["fit", "steps.csv", "--gpu=l40s", "--model=mistral_7b", "--tp=2"]


def steps(adapters=0, noise=0.0):
    """Write decode steps of Mistral-7B on two L40S with that host, as a table."""
    own = composed(gpu_named("l40s"), model_named("mistral_7b"), 2, "vllm")
    iteration, kernel = IterationModel(own), Vllm(own, 16, 16)
    step_s, sequence_s = (need - own.need(f"host.{name}_s") for need, name in zip(HOST, PARTS, strict=True))
    slots = 16 if adapters else 0
    rows = ["batch,context_tokens,step_s,adapters,slots,max_lora_rank"]
    for number, batch in enumerate((1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192)):
        work = LoraWork(batch * (adapters > 0), 0, 16, adapters)
        seconds = iteration.decode_s(batch, 500 * batch) + kernel.decode_s(work) + step_s + sequence_s * batch
        seconds *= 1 + noise * (-1) ** number
        rows.append(f"{batch},{500 * batch},{seconds:.9f},{adapters},{slots},{slots}")
    Path("steps.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("adapters", [0, 3])
def test_fit_finds_the_host_of_a_server_of_ones_own(capsys, adapters):
    steps(adapters)
    assert main([*FIT, "--out=mine.yaml"]) == 0
    found = calibrations.load("mine.yaml")
    assert [found.need(f"host.{name}_s") for name in PARTS] == pytest.approx(HOST, rel=0.01)
    assert "measured decode steps of steps.csv" in found.provenance["parts"]["host"]
    printed = capsys.readouterr().out
    assert "10 steps fitted, 2 judge" in printed
    assert "calibration=mine.yaml model=mistral_7b" in printed


def test_lists_of_adapters_are_no_host_time():
    """As many adapters are known as there are slots: 16, for each of three."""
    steps(adapters=3)
    own = composed(gpu_named("l40s"), model_named("mistral_7b"), 2, "vllm")
    free, listing = (
        lora_s(
            replace(own, coefficients=dict(own.coefficients) | {"lora_manager.per_listed_adapter_s": each_s}),
            read,
        )
        for read in [read_steps("steps.csv")]
        for each_s in (0.0, 1e-5)
    )
    assert listing - free == pytest.approx(np.full(12, 3 * 16 * 1e-5))


def test_fit_says_what_error_is_left_and_is_of_the_engine_that_has_one_host_part(capsys):
    steps(noise=0.1)
    assert main([*FIT, "--out=mine.yaml"]) == 0
    assert 0.03 < calibrations.load("mine.yaml").provenance["error"]["median"] < 0.3
    assert main([*FIT[:-1], "--engine=slora"]) == 2
    assert "fit is for --engine vllm, not slora" in capsys.readouterr().err


@pytest.mark.parametrize(
    "rows, message",
    [
        (["1,500,0.01"] * 9, "has steps of 1 batches, must have 5 at least"),
        (["1,500,0"], "row 2 has step_s 0, must be above 0 seconds"),
        (["x,500,0.01"], "row 2: batch is 'x', must be a whole number, at least 1"),
    ],
)
def test_a_table_that_cannot_be_fitted_is_refused(capsys, rows, message):
    Path("steps.csv").write_text("\n".join(["batch,context_tokens,step_s", *rows]) + "\n")
    assert main(FIT[:-1]) == 2
    assert message in capsys.readouterr().err
