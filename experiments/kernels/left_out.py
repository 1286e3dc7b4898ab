"""What each part of a composed calibration is worth elsewhere: `python -m experiments.kernels.left_out`.

A line a part, and what was left out of it: a GPU, a model, an engine's version. Errors are absolute and relative. Lines
that need measured runs are skipped, and named, where those are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import numpy as np

from experiments.fidelity import base_engine, sheeted, vllm_steps
from experiments.fidelity.cells import sheets
from experiments.fidelity.rows import read
from experiments.fidelity.vllm import fit, hours, steps
from experiments.fidelity.vllm.predict import GPU
from experiments.fidelity.vllm.predict import read as read_vllm
from experiments.kernels import host, slora
from experiments.studies import markdown
from experiments.studies.command import program
from experiments.studies.reading import load, measured_dir, measured_file
from simlora.calibrate.roofline import scaled
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration
from simlora.latency.parts.kernel_times import shipped

HEAD = ["part", "left out", "figure", "median", "worst"]
MODELS = ("llama_3_1_8b", "qwen3_14b", "mistral_7b")
FAST = 1.1e12
"""Bytes per second from which on memory is stacked (HBM): a GPU is scaled from one of its own kind."""

Line = tuple[str, str, str, list[float]]


def kernels() -> Iterator[Line]:
    """Every measured GPU's decode steps and passes, from each other one that has the same kind of memory."""
    measured = [key for key, times in shipped().items() if "roofline" not in times.source]
    steps: list[float] = []
    passes: list[float] = []
    for gpu, model, tp, engine in measured:
        for other, *rest in measured:
            if (
                other == gpu
                or rest != [model, tp, engine]
                or (tp, engine) != (1, "vllm")
                or model not in MODELS
            ):
                continue
            here, there = gpu_named(other), gpu_named(gpu)
            if (here.memory_bandwidth_bytes_per_s > FAST) != (there.memory_bandwidth_bytes_per_s > FAST):
                continue
            known = shipped()[(gpu, model, tp, engine)]
            found = scaled(shipped()[(other, model, tp, engine)], model_named(model), here, there)
            steps += [abs(found.step_s[n] / known.step_s[n] - 1) for n in known.step_s]
            passes += [abs(found.pass_s[n] / known.pass_s[n] - 1) for n in known.pass_s]
    yield "kernels, by roofline", "a GPU", "decode step", steps
    yield "kernels, by roofline", "a GPU", "prefill", passes


def hosts() -> Iterator[Line]:
    """The host's time of vLLM's steps on the model that it was not fitted to."""
    for each in host.fits():
        for model, errors in each.errors.items():
            if model not in each.fitted:
                yield "host of vLLM", f"model {model}", "decode step", errors.tolist()


def lora() -> Iterator[Line]:
    """The LoRA kernels of vLLM per layer, fitted to the hours of one model, in the steps of the other one's hours."""
    plan, rows = load(fit.PLAN), read_vllm(measured_file("vllm_lora_runs.csv"))
    table = steps.read(measured_dir())
    of = {model: hours.chosen(rows, model, plan) for model in plan["hours"]}
    base = {model: steps.coefficients(table, model) | fit.fixed(plan) for model in of}
    for fitted, left_out in permutations(of, 2):
        found = hours.coefficients({fitted: of[fitted]}, base)[fitted]
        layers = model_named(left_out).layers / model_named(fitted).layers
        carried = {name: value if name == hours.LISTS else layers * value for name, value in found.items()}
        calibration = Calibration("carried", GPU, left_out, 1, {}, base[left_out] | carried)
        errors = hours.errors(of[left_out], calibration)
        yield (
            "LoRA kernels of vLLM, per layer",
            f"model {left_out}",
            "step with LoRA",
            np.abs(errors).tolist(),
        )


def form() -> Iterator[Line]:
    """The form of vLLM's LoRA kernels on half of the rows of an engine that is not named."""
    tree = vllm_steps.report(measured_file(vllm_steps.FILE)).tree
    errors = [
        abs(row["step_ms"]["predicted"] / row["step_ms"]["measured"] - 1)
        for row in tree["rows"]
        if not row["fitted"]
    ]
    yield "form of vLLM's LoRA kernels", "every second run of an engine not named", "step", errors


def base() -> Iterator[Line]:
    """VLLM without LoRA on a GPU and an engine version that nothing was fitted to."""
    tree = base_engine.report(measured_file(base_engine.FILE)).tree
    for row in tree["rows"]:
        for name, label in base_engine.FIGURES.items():
            pairs = zip(row["measured"][name], row["simulated"][name], strict=True)
            errors = [abs(simulated / measured - 1) for measured, simulated in pairs]
            yield "all of vLLM, without LoRA", f"GPU and version: {row['run']}", label, errors


def slora_gpus() -> Iterator[Line]:
    """The parts of S-LoRA's engine on GPUs and a model that were measured as a whole."""
    for gpu, model, errors in slora.judged(read(measured_file(slora.RUNS))):
        known = "in part known" if (gpu, model) != ("a100_80g", "llama_13b") else "model left out"
        for name in ("throughput", "mean_latency"):
            sizes = [abs(error[name]) for error in errors if name in error]
            yield "S-LoRA's engine", f"{gpu}, {model} ({known})", name.replace("_", " "), sizes


def saturating(part: str, sheet: str) -> Iterator[Line]:
    """The parts of an engine on a GPU that neither its host nor its LoRA kernels are from, by a sheet of its runs."""
    section = sheeted.report(sheet, measured_file(sheets()[sheet]["file"]))
    for past, where in ((False, "below saturation"), (True, "past it")):
        rows = [row for row in section.tree["rows"] if row["past_saturation"] == past]
        for figure in sheeted.FIGURES:
            errors = [abs(row["error"][figure.name]) for row in rows if figure.name in row["error"]]
            if errors:
                yield part, f"GPU h100_64g, {where}", figure.label, errors


PARTS: tuple[Callable[[], Iterator[Line]], ...] = (
    kernels,
    hosts,
    lora,
    form,
    base,
    slora_gpus,
    partial(saturating, "S-LoRA's engine", "slora_h100"),
    partial(saturating, "vLLM's V0 engine", "vllm_v0"),
)


@program()
def main() -> None:
    """Print a table."""
    rows, skipped = [], []
    for part in PARTS:
        try:
            for name, left_out, figure, errors in part():
                sizes = 100 * np.array(errors)
                cells = [f"{np.median(sizes):.1f} %", f"{sizes.max():.0f} %"]
                rows.append((float(np.median(sizes)), [name, left_out, figure, *cells]))
        except InputError as error:
            skipped.append(f"skipped: {error}")
    print(markdown.table(HEAD, [cells for _, cells in sorted(rows, key=lambda row: -row[0])]))
    print("\n".join(skipped))
