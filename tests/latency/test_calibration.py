"""Calibration files: what is read, and how what is wrong is named."""

from importlib import resources
from pathlib import Path

import pytest
import yaml

from simlora.core.errors import InputError
from simlora.latency import calibration
from simlora.latency.calibration import parse
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


def test_coefficients_have_dotted_names() -> None:
    read = calibration.parse(GOOD, "mine.yaml")
    assert (read.gpu, read.model, read.tp) == ("a10g", "llama_7b", 1)
    assert read.provenance["kind"] == "measured"
    assert read.coefficients["kernels.mbgmv.decode.per_rank_sum_s"] == 1e-6
    assert read.need("prefill.per_token_s") == 3.4e-4
    assert len(read.coefficients) == 9


def test_a_description_holds_names_provenance_and_every_coefficient() -> None:
    described = calibration.parse(GOOD, "mine.yaml").describe()
    assert set(described) == {"path", "gpu", "model", "tp", "provenance", "coefficients"}
    assert described["coefficients"]["decode.intercept_s"] == 0.03


def test_a_coefficient_that_is_not_there_is_named_when_it_is_needed() -> None:
    with pytest.raises(
        InputError, match=r"calibration mine\.yaml has no merge\.per_byte_s, which this run needs"
    ):
        calibration.parse(GOOD, "mine.yaml").need("merge.per_byte_s")


@pytest.mark.parametrize(
    "text, says",
    [
        pytest.param(
            but("0.02", "-0.02"), r"prefill\.intercept_s = -0\.02, must be .* at least 0", id="negative"
        ),
        pytest.param(
            but("0.02", "fast"), r"prefill\.intercept_s = 'fast', must be a number", id="not a number"
        ),
        pytest.param(but("0.02", "true"), r"prefill\.intercept_s = True, must be a number", id="boolean"),
        pytest.param(but("0.02", ""), r"prefill\.intercept_s = None, must be a number", id="empty"),
        pytest.param(but("0.02", "[1]"), r"prefill\.intercept_s = \[1\], must be a number", id="list"),
        pytest.param(but("0.02", ".nan"), r"prefill\.intercept_s = nan, must be finite", id="NaN"),
        pytest.param(but("0.02", ".inf"), r"prefill\.intercept_s = inf, must be finite", id="infinite"),
        pytest.param(but("5.0e+9", "0"), r"bytes_per_s = 0, must be greater than 0", id="no bandwidth"),
        pytest.param(
            but("prefill:", "prefil:"), r"unknown key 'prefil'; did you mean prefill", id="unknown key"
        ),
        pytest.param(
            but("provenance:", "provenence:"), "key 'provenence'; did you mean provenance", id="unknown head"
        ),
        pytest.param(
            but("tp: 1", "xyzzy: 1"), "'xyzzy'; choose one of adapter_load, .*, gpu, .*model,", id="all keys"
        ),
        pytest.param(but("gpu: a10g", ""), "has no gpu", id="no gpu"),
        pytest.param(but("model: llama_7b", "model: 7"), "has no model", id="model is a number"),
        pytest.param(
            but("tp: 1", "tp: 0"), "tp = 0, must be a whole number of GPUs, at least 1", id="zero GPUs"
        ),
        pytest.param(but("tp: 1", "tp: 1.5"), r"tp = 1\.5, must be a whole number", id="one and a half GPUs"),
        pytest.param(
            but("measured", "guessed"), "provenance.kind = 'guessed', must be one of measured", id="kind"
        ),
        pytest.param(but("provenance:", "x: 1\n#"), "unknown key 'x'", id="no provenance"),
        pytest.param("gpu: [a10g", "is not valid YAML", id="not YAML"),
        pytest.param("a\x00b", "is not valid YAML", id="binary"),
        pytest.param("", "is not a mapping", id="empty file"),
        pytest.param("- 1\n- 2", "is not a mapping", id="list at the top"),
        pytest.param("!!python/object/apply:os.getcwd []", "has a tag", id="code"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_names_file_and_key(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        calibration.parse(text, "mine.yaml")
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "section", ["prefill: 5", "prefill: 0", "prefill: []", "prefill: [1, 2]", "prefill: fast", "decode: 0.5"]
)
def test_a_section_holds_named_coefficients(section: str) -> None:
    key = section.split(":")[0]
    text = (
        "\n".join(line for line in GOOD.splitlines() if not line.startswith((key, "  "))) + f"\n{section}\n"
    )
    with pytest.raises(InputError, match=rf"has {key} = .*, must be a mapping of intercept_s, per_"):
        calibration.parse(text, "mine.yaml")


@pytest.mark.parametrize(
    "kernels, says",
    [
        ("kernels: 5", "kernels = 5, must be a mapping of bgmv, mbgmv, vllm"),
        ("kernels: {bgmv: 5}", r"kernels\.bgmv = 5, must be a mapping of decode\.intercept_s"),
    ],
)
def test_kernels_hold_named_coefficients(kernels: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        calibration.parse(but(KERNELS, f"{kernels}\n"), "mine.yaml")


STEPS = "decode: {step_s_by_batch: {1: 0.03, 16: 0.04}, per_context_token_s: 7.0e-7}"
DECODE = next(line for line in GOOD.splitlines() if line.startswith("decode:"))


def test_a_curve_maps_counts_to_seconds_and_stands_for_coefficients() -> None:
    read = calibration.parse(but(DECODE, STEPS), "mine.yaml")
    assert read.coefficients["decode.step_s_by_batch.16"] == 0.04
    assert IterationModel(read).decode_s(16, 100) == pytest.approx(0.04 + 7e-5)
    assert calibration.parse(GOOD, "mine.yaml").curve("decode.step_s_by_batch") is None


@pytest.mark.parametrize(
    ("decode", "says"),
    [
        (STEPS.replace("16: ", "many: "), r"has decode.step_s_by_batch.many, whose last part must be a whole number"),
        (STEPS.replace("16: ", "0: "), r"has decode.step_s_by_batch.0, whose last part must be a whole number, at"),
        (STEPS.replace(", 16: 0.04", ""), r"only decode.step_s_by_batch.1, must have two points"),
        (STEPS.replace("{1: 0.03, 16: 0.04}", "0.03"), "must be a mapping of counts to seconds, such as 16: 0.012"),
        (STEPS.replace("per_context", "intercept_s: 0.1, per_context"), "has decode.intercept_s and decode.step_s_by"),
        (STEPS.replace("0.04", "-1"), r"decode.step_s_by_batch.16 = -1, must be finite and at least 0"),
    ],
)  # fmt: skip
def test_what_is_no_curve_is_refused(decode: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        calibration.parse(but(DECODE, decode), "mine.yaml")


def test_what_is_left_empty_is_as_if_it_were_not_there() -> None:
    assert calibration.parse(f"{GOOD}\nmerge:\n", "").coefficients == calibration.parse(GOOD, "").coefficients


def test_padded_products_may_name_what_gpus_say_to_each_other() -> None:
    kernels = "kernels: {padded_bmm: {decode: {per_sequence_max_rank_s: 1.0e-9}}}"
    found = calibration.parse(but(KERNELS, f"{kernels}\n"), "mine.yaml").coefficients
    assert found["kernels.padded_bmm.decode.per_sequence_max_rank_s"] == 1e-9


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert calibration.load(str(path)).coefficients == calibration.parse(GOOD, "").coefficients


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml cannot be read: No such file"):
        calibration.load(str(tmp_path / "missing.yaml"))


def test_a_folder_is_not_a_calibration(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(InputError, match=r"folder\.yaml cannot be read"):
        calibration.load(str(tmp_path / "folder.yaml"))


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match=r"binary\.yaml is not a text file"):
        calibration.load(str(tmp_path / "binary.yaml"))


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(InputError, match="no calibration 'a10g-lama_7b-tp1'; did you mean a10g-llama_7b-tp1"):
        calibration.load("a10g-lama_7b-tp1")


SYSTEMS = (resources.files("simlora.conf") / "system").iterdir()
ENGINES = {yaml.safe_load(system.read_text()).get("engine") for system in SYSTEMS} - {None} | {"profiler"}
"""Those that a system says its iterations were measured with, and simlora-profile's own."""


@pytest.mark.parametrize("name", calibration.names())
def test_ours_are_whole_and_named_after_what_they_describe(name: str) -> None:
    ours = calibration.load(name)
    plain = f"{ours.gpu}-{ours.model}-tp{ours.tp}"
    assert name in (plain, *(f"{plain}-{engine}" for engine in ENGINES))
    assert IterationModel(ours).decode_s(1, 100) > 0
    assert AdapterLoad(ours).load_s(1) > 0
    assert yaml.safe_dump(ours.describe()), "goes into a report as it is"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("kernels: {mbgmv: {decode: {per_seq_max_rank_s: 1.0e-6}}}", "per_sequence_max_rank_s"),
        ("decode: {per_sequence_square_s: 1.0e-6}", "per_sequence_sq_s"),
        ("adapter_load: {bandwidth: 1.0e9}", "bytes_per_s"),
    ],
)
def test_a_misspelt_coefficient_is_never_a_silent_zero(written: str, meant: str) -> None:
    head = "gpu: a10g\nmodel: llama_7b\ntp: 1\nprovenance: {kind: measured}\n"
    with pytest.raises(InputError, match=f"unknown key .*{meant}"):
        parse(head + written, "c.yaml")


def test_a_users_own_kernel_names_its_own_coefficients() -> None:
    head = "gpu: a10g\nmodel: llama_7b\ntp: 1\nprovenance: {kind: measured}\n"
    assert (
        parse(head + "kernels: {mine: {decode: {x_s: 1.0}}}", "c.yaml").need("kernels.mine.decode.x_s") == 1.0
    )


def test_a_number_needs_no_point() -> None:
    head = "gpu: a10g\nmodel: llama_7b\ntp: 1\nprovenance: {kind: measured}\n"
    assert parse(head + "decode: {intercept_s: 1e-4}", "c.yaml").need("decode.intercept_s") == 1e-4
