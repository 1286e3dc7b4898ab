"""FastLibra's calibrations: what is committed, and what no NPU of this kind could undercut."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.fastlibra import calibration
from experiments.profiles.build import Entry, summed
from experiments.profiles.scaling import Setting, gpu, model
from experiments.studies.reading import measured_dir
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel

ALL = tuple(calibration.SOURCES)
PROFILES = measured_dir() / "profiles"
OPERATORS = {
    "llama_7b": ("llama_2_7b", "vidur_llama2-7b_a100_mlp.csv"),
    "llama_13b": ("llama_2_7b", "vidur_llama2-7b_a100_mlp.csv"),
    "llama_34b": ("llama_2_70b", "vidur_llama2-70b_a100_mlp.csv"),
    "llama_30b": ("llama_2_70b", "vidur_llama2-70b_a100_mlp.csv"),
}
"""What lies behind the calibrations that ours are scaled from."""


def load(shape: str, tp: int) -> Calibration:
    return calibrations.load(calibration.setting(shape, tp).name)


def test_other_links_between_cards_are_a_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibration.main(["--peer-link", "nvlink_3"]) == 2
    assert "give it a folder with --out" in capsys.readouterr().err
    assert calibration.main(["--peer-link", "nvlink_3", "--out", str(tmp_path)]) == 0
    for shape, tp in ALL:
        ours = load(shape, tp).coefficients
        faster = calibrations.load(str(tmp_path / f"{calibration.setting(shape, tp).name}.yaml")).coefficients
        changed = {name for name, value in faster.items() if value != ours[name]}
        assert changed == ({"collectives.bytes_per_s"} if tp > 1 else set())


@pytest.mark.parametrize("shape, tp", ALL)
def test_no_step_is_shorter_than_reading_weights_and_contexts_takes(shape: str, tp: int) -> None:
    """Kernels alone, without host and collectives, read at 60 to 75 % of the memory's rate."""
    bandwidth, ours = gpu(calibration.GPU).memory_bandwidth_bytes_per_s, load(shape, tp)
    read_s = model(shape).weight_bytes / tp / bandwidth
    kernels_s = ours.need("decode.intercept_s") - calibration.host_s(model(shape).layers)
    assert 0.6 < read_s / kernels_s < 0.75
    assert read_s < ours.need("prefill.intercept_s") + 128 * ours.need("prefill.per_token_s")
    context_s = model(shape).kv_bytes_per_token / tp / bandwidth
    assert context_s / ours.need("decode.per_context_token_s") == pytest.approx(0.916, abs=0.005)


@pytest.mark.parametrize("shape, tp", ALL)
def test_no_token_takes_less_than_its_arithmetic(shape: str, tp: int) -> None:
    """Each card does its share; without collectives an A100's share of the peak is left, 60 to 75 %.

    A causal prompt of n tokens takes 4 n^2 / 2 operations of attention a layer and element of hidden.
    """
    ours, of, flops = load(shape, tp), model(shape), gpu(calibration.GPU).fp16_flops * tp
    assert 0.6 < 2 * of.parameters / flops / ours.need("prefill.per_token_s") < 0.75
    attention_s = 4 * of.hidden * of.layers / 2 / flops
    assert attention_s / ours.need("prefill.per_token_sq_s") == pytest.approx(0.62, abs=0.01)


@pytest.mark.skipif(not PROFILES.is_dir(), reason=f"no published profiles in {PROFILES}")
@pytest.mark.parametrize("shape, tp", ALL)
def test_scaling_operators_one_by_one_gives_the_same(shape: str, tp: int) -> None:
    """Coefficients are scaled here, as anybody can, and there every operator's own times."""
    name, file = OPERATORS[shape]
    target, source = calibration.setting(shape, tp), Setting(gpu("a100_80g"), model(name), tp)
    built = summed(Entry(target, source, file, "", None, ("", "")), PROFILES).coefficients
    for phase in ("prefill", "decode"):
        built[f"{phase}.intercept_s"] += calibration.host_s(target.model.layers)
    theirs = IterationModel(Calibration("", target.gpu.name, shape, tp, {}, built))
    ours = IterationModel(load(shape, tp))
    for tokens in (128, 512, 2048, 4096):
        prefill_s = theirs.prefill_s(tokens, tokens**2)
        assert ours.prefill_s(tokens, tokens**2) == pytest.approx(prefill_s, rel=0.05)
    for batch in (1, 16, 64):
        step_s = theirs.decode_s(batch, 1000 * batch)
        assert ours.decode_s(batch, 1000 * batch) == pytest.approx(step_s, rel=0.055)
    for collective in ("latency_s", "bytes_per_s") if tp > 1 else ():
        key = f"collectives.{collective}"
        assert load(shape, tp).need(key) == pytest.approx(built[key], rel=1e-3)
