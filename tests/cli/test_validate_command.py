"""simlora-validate, as a user types it."""

import json

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.json"], "none.json does not exist"),
        (["sums.json"], "sums.json has 1 fault, which stands in the table above; nothing was written"),
        (["result.json", "--adapters=8"], "--adapters needs --rank"),
        (["result.json", "--serve", "run me"], "starts no engine whose flags are known"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_status_2(arguments, said, tmp_path, capsys):
    written(served([*SERVER, *TRAFFIC]), tmp_path / "result.json")
    (tmp_path / "sums.json").write_text(json.dumps({"request_throughput": 3.0, "total_input_tokens": 9}))
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
