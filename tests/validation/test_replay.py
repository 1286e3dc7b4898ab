"""A server is simulated again from its benchmark's result: here a simulation whose calibration is known."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simlora
from experiments.validation.server import BUSY, CONFIG, EIGHT, SERVER, TRAFFIC, as_rows, served, written
from simlora.calibrate.calibration_file import save, text_of
from simlora.calibrate.scaling import HOST_TIME, LORA, PROMPTS, parts_of, scaled, with_host
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.config.engine_flags import TODAY
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.parts.composed import composed
from simlora.validation import blame
from simlora.validation.measured import Unsaid, read_measured
from simlora.validation.replay import kv_tokens_in
from simlora.validation.steps import decode_steps


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def slow_host() -> dict[str, Any]:
    """The result of a server whose host takes 1.6 times as long as the calibration says."""
    return served([*SERVER, *BUSY], lambda calibration: scaled(calibration, HOST_TIME, 1.6))


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    """The result of a server that is as calibrated."""
    return served([*SERVER, *TRAFFIC])


def test_a_server_that_is_as_calibrated_has_no_error_and_no_part_to_blame(usual, tmp_path):
    path = written(as_rows(usual), tmp_path / "result.json")
    found = simlora.validate(path, CONFIG)
    for name, part, measured, simulated in found.figures():
        of_tokens = name == "ITL"  # whose percentiles are those of a histogram, within 0.4 %
        assert simulated == pytest.approx(measured, rel=0.004 if of_tokens else 1e-6), (name, part)
    assert found.parts == ()
    assert "no part of the calibration is to blame" in found.text()


def test_the_mean_error_is_that_of_the_rows_it_names(few, tmp_path):
    slow = few | {"ttfts": [20 * seconds for seconds in few["ttfts"]]}
    found = simlora.validate(written(slow, tmp_path / "result.json"), CONFIG, unsaid=EIGHT, blame=False)
    rows = {
        (name, part): abs(simulated / measured - 1) for name, part, measured, simulated in found.figures()
    }
    named = [(name, part) for name in ("TTFT", "TPOT") for part in ("mean", "p50", "p95")]
    of = [rows[row] for row in (*named, ("Throughput", "tokens/s"))]
    assert found.base.error == pytest.approx(sum(of) / len(of))
    assert found.base.error < 1, "none is more than 100 %, where the simulation is too fast"
    assert (
        f"Mean error {100 * found.base.error:.1f} %: the mean of |simulated / measured - 1| over mean, p50 and p95 of "
        "TTFT and TPOT, and tokens/s." in found.text()
    )


def test_the_part_that_differs_is_blamed_by_its_factor(tmp_path, monkeypatch):
    monkeypatch.setattr(blame, "HALVINGS", 2)
    factor = 2**0.75  # the first halving tries 0.5 and 1.5 octaves, the second 0.75
    busy = served([*SERVER, *BUSY], lambda calibration: scaled(calibration, HOST_TIME, factor))
    found = simlora.validate(written(busy, tmp_path / "result.json"), CONFIG, unsaid=EIGHT, jobs=1)
    best, *others = found.parts
    assert best.name == HOST_TIME
    assert best.factor == pytest.approx(factor)
    assert best.left < 0.1 * found.base.error
    assert all(part.both > best.both for part in others)
    assert found.verdict.startswith("To blame: host, 1.68")
    assert (
        f"No other value of one flag leaves clearly less of the error; {len(found.flags)} were tried."
        in found.text()
    )


def test_a_part_is_tried_with_this_calibration_whatever_an_earlier_validation_has_left(tmp_path):
    for name in ("h100_64g-llama_3_1_8b-tp1-vllm", "h100_64g-qwen_2_5_7b-tp1-vllm"):
        calibration = calibrations.load(name)
        path = blame._file(tmp_path, calibration, LORA, 1.0)
        assert calibrations.load(str(path)).coefficients == scaled(calibration, LORA, 2.0).coefficients


def test_a_flag_that_differs_is_blamed_before_any_part_of_the_calibration(tmp_path, monkeypatch):
    monkeypatch.setattr(blame, "HALVINGS", 0)  # how long each part takes is not looked at closely
    few = served(
        [*SERVER, *BUSY, "workload.rates_rps=[3]", "workload.duration_s=10", "replica.max_num_seqs=64"]
    )
    found = simlora.validate(written(few, tmp_path / "result.json"), CONFIG, unsaid=EIGHT, jobs=1)
    best = found.flags[0]
    assert (best.key, best.value) == ("replica.max_num_seqs", 64)
    assert best.left < 0.2 * found.base.error
    assert found.verdict.startswith("To blame: the configuration, if the server had --max-num-seqs 64")
    listed = [flag for flag in found.flags if flag.left < 0.75 * found.base.error]
    assert listed, "those that leave clearly less"
    assert len(re.findall(r"^--max-\S+ \d+ ", found.text(), re.M)) == min(3, len(listed))


def test_the_fitted_host_predicts_another_run_of_the_same_server(slow_host, tmp_path):
    fitted = simlora.validate(
        written(slow_host, tmp_path / "result.json"), CONFIG, unsaid=EIGHT, fit=True, blame=False
    ).fitted
    assert fitted.step_s / fitted.before.need("host.intercept_s") == pytest.approx(1.6, rel=0.25)
    other = served([*SERVER, *TRAFFIC], lambda calibration: scaled(calibration, HOST_TIME, 1.6))
    path = written(other, tmp_path / "other.json")
    as_it_came, as_fitted = (
        {
            (name, part): abs(simulated / measured - 1)
            for name, part, measured, simulated in simlora.validate(
                path, [*CONFIG, *more], unsaid=EIGHT, blame=False, out=tmp_path / "other"
            ).figures()
        }
        for more in ((), (f"calibration={fitted.path}",))
    )
    for part in ("mean", "p50", "p95"):
        assert as_fitted["TPOT", part] < 0.1 * as_it_came["TPOT", part]


def test_lists_of_adapters_are_no_host_time_that_is_to_be_fitted(tmp_path):
    """Eight adapters are known, so that a step lists up to 64: up to 6 ms."""
    listed = {"lora_manager.per_listed_adapter_s": 1e-4}
    heavy = lambda of: replace(of, coefficients=dict(of.coefficients) | listed)  # noqa: E731
    own = save(
        Path("heavy.yaml"),
        text_of(heavy(composed(gpu_named("h100_80g"), model_named("llama_3_1_8b"), 1, "vllm"))),
    )
    found = simlora.validate(
        written(served([*SERVER, *BUSY], heavy), tmp_path / "result.json"),
        [*CONFIG, f"calibration={own.path}"],
        unsaid=EIGHT,
        blame=False,
        fit=True,
    )
    for row in found.steps:
        assert row.calibrated_s == pytest.approx(row.measured_s, rel=0.08)
    assert found.fitted.step_s == pytest.approx(own.need("host.intercept_s"), rel=0.3)


def test_the_size_of_the_kv_cache_is_compared_and_then_simulated(usual, tmp_path):
    path = written(usual, tmp_path / "result.json")
    log = tmp_path / "vllm.log"
    log.write_text("INFO loading\nINFO kv_cache_utils.py GPU KV cache size: 100,000 tokens\nINFO ready\n")
    found = simlora.validate(path, CONFIG, unsaid=EIGHT, kv_tokens=kv_tokens_in(log), blame=False)
    measured, own = found.kv_tokens
    assert measured == 100_000
    assert own > measured
    assert found.base.result.summary["run"]["kv_token_budget"] == measured
    assert f"tokens           100,000      {own:,}" in found.text()


def said_of(
    result: dict[str, Any], tmp_path: Path, overrides: Sequence[str], serve: str | None = None
) -> tuple[str, ...]:
    """The server that is simulated, and the notices about it."""
    path = written(result, tmp_path / "result.json")
    found = simlora.validate(path, overrides, serve=serve, unsaid=EIGHT, blame=False)
    run = found.base.result.summary["run"]
    return (*(str(run[key]) for key in ("system", "model", "gpu", "tp")), *found.notices)


LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    """The result of a server with few requests."""
    return served([*SERVER, "workload.rates_rps=[0.2]", "workload.duration_s=10", "workload.ranks=[16]"])


def test_the_server_is_that_of_the_file_where_the_overrides_do_not_say(few, tmp_path):
    result = few | {"model_id": LLAMA, "backend": "vllm"}
    system, model, _, _, *notices = said_of(result, tmp_path, ["gpu=h100_80g"])
    assert (system, model) == ("vllm", "llama_3_1_8b")
    assert any(
        notice.endswith(f"is of vllm and {LLAMA}; simulated is system=vllm model=llama_3_1_8b {TODAY}")
        for notice in notices
    )
    assert not any("nothing says another" in notice for notice in notices)
    said = "simulated is system=slora model=llama_7b, as nothing says another"
    assert said in said_of(few, tmp_path, ["gpu=h100_80g"])


def test_the_server_is_that_of_the_command_with_the_values_that_the_engine_chooses_in_a_notice(few, tmp_path):
    serve = f"vllm serve {LLAMA} -tp 2 --enable-lora --max-loras 8 --max-num-seqs 128 --port 1"
    system, model, gpu, tp, *notices = said_of(few, tmp_path, ["gpu=a100_80g"], serve)
    assert (system, model, gpu, tp) == ("vllm", "llama_3_1_8b", "a100_80g", "2")
    assert "not simulated: --port 1" in notices
    contradiction = (
        "the command has replica.max_num_seqs=128, and replica.max_num_seqs=64 is given, which is simulated"
    )
    assert any(
        contradiction in notice
        for notice in said_of(few, tmp_path, ["gpu=a100_80g", "replica.max_num_seqs=64"], serve)
    )
    assert (
        "the command leaves --max-num-batched-tokens to vllm, which chooses by its version, GPU and adapters; "
        "simulated is scheduler.max_batched_tokens=2048" in notices
    )


def test_an_engine_without_adapters_is_simulated_without_lora(few, tmp_path):
    serve = f"vllm serve {LLAMA} --max-num-seqs 128"
    path = written(few, tmp_path / "result.json")
    server = ["gpu=h100_80g", "model=llama_3_1_8b", "system=vllm"]
    for command in (None, serve):
        base = simlora.validate(path, server, serve=command, blame=False)
        assert any("the engine is simulated without LoRA" in one for one in base.notices)
    with_lora = f"{serve} --enable-lora --max-loras 8 --max-lora-rank 64"
    slots = simlora.validate(path, server, serve=with_lora, unsaid=EIGHT, blame=False)
    assert not any("without LoRA" in one for one in slots.notices)
    most, fewer = (one.base.result.summary["run"]["kv_token_budget"] for one in (base, slots))
    assert most > fewer, "slots take memory"
    said = simlora.validate(path, server, serve=serve, unsaid=EIGHT, blame=False).notices
    assert any("the command does not enable LoRA" in one for one in said)


def test_requests_that_the_command_s_server_would_have_refused_are_said(few, tmp_path):
    serve = f"vllm serve {LLAMA} --enable-lora --max-loras 8 --max-lora-rank 16 --max-model-len"
    path = written(few, tmp_path / "result.json")
    longest = max(
        prompt + output for prompt, output in zip(few["input_lens"], few["output_lens"], strict=True)
    )
    for most, wanted in ((64, True), (longest, False)):
        found = simlora.validate(path, ["gpu=h100_80g"], serve=f"{serve} {most}", unsaid=EIGHT, blame=False)
        said = [
            one
            for one in found.notices
            if f"more tokens than --max-model-len {most}, up to {longest:,}" in one
        ]
        assert bool(said) is wanted


@pytest.mark.parametrize(
    ("model", "overrides", "serve", "said"),
    [
        ("acme/llama-3", [], None, "has the model acme/llama-3, which simlora does not know"),
        (LLAMA, [], "vllm serve /models/x", "the command has the model /models/x, which simlora does not"),
        (LLAMA, ["model=qwen3_8b"], None, f"{LLAMA}, which is model=llama_3_1_8b, and model=qwen3_8b"),
        (None, ["model=qwen3_8b"], f"vllm serve {LLAMA}", "the command has the model meta-llama"),
        (QWEN, [], f"vllm serve {LLAMA}", f"{QWEN}, which is model=qwen3_8b, and model=llama_3_1_8b"),
    ],
)
def test_another_model_than_the_server_s_is_refused(model, overrides, serve, said, few, tmp_path):
    with pytest.raises(InputError, match=re.escape(said)):
        said_of(few | {"model_id": model}, tmp_path, ["gpu=h100_80g", *overrides], serve)


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("# GPU blocks: 7391, # CPU blocks: 2048", 7391 * 16),
        ("max_total_num_tokens=423,111, chunked_prefill_size=8192", 423_111),
    ],
)
def test_other_engines_lines_about_their_kv_cache_are_read(line, tokens, tmp_path):
    (tmp_path / "log").write_text("ready\n")
    with pytest.raises(InputError, match="has no line about the KV cache, such as"):
        kv_tokens_in(tmp_path / "log")
    (tmp_path / "log").write_text(f"ready\n{line}\n")
    assert kv_tokens_in(tmp_path / "log") == tokens


def test_steps_are_what_the_tokens_of_requests_alone_and_together_show(tmp_path):
    """Two requests: the first alone for a while, then both; the second's prompt delays one token of the first."""
    result = {
        "input_lens": [100, 50],
        "output_lens": [56, 31],
        "start_times": [0.0, 0.3],
        "ttfts": [0.1, 0.055],
        "itls": [[0.01] * 24 + [0.04, *([0.02] * 30)], [0.02] * 30],
        "errors": ["", ""],
    }
    steps = decode_steps(read_measured(str(written(result, tmp_path / "result.json")), Unsaid()))
    assert steps.batch.tolist() == [1, 2]
    assert steps.seconds.tolist() == pytest.approx([0.01, 0.02])
    alone, together = steps.context_tokens.tolist()
    assert alone == pytest.approx(100 + 13, abs=1)
    assert together == pytest.approx(150 + 26 + 2 * 15, abs=3)


@pytest.mark.parametrize(("part", "factor"), [(HOST_TIME, 2.0), (PROMPTS, 0.5), (LORA, 3.0)])
def test_a_part_is_scaled_and_back_again_and_no_other_part_changes(part, factor):
    before = _composed()
    after = scaled(before, part, factor)
    changed = {name for name, value in after.coefficients.items() if value != before.coefficients[name]}
    assert changed
    back = scaled(after, part, 1 / factor).coefficients
    assert back == pytest.approx(before.coefficients)
    assert parts_of(after) == parts_of(before)


def test_a_host_s_time_is_in_each_pass_and_each_step():
    before = _composed()
    step_s, sequence_s = before.need("host.intercept_s"), before.need("host.per_sequence_s")
    after = with_host(before, step_s + 0.001, sequence_s + 1e-5)
    for name, more_s in (
        ("prefill.pass_s_by_tokens.512", 0.001),
        ("decode.step_s_by_batch.16", 0.001 + 16e-5),
        ("decode.per_context_token_s_by_batch.16", 0.0),
    ):
        assert after.need(name) - before.need(name) == pytest.approx(more_s, abs=1e-12)


def test_what_cannot_be_fitted_is_said(few, tmp_path):
    whole = ["system=vllm", "gpu=h100_64g", "model=llama_3_1_8b"]
    untimed = {name: cells for name, cells in few.items() if name != "itls"}
    untimed["latency_s"] = [9.0] * len(few["ttfts"])
    for result, server, said in (
        (few, whole, r"calibration h100_64g-llama_3_1_8b-tp1-vllm has no host part"),
        (untimed, CONFIG, "--fit needs the times of single tokens of one server"),
    ):
        path = written(result, tmp_path / "result.json")
        with pytest.raises(InputError, match=said):
            simlora.validate(path, server, unsaid=EIGHT, fit=True, blame=False)


def _composed() -> Calibration:
    from simlora.api.preparing import composed, ready

    scenario = ready(*composed([*CONFIG, "workload=per_adapter", *TRAFFIC])).scenario
    return replace(scenario.calibration)
