"""Calibration files: what is read, and how what is wrong is named."""

from importlib import resources

import pytest
import yaml

from simlora.core.errors import InputError
from simlora.latency import calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.transfer import AdapterLoad

GOOD = """
gpu: a10g
model: llama_7b
tp: 1
provenance: {kind: measured, source: here, date: 2026-11-21}
prefill: {intercept_s: 0.02, per_token_s: 3.4e-4}
decode: {intercept_s: 0.03, per_sequence_s: 1.0e-4, per_context_token_s: 7.0e-7}
kernels:
  mbgmv:
    decode: {intercept_s: 0.004, per_rank_sum_s: 1.0e-6}
adapter_load: {latency_s: 0.005, bytes_per_s: 5.0e+9}
"""


KERNELS = GOOD[GOOD.index("kernels:") : GOOD.index("adapter_load:")]


def but(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_coefficients_have_dotted_names():
    read = calibration.parse(GOOD, "mine.yaml")
    assert (read.gpu, read.model, read.tp) == ("a10g", "llama_7b", 1)
    assert read.provenance["kind"] == "measured"
    assert read.coefficients["kernels.mbgmv.decode.per_rank_sum_s"] == 1e-6
    assert read.need("prefill.per_token_s") == 3.4e-4
    assert len(read.coefficients) == 9


def test_a_coefficient_that_is_not_there_is_named_when_it_is_needed():
    with pytest.raises(
        InputError, match=r"calibration mine\.yaml has no merge\.per_byte_s, which this run needs"
    ):
        calibration.parse(GOOD, "mine.yaml").need("merge.per_byte_s")


STEPS = "decode: {step_s_by_batch: {1: 0.03, 16: 0.04}, per_context_token_s: 7.0e-7}"
PREFILL, DECODE = (
    next(line for line in GOOD.splitlines() if line.startswith(key)) for key in ("prefill:", "decode:")
)


def curve(old: str, new: str) -> str:
    assert old in STEPS
    return but(DECODE, STEPS.replace(old, new))


@pytest.mark.parametrize(
    "text, says",
    [
        (but("0.02", "-0.02"), r"prefill\.intercept_s = -0\.02, must be .* at least 0"),
        (but("0.02", "fast"), r"prefill\.intercept_s = 'fast', must be a number"),
        (but("0.02", "true"), r"prefill\.intercept_s = True, must be a number"),
        (but("0.02", ""), r"prefill\.intercept_s = None, must be a number"),
        (but("0.02", "[1]"), r"prefill\.intercept_s = \[1\], must be a number"),
        (but("0.02", ".nan"), r"prefill\.intercept_s = nan, must be finite"),
        (but("5.0e+9", "0"), r"bytes_per_s = 0, must be greater than 0"),
        (but("prefill:", "prefil:"), "unknown key 'prefil'; did you mean prefill"),
        (but("provenance:", "provenence:"), "key 'provenence'; did you mean provenance"),
        (but("tp: 1", "xyzzy: 1"), "'xyzzy'; choose one of adapter_load, .*, gpu, .*model,"),
        (but("gpu: a10g", ""), "has no gpu"),
        (but("model: llama_7b", "model: 7"), "has no model"),
        (but("tp: 1", "tp: 0"), "tp = 0, must be a whole number of GPUs, at least 1"),
        (but("tp: 1", "tp: 1.5"), r"tp = 1\.5, must be a whole number"),
        (but("measured", "guessed"), "provenance.kind = 'guessed', must be one of measured"),
        (but("provenance:", "x: 1\n#"), "unknown key 'x'"),
        ("gpu: [a10g", "is not valid YAML"),
        ("", "is not a mapping"),
        ("- 1\n- 2", "is not a mapping"),
        *((but(PREFILL, f"prefill: {each}"), "prefill = .*mapping") for each in (5, 0, [], [1, 2], "fast")),
        (but(DECODE, "decode: 0.5"), "decode = .*, must be a mapping of intercept_s, per_"),
        (but(DECODE, "decode: {per_sequence_square_s: 1}"), "unknown key .*per_sequence_sq_s"),
        (but(KERNELS, "kernels: 5\n"), "kernels = 5, must be a mapping of bgmv, mbgmv, vllm"),
        (
            but(KERNELS, "kernels: {bgmv: 5}\n"),
            r"kernels\.bgmv = 5, must be a mapping of decode\.intercept_s",
        ),
        (but("per_rank_sum_s", "per_seq_max_rank_s"), "unknown key .*per_sequence_max_rank_s"),
        (but("bytes_per_s", "bandwidth"), "unknown key .*bytes_per_s"),
        (but("adapter_load: {latency_s", "collectives: {latencys"), "unknown key .*latency_s"),
        (curve("16: ", "many: "), "step_s_by_batch.many, whose last part must be a whole number"),
        (curve("16: ", "0: "), "step_s_by_batch.0, whose last part must be a whole number, at"),
        (curve(", 16: 0.04", ""), "only decode.step_s_by_batch.1, must have two points"),
        (curve("{1: 0.03, 16: 0.04}", "0.03"), "must be a mapping of counts to seconds"),
        (curve("per_context", "intercept_s: 0.1, per_context"), "decode.intercept_s and decode.step_s_by"),
        (curve("0.04", "-1"), "step_s_by_batch.16 = -1, must be finite and at least 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_names_file_and_key(text, says):
    with pytest.raises(InputError, match=says) as caught:
        calibration.parse(text, "mine.yaml")
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_curve_maps_counts_to_seconds_and_stands_for_coefficients():
    read = calibration.parse(but(DECODE, STEPS), "mine.yaml")
    assert read.coefficients["decode.step_s_by_batch.16"] == 0.04
    assert IterationModel(read).decode_s(16, 100) == pytest.approx(0.04 + 7e-5)
    assert calibration.parse(GOOD, "mine.yaml").curve("decode.step_s_by_batch") is None


@pytest.mark.parametrize(
    "kernel, name",
    [
        # padded products may name what GPUs say to each other
        (
            "padded_bmm: {decode: {per_sequence_max_rank_s: 1e-9}}",
            "padded_bmm.decode.per_sequence_max_rank_s",
        ),
        ("mine: {decode: {x_s: 1e-9}}", "mine.decode.x_s"),  # a user's own kernel has its own names
    ],
)
def test_kernels_have_coefficients_of_their_own(kernel, name):
    assert (
        calibration.parse(but(KERNELS, f"kernels: {{{kernel}}}\n"), "c.yaml").need(f"kernels.{name}") == 1e-9
    )


def test_a_file_is_read_by_its_path_and_what_is_left_empty_is_as_if_it_were_not_there(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"{GOOD}\nmerge:\n")
    assert calibration.load(str(path)).coefficients == calibration.parse(GOOD, "").coefficients


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    for name, says in (
        ("missing", "cannot be read"),
        ("folder", "cannot be read"),
        ("binary", "is not a text"),
    ):
        with pytest.raises(InputError, match=rf"{name}\.yaml {says}"):
            calibration.load(str(tmp_path / f"{name}.yaml"))


def test_an_unknown_name_gets_the_nearest_ones():
    with pytest.raises(InputError, match="no calibration 'a10g-lama_7b-tp1'; did you mean a10g-llama_7b-tp1"):
        calibration.load("a10g-lama_7b-tp1")


SYSTEMS = (resources.files("simlora.conf") / "system").iterdir()
ENGINES = {yaml.safe_load(system.read_text()).get("engine") for system in SYSTEMS} - {None} | {"profiler"}
"""Those that a system says its iterations were measured with, and simlora-profile's own."""


@pytest.mark.parametrize("name", calibration.names())
def test_ours_are_whole_and_named_after_what_they_describe(name):
    ours = calibration.load(name)
    plain = f"{ours.gpu}-{ours.model}-tp{ours.tp}"
    assert name in (plain, *(f"{plain}-{engine}" for engine in ENGINES))
    assert IterationModel(ours).decode_s(1, 100) > 0
    assert AdapterLoad(ours).load_s(1) > 0
    assert yaml.safe_dump(ours.describe()), "goes into a report as it is"
