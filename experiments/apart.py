"""Prefill and decode apart, beside what DistServe's paper reports of its own case: `python -m experiments.apart`.

DistServe (OSDI'24), Figure 1: a model of 13 billion parameters on A100 of 80 GB, prompts of 512 tokens and answers of
64; nine of ten requests are to have a first token within 0.4 s, and further ones every 0.04 s. One GPU that does both
serves 1.6 requests/s, one that only prefills 5.6, one that only decodes 10; two that prefill for one serve 10, 2.1
times as many a GPU. Here it is Llama-2-13B, without adapters, with vLLM before V1: whole prompts first, and none beside
a decode step.

Its prefills are slower than ours, whose kernels are of 2025. So all is printed twice: as calibrated, and with prefills
that take so many times as long that one GPU which only prefills serves what the paper's does. The other numbers judge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from scipy.optimize import brentq

from experiments.studies.command import option, program
from experiments.studies.reading import load
from simlora.calibrate.calibration_file import save, text_of
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.core.checks import whole
from simlora.latency.calibration import PASS_BY_TOKENS
from simlora.latency.parts.composed import composed
from simlora.sweeps import Capacity, capacity

SAID = load(Path(__file__).with_suffix(".yaml"))
PREFILLS = "one of six prefills"
CLUSTERS = SAID["clusters"]
"""By name: GPUs, how many of them prefill, and the requests/s of the paper."""


def slower(longer: float, folder: Path) -> Path:
    """Write the calibration whose prefills take so many times as long, and return its file."""
    model = model_named("llama_2_13b")
    found = composed(gpu_named("a100_80g"), model, 1, "vllm_v0")
    assert found is not None, "simlora has the kernels"
    coefficients = {
        name: value * (longer if name.startswith(PASS_BY_TOKENS) else 1.0)
        for name, value in found.coefficients.items()
    }
    path = folder / f"slower_{longer:g}.yaml"
    save(path, text_of(replace(found, coefficients=coefficients)))
    return path


@program(option("--seeds", type=int, default=5, help="of each capacity (default: 5)"), about=__doc__)
def main(seeds: int) -> None:
    """Search and print."""
    whole("--seeds", seeds, "seeds", least=1)
    with TemporaryDirectory() as folder:

        def carried(name: str, longer: float) -> Capacity:
            """Return what a cluster serves whose prefills take so many times as long."""
            gpus, prefill, _ = CLUSTERS[name]
            own = [f"cluster.replicas={gpus}", f"cluster.prefill_replicas={prefill}"]
            calibration = f"calibration={slower(longer, Path(folder))}"
            return capacity([*SAID["case"], *own, calibration], limits=SAID["limits"], seeds=seeds, longest=1)

        def beyond(longer: float) -> float:
            """Return how many requests/s one GPU that only prefills serves beyond the paper's."""
            return carried(PREFILLS, longer).value - 5.6

        longer = float(brentq(beyond, 1.0, 3.0, rtol=0.005))
        print(f"requests/s, as calibrated and with prefills that take {longer:.2f} times as long")
        print(f"{'':28}{'as calibrated':>22}{'slower prefills':>22}{'DistServe':>12}")
        each: dict[str, list[float]] = {}
        for name, (gpus, _, theirs) in CLUSTERS.items():
            found = [carried(name, factor) for factor in (1.0, longer)]
            cells = [f"{one.value:.2f} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]" for one in found]
            print(f"{name:28}" + "".join(f"{cell:>22}" for cell in cells) + f"{theirs or '':>12}")
            each[name] = [one.value / gpus for one in found]
        for name in list(CLUSTERS)[-2:]:
            gains = [apart / both for apart, both in zip(each[name], each["one does both"], strict=True)]
            theirs = "2.1" if name == "two prefill, one decodes" else ""
            cells = "".join(f"{gain:>22.2f}" for gain in gains)
            print(f"{name + ', a GPU':28}{cells}{theirs:>12}")
