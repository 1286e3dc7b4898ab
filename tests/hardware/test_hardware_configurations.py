"""Every model and GPU of the configuration is what was published."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

import simlora
from simlora.hardware.budget import kv_token_budget

CONF = Path(simlora.__file__).parent / "conf"
CPU, SMALL = "cpu", "llama_16m"
"""What simlora-profile measures where there is no GPU: neither is published."""
GPUS = sorted({file.stem for file in (CONF / "gpu").glob("*.yaml")} - {CPU})
PARAMETERS = {
    "llama_7b": 6.74e9,
    "llama_13b": 13.02e9,
    "llama_30b": 32.5e9,
    "llama_2_7b": 6.74e9,
    "llama_2_13b": 13.02e9,
    "llama_34b": 33.74e9,  # Code Llama's
    "llama_2_70b": 68.98e9,
    "llama_2_70b_mha": 78.37e9,  # ours: LoRAServe's 70B without grouped queries has no published count
    "llama_30b_m": 30.41e9,  # S-LoRA's own shapes: by hand from them
    "llama_70b_m": 70.32e9,
    "llama_3_1_8b": 8.03e9,
    "qwen_2_5_7b": 7.62e9,
    "llama_3_3_70b": 70.55e9,
    "mistral_7b": 7.24e9,
    "mixtral_8x7b": 46.7e9,
    "qwen3_8b": 8.19e9,
    "qwen3_14b": 14.77e9,
    "qwen3_32b": 32.76e9,
    "qwen3_30b_a3b": 30.53e9,
}


def configured(group: str, name: str):
    return instantiate(OmegaConf.load(CONF / group / f"{name}.yaml"))


def test_there_is_no_other_model():
    assert {file.stem for file in (CONF / "model").glob("*.yaml")} == {*PARAMETERS, SMALL}


@pytest.mark.parametrize("name, parameters", PARAMETERS.items())
def test_models_have_their_published_size(name, parameters):
    model = configured("model", name)
    assert model.name == name
    assert model.parameters == pytest.approx(parameters, rel=1.5e-3)
    if not name.startswith("qwen3"):  # Qwen3's heads are wider than its hidden state divided among them
        assert model.hidden == model.heads * model.head_dim


@pytest.mark.parametrize("name", PARAMETERS)
def test_adapters_take_four_slots_a_rank_where_queries_are_not_grouped_and_more_where_they_are(name):
    model = configured("model", name)
    slots = model.adapter_kv_tokens(16)
    assert slots == 64 if model.kv_heads == model.heads else slots > 64


def test_the_small_model_has_the_parameters_of_its_name_beside_a_cpu_that_holds_it():
    model = configured("model", SMALL)
    assert model.parameters == pytest.approx(16e6, rel=0.01)
    assert kv_token_budget(model, configured("gpu", CPU)) > 10_000


@pytest.mark.parametrize("name", GPUS)
def test_gpus_have_plausible_data_sheets_and_hold_a_model_of_7b(name):
    gpu = configured("gpu", name)
    assert gpu.name == name
    assert 24e9 <= gpu.memory_bytes <= 192e9
    assert 300e9 <= gpu.memory_bandwidth_bytes_per_s <= 8e12
    assert 70e12 <= gpu.fp16_flops <= 2250e12
    assert gpu.peer_link.bytes_per_s >= gpu.host_link.bytes_per_s
    assert kv_token_budget(configured("model", "llama_7b"), gpu) > 10_000


def test_a_link_can_be_chosen_by_name_or_described():
    file = OmegaConf.load(CONF / "gpu" / "a10g.yaml")
    file.host_link = "pcie_3_x16"
    file.peer_link = {
        "_target_": "simlora.hardware.link.Link",
        "name": "own",
        "latency_s": 0,
        "bytes_per_s": 1e9,
    }
    gpu = instantiate(file)
    assert (gpu.host_link.name, gpu.peer_link.name) == ("pcie_3_x16", "own")
