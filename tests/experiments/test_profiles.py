"""`python -m experiments.profiles` takes profiles in the published schemas and makes calibrations of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.profiles import __main__ as command
from experiments.profiles import build, compare, scaling, sums, tables
from experiments.profiles.scaling import model, pass_s, scaled, setting
from experiments.profiles.tables import EMBEDDING, MATRICES, VECTORS
from experiments.studies.reading import measured_dir
from simlora.api import simulate
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.collectives import folded
from simlora.latency.iteration import IterationModel

FLAT_S, TOKEN_S = 1e-4, 1e-6
"""Every matrix product of our made-up tables takes this, and every token this more."""
TOKENS = (1, 2, 4, 8, *range(16, 1025, 16))
PROFILES = measured_dir() / "profiles"
NEEDS_PROFILES = pytest.mark.skipif(
    not PROFILES.is_dir(), reason=f"no published profiles in {PROFILES}; set SIMLORA_MEASURED_DIR"
)
OURS = [name for name in calibrations.names() if name in build.entries()]


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    pd.DataFrame(rows).to_csv(path, index=False)


def operator_rows() -> Iterator[dict[str, object]]:
    for tp in (1, 2, 4, 8):
        for tokens in TOKENS:
            times = dict.fromkeys(MATRICES, FLAT_S / tp + TOKEN_S / tp * tokens)
            times |= dict.fromkeys((*VECTORS, EMBEDDING), 1e-6)
            columns = {f"time_stats.{name}.median": 1e3 * seconds for name, seconds in times.items()}
            yield {**columns, "num_tensor_parallel_workers": tp, "num_tokens": tokens}


def attention_rows() -> Iterator[dict[str, object]]:
    def row(prefill: float, decode: float, batch: int, chunk: int, cached: int) -> dict[str, object]:
        times = {"attn_prefill": prefill, "attn_decode": decode, "attn_kv_cache_save": 2e-6}
        columns = {f"time_stats.{name}.median": 1e3 * seconds for name, seconds in times.items()}
        sizes = {"batch_size": batch, "prefill_chunk_size": chunk, "kv_cache_size": cached}
        return {**columns, **sizes, "is_prefill": chunk > 0}

    for tokens in range(64, 2049, 64):
        yield row(1e-5 + 1e-11 * tokens**2, 0.0, 1, tokens, 0)
    for batch in (1, 2, 8, 32):
        for context in (64, 256, 1024):
            yield row(0.0, 1e-5 + 1e-8 * batch * context, batch, 0, context)


def all_reduce_rows() -> Iterator[dict[str, object]]:
    for gpus in (2, 4, 8):
        for size in (2**power for power in range(11, 27)):
            seconds = 2e-5 + 2 * (gpus - 1) / gpus * size / 1e11
            yield {
                "time_stats.all_reduce.min": 1e3 * seconds,
                "num_workers": gpus,
                "devices_per_node": gpus,
                "size": size,
            }


def iteration_rows() -> Iterator[dict[str, object]]:
    prompts = [(2**power, 1) for power in range(7, 14)] + [(512, batch) for batch in (2, 4, 8, 32)]
    for hardware, tp in product(("a100-80gb", "h100-80gb"), (2, 4, 8)):
        for prompt, batch in prompts:
            yield {
                "model": "llama2-70b",
                "hardware": hardware,
                "tensor_parallel": tp,
                "prompt_size": prompt,
                "batch_size": batch,
                "token_size": 128,
                "prompt_time": 20 + 0.1 * prompt * batch,
                "token_time": 40 + 0.5 * batch + 1e-4 * batch * (prompt + 64),
            }


def write_profiles(made: Path) -> Path:
    """Write made-up profiles in the published schemas into a folder."""
    plan = build.plan()
    for kind, rows in (
        ("operators", operator_rows),
        ("all_reduces", all_reduce_rows),
        ("iterations", iteration_rows),
    ):
        for table in plan[kind].values():
            write(made / table["file"], rows())
    write(made / plan["attention"]["file"], attention_rows())
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_profiles(tmp_path_factory.mktemp("profiles"))


def test_a_refit_finds_the_numbers_that_a_table_was_made_with(folder: Path, tmp_path: Path) -> None:
    arguments = ["a800_80g-llama_2_7b-tp1", "--profiles", str(folder), "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    made = calibrations.load(str(tmp_path / "a800_80g-llama_2_7b-tp1.yaml"))
    shape = model("llama_2_7b")
    per_layer = len(MATRICES)
    head = shape.hidden * shape.vocab / (2 * shape.hidden * shape.intermediate)
    assert made.need("decode.per_sequence_s") == pytest.approx((32 * per_layer + head) * TOKEN_S, rel=1e-3)
    assert made.need("prefill.per_token_s") == pytest.approx(32 * per_layer * TOKEN_S, rel=1e-3)
    assert made.need("decode.per_context_token_s") == pytest.approx(32 * 1e-8, rel=1e-3)
    assert made.need("prefill.per_token_sq_s") == pytest.approx(32 * 1e-11, rel=1e-3)
    launches = 32 * (per_layer * FLAT_S + 5e-6 + 1e-5 + 2e-6) + head * FLAT_S + 1e-6
    assert made.need("decode.intercept_s") == pytest.approx(launches, rel=1e-3)
    assert "collectives.latency_s" not in made.coefficients
    assert made.provenance["kind"] == "published"
    assert max(made.provenance["held_out_mape"].values()) < 1e-3


def test_a_degree_above_one_gets_its_collectives(folder: Path, tmp_path: Path) -> None:
    command.write("a100_80g-llama_2_7b-tp4", folder, tmp_path)
    made = calibrations.load(str(tmp_path / "a100_80g-llama_2_7b-tp4.yaml"))
    assert made.need("collectives.base_all_reduces_per_layer") == 2
    assert made.need("collectives.latency_s") == pytest.approx(2e-5)
    assert made.need("collectives.bytes_per_s") == pytest.approx(1e11)


def test_whole_iterations_hold_the_base_models_communication(folder: Path, tmp_path: Path) -> None:
    command.write("h100_80g-llama_2_70b-tp8", folder, tmp_path)
    made = calibrations.load(str(tmp_path / "h100_80g-llama_2_70b-tp8.yaml"))
    assert made.need("collectives.base_all_reduces_per_layer") == 0
    assert made.need("prefill.per_token_s") == pytest.approx(1e-4)
    assert made.need("decode.intercept_s") == pytest.approx(0.04)
    assert made.need("decode.per_sequence_s") == pytest.approx(5e-4)
    assert made.need("decode.per_context_token_s") == pytest.approx(1e-7)


@pytest.mark.parametrize("name", build.entries())
def test_everything_in_the_plan_can_be_made(name: str, folder: Path, tmp_path: Path) -> None:
    built = command.write(name, folder, tmp_path)
    made = calibrations.load(str(tmp_path / f"{name}.yaml"))
    assert f"{made.gpu}-{made.model}-tp{made.tp}" == name
    assert made.provenance["kind"] == ("published" if built.entry.measured else "derived")
    for marked in made.provenance["coefficients"]:
        assert any(key == marked or key.startswith(f"{marked}.") for key in made.coefficients)
    assert command.line(built).startswith(name)


@pytest.mark.parametrize(
    "text, says",
    [
        (None, "is not there"),
        ("time_stats.all_reduce.min,b\n1,2\n", r"t\.csv has no column num_workers"),
        (
            "time_stats.all_reduce.min,num_workers,devices_per_node,size\n1,2,1,8\n",
            "no all-reduce among 2 GPUs",
        ),
    ],
)
def test_a_table_that_is_not_one_is_named(text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=says):
        tables.all_reduce(path, 2)


def test_a_batch_that_was_faster_than_half_of_it_did_not_run_as_one(tmp_path: Path) -> None:
    rows = [row for row in iteration_rows() if row["tensor_parallel"] == 2]
    next(row for row in rows if row["batch_size"] == 8)["prompt_time"] = 1.0
    write(tmp_path / "t.csv", rows)
    read = tables.iterations(tmp_path / "t.csv", "llama2-70b", "a100-80gb", 2)
    assert sorted(read.batch.unique()) == [1, 2, 4, 32]
    with pytest.raises(InputError, match="no rows for llama2-70b on a100-80gb with tensor_parallel 3"):
        tables.iterations(tmp_path / "t.csv", "llama2-70b", "a100-80gb", 3)


@given(st.floats(1e-6, 1.0), st.floats(1e-9, 1e-3))
def test_a_line_is_found_wherever_it_lies(intercept: float, slope: float) -> None:
    tokens = np.arange(1.0, 100.0)
    found = sums.fit({"a": np.ones_like(tokens), "b": tokens}, intercept + slope * tokens)
    assert found["a"] + found["b"] * 50 == pytest.approx(intercept + slope * 50, rel=1e-6)
    assert found.mape < 1e-6
    assert found.held_out_worst < 1e-6


def test_no_coefficient_is_negative() -> None:
    tokens = np.arange(1.0, 50.0)
    found = sums.fit({"a": np.ones_like(tokens), "b": tokens}, 1.0 / tokens)
    assert min(found.coefficients.values()) >= 0


def test_every_octave_has_the_same_say() -> None:
    weights = sums.by_octave(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
    assert weights.tolist() == [1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_scaling_to_the_same_setting_changes_nothing(folder: Path) -> None:
    here = setting("a100_80g", "llama_2_7b", 2)
    table = tables.operators(folder / "vidur_llama2-7b_a100_mlp.csv").xs(2, level="tp")
    pd.testing.assert_frame_equal(scaled(table, here, here), table[[*MATRICES, *VECTORS, EMBEDDING]])


def test_a_memory_bound_product_goes_by_bytes_and_a_compute_bound_one_by_arithmetic(folder: Path) -> None:
    here = setting("a100_80g", "llama_2_7b", 1)
    there = setting("a100_40g", "llama_2_70b", 1)
    table = tables.operators(folder / "vidur_llama2-7b_a100_mlp.csv").xs(1, level="tp")
    ratio = scaled(table, here, there)["mlp_up_proj"] / table["mlp_up_proj"]
    weights = 8192 * 28672 / (4096 * 11008)
    assert ratio[1] == pytest.approx(weights * 2039 / 1555)
    assert ratio[1024] == pytest.approx(weights)


def test_attention_is_shared_by_heads_and_read_by_bytes() -> None:
    one, four = (setting("a100_80g", "llama_2_7b", tp) for tp in (1, 4))
    fitted = {"decode.per_context_token_s": 1.0, "prefill.per_token_sq_s": 1.0, "decode.intercept_s": 1.0}
    assert scaling.attention(fitted, one, four) == {
        "decode.per_context_token_s": 0.25,
        "prefill.per_token_sq_s": 0.25,
        "decode.intercept_s": 1.0,
    }


def test_lora_goes_by_layers_bytes_and_degree() -> None:
    own = calibrations.load("a100_80g-llama_7b-tp1")
    loras = {name: value for name, value in own.coefficients.items() if name.split(".")[0] in scaling.LORA}
    assert scaling.lora(own, scaling.described(own)) == loras
    found = scaling.lora(own, setting("a100_80g", "llama_70b_m", 4))
    rank_sum, launches = "kernels.mbgmv.decode.per_rank_sum_s", "kernels.mbgmv.decode.intercept_s"
    assert found[rank_sum] == pytest.approx(loras[rank_sum] * 2.0 * 80 / 32 / 4)
    assert found[launches] == pytest.approx(loras[launches] * 80 / 32)


def test_more_gpus_never_take_longer_without_communication(folder: Path) -> None:
    entries = build.entries()
    built = [build.summed(entries[f"a100_80g-llama_2_7b-tp{tp}"], folder) for tp in (1, 2, 4, 8)]
    models = [IterationModel(one.calibration) for one in built]
    steps_s = [one.decode_s(64, 64 * 512) for one in models]
    assert steps_s == sorted(steps_s, reverse=True)


def test_the_head_is_priced_by_its_weights() -> None:
    target = setting("a100_80g", "llama_2_7b", 1)
    nothing = dict.fromkeys((*MATRICES, *VECTORS, EMBEDDING), 0.0) | {"mlp_up_proj": 1.0}
    table = pd.DataFrame([nothing], index=pd.Index([8], name="tokens"))
    assert pass_s(table, target)[8] == pytest.approx(32 + 32000 / (2 * 11008))


@pytest.mark.parametrize("name", OURS)
def test_ours_serve_requests_at_every_degree(name: str) -> None:
    ours = calibrations.load(name)
    chosen = [f"gpu={ours.gpu}", f"model={ours.model}", f"replica.tp={ours.tp}"]
    few = ["replica.gpu_memory_utilization=0.98", "workload.duration_s=2", "timeline=false"]
    requests = simulate([*chosen, *few]).summary["requests"]
    assert requests["finished"] == requests["submitted"] > 0


@pytest.mark.parametrize("name", [name for name in OURS if not name.endswith("tp1")])
def test_lora_communication_costs_time_and_can_be_switched_off(name: str) -> None:
    ours = calibrations.load(name)
    shape = model(ours.model)
    kernels = "kernels.mbgmv.decode.intercept_s"
    assert folded(ours, shape).need(kernels) > ours.need(kernels)
    assert folded(ours, shape, lora_communication=False).need(kernels) == ours.need(kernels)


def test_one_gpu_with_or_without_lora_communication_is_one_simulation() -> None:
    tables = [
        simulate([f"replica.lora_communication={flag}", "workload.duration_s=5"]).requests
        for flag in ("true", "false")
    ]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    with pytest.raises(InputError, match=r"replica\.lora_communication is 'maybe', must be true or false"):
        simulate(["replica.lora_communication=maybe"])


def test_every_calibration_of_the_plan_is_there() -> None:
    assert set(OURS) == set(build.entries())


@NEEDS_PROFILES
@pytest.mark.parametrize("name", ["a100_80g-llama_2_7b-tp2", "a100_80g-llama_2_70b-tp8"])
def test_the_published_profiles_give_the_calibrations_that_lie_here(name: str, tmp_path: Path) -> None:
    built = command.write(name, PROFILES, tmp_path)
    made, ours = calibrations.load(str(tmp_path / f"{name}.yaml")), calibrations.load(name)
    for key, value in made.coefficients.items():
        assert key.split(".")[0] in scaling.LORA or ours.need(key) == value, key
    assert built.fits["decode"].held_out_mape < 0.1
    assert built.fits["prefill"].held_out_mape < 0.25


@NEEDS_PROFILES
def test_the_comparisons_print_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([]) == 0
    assert capsys.readouterr().out.count("\n|---") == 6


def test_without_profiles_the_comparison_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    assert compare.main([]) == 0
    assert "skipped: there are no profiles in" in capsys.readouterr().out


def test_decode_is_fitted_for_batches_only_up_to_its_limit(folder: Path) -> None:
    entry = build.entries()["a100_80g-llama_2_7b-tp1"]
    one = sums.decode(build.operators(entry, folder), entry.source, entry.target)
    assert one.points == sum(tokens <= sums.BATCH_MOST for tokens in TOKENS)
