"""simlora-validate, as a user types it."""

import json

from experiments.validation.server import SERVER, TRAFFIC, served, written
from simlora.cli.validate import main

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --max-loras 8 --max-lora-rank 64 --max-cpu-loras 99"


def test_a_result_and_the_command_of_its_server_are_enough(tmp_path, capsys):
    written(served([*SERVER, *TRAFFIC]), tmp_path / "result.json")
    log = tmp_path / "vllm.log"
    log.write_text("GPU KV cache size: 300,000 tokens\n")
    arguments = ["result.json", "gpu=h100_80g", "--serve", SERVE, "--adapters=8", "--rank=16", "--no-blame"]
    assert main([*arguments, "--startup-log", "vllm.log"]) == 0
    shown = capsys.readouterr()
    assert "notice: vllm as system=vllm model=llama_3_1_8b" in shown.err
    assert "result.json: a result of vllm bench serve" in shown.out
    assert "KV cache    tokens           300,000" in shown.out
    assert "Decode steps that the times of tokens show" in shown.out
    assert "Results: outputs/validate/validation.png" in shown.out
    saved = json.loads((tmp_path / "outputs/validate/validation.json").read_text())
    assert saved["kv_tokens"]["measured"] == 300_000
    assert (tmp_path / "outputs/validate/run/report.html").exists()
    assert (tmp_path / "outputs/validate/requests.parquet").exists()
