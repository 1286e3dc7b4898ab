"""Prefill and decode apart, beside what Splitwise's paper reports of its own: `python -m experiments.splitwise`.

Splitwise (ISCA'24, arXiv 2311.18677), sections 5.2 and 6.1 to 6.3, with the sizes of clusters of its simulator
(github.com/Mutinifni/splitwise-sim, notebooks/plots.ipynb). A replica is a DGX whose eight GPUs hold one model.
Clusters of the power of 40 DGX-H100, or of their cost, do both on each replica, by mixed continuous batching, or have
replicas that prefill and replicas that decode. Requests have the lengths of the Azure trace of conversations and arrive
at random, for ten minutes. A cluster carries a rate at which all nine SLOs are met: percentiles of first token, time a
token and latency, each over that of the same request alone on a DGX-A100.

The model is BLOOM-176B, as there, and all times are of the paper's own table of its iterations. The paper's simulator
looks up a decode step of so many requests in that table as a batch of so many prompt tokens. A step of 64 requests then
takes as long as one of a single request, where the table has twice as long on an A100. So all is printed twice: with
steps as measured, and as looked up.

The pools help each other out as in the paper's mixed pool, unless each --keeps-to-its-pool. Prompts above 2,048 tokens
are prefilled in chunks of so many. GPUs of HHcap that decode are capped to half their power; by section 4.4 that does
not slow them, and so not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import pandas as pd
from joblib import Parallel, delayed

from experiments.profiles import sums, tables
from experiments.studies.command import JOBS, option, program
from experiments.studies.reading import load, measured_dir
from simlora import simulate
from simlora.calibrate.calibration_file import save, text_of
from simlora.core.bisection import Bracket
from simlora.core.checks import whole
from simlora.latency import calibration as calibrations
from simlora.sweeps.statistics import interval

TABLE, ROWS = "profiles/splitwise_sim_perf_model.csv", "bloom-176b"
SAID = load(Path(__file__).with_suffix(".yaml"))
MODEL, SLO, GPUS, TP = SAID["model"], SAID["slo"], SAID["gpus"], SAID["tp"]
CASE = (
    "system=slora",
    f"model={SAID['nearest']}",
    *(f"model.{key}={value}" for key, value in MODEL.items()),
    f"replica.tp={TP}",
    *SAID["case"],
)
PERCENTILES = (0.5, 0.9, 0.99)
MEASURED, LOOKED_UP = "steps as measured", "steps as looked up"


@dataclass(frozen=True)
class Cluster:
    """DGX: `first` of them prefill, or do both if none only decodes. `paper`: its rate over a baseline's."""

    gpu: str
    first: int
    decode: int = 0
    decode_gpu: str = ""
    paper: str = ""

    def overrides(self, files: Mapping[str, Path], mixed: bool = False) -> list[str]:
        """Return its settings; `files`: the calibration of each GPU; `mixed`: with a mixed pool."""
        total = self.first + self.decode
        own = [
            f"gpu={self.gpu}_80g",
            f"calibration={files[self.gpu]}",
            f"cluster.network={SAID['network']['a100' if 'a100' in (self.gpu, self.decode_gpu) else 'h100']}",
            f"cluster.replicas={total}",
        ]
        if self.decode:
            own += [f"cluster.prefill_replicas={self.first}", "cluster.kv_handover=by_layer"]
            own += [f"cluster.mixed_pool_tokens={SAID['mixed_pool_tokens']}"] * mixed
        if self.decode_gpu:
            other = f"gpu: {self.decode_gpu}_80g, calibration: {files[self.decode_gpu]}"
            own.append(f"cluster.replica_groups=[{{{other}, replicas: {self.decode}}}]")
        return own


CLUSTERS = {name: Cluster(**entry) for name, entry in SAID["clusters"].items()}
BASELINES = ("Baseline-A100", "Baseline-H100")


def _cell(rates: Sequence[float]) -> str:
    low, high = interval(rates)
    return f"{f'{fmean(rates):.1f} [{low:.1f}, {high:.1f}]':>24}"


def written(prices: str, folder: Path) -> dict[str, Path]:
    """Write the calibration of each GPU, and return their files.

    Both have the table's medians of passes by prompt tokens. Steps are fitted to it by requests and contexts, or are
    what it has for so many prompt tokens.
    """
    return {gpu: _written(prices, gpu, folder / f"{prices.replace(' ', '_')}_{gpu}.yaml") for gpu in GPUS}


def _written(prices: str, gpu: str, path: Path) -> Path:
    table = tables.iterations(measured_dir() / TABLE, ROWS, GPUS[gpu], TP)
    medians = table.groupby(table.prompt * table.batch)[["prompt_s", "token_s"]].median()
    other = calibrations.load(f"{gpu}_80g-{SAID['nearest']}-tp{TP}")
    found = {
        name: each
        for name, each in other.coefficients.items()
        if not name.startswith(("prefill.", "decode."))
    }
    found |= {f"{calibrations.PASS_BY_TOKENS}.{tokens}": each for tokens, each in medians.prompt_s.items()}
    if prices == MEASURED:
        fitted = sums.whole_decode(table).coefficients
        found |= {f"decode.{name}": each for name, each in fitted.items()}
    else:
        found |= {f"{calibrations.STEP_BY_BATCH}.{tokens}": each for tokens, each in medians.token_s.items()}
        found["decode.per_context_token_s"] = 0.0
    save(path, text_of(replace(other, model=str(MODEL["name"]), coefficients=found)))
    return path


def carried_rps(cluster: Cluster, files: Mapping[str, Path], mixed: bool, seed: int) -> float:
    """Return the highest rate at which a cluster meets all nine SLOs, to 2 %."""
    own = [*CASE, *SAID["conversations"], *cluster.overrides(files, mixed), f"seed={seed}"]
    alone = pd.DataFrame()
    bracket = Bracket(64.0, 1.0, 1024.0, precision=0.02, step=1.5)
    while (rate := bracket.ask) is not None:
        requests = simulate([*own, f"workload.arrivals.rate_rps={rate}"]).requests
        if len(alone) < len(requests):
            single = Cluster("a100", 1).overrides(files)
            count = f"workload.requests={2 * len(requests)}"
            alone = simulate(
                [*CASE, *SAID["conversations"], *single, f"seed={seed}", *SAID["alone"], count]
            ).requests
        bracket = bracket.told(rate, meets(slowdowns(requests, alone)))
    assert bracket.low is not None, "a rate within the bounds"
    return bracket.low


def slowdowns(requests: pd.DataFrame, alone: pd.DataFrame) -> dict[str, list[float]]:
    """Return PERCENTILES of how many times as long as alone the requests took, by SLO's names.

    `alone` has the same requests, in their order, and may have more. One that did not end took infinitely long.
    """
    same = alone.iloc[: len(requests)]
    assert (requests.prompt_tokens.to_numpy() == same.prompt_tokens.to_numpy()).all(), "the same requests"
    return {
        name: (requests[name].fillna(float("inf")) / same[name]).quantile(PERCENTILES, "lower").tolist()
        for name in SLO
    }


def meets(found: Mapping[str, Sequence[float]]) -> bool:
    """Whether all nine percentiles are within the SLO."""
    return all(
        one <= most for name, limits in SLO.items() for one, most in zip(found[name], limits, strict=True)
    )


def _print_handover(files: Mapping[str, Path]) -> None:
    """Print what handing KV over adds to a request alone, of the coding trace's medians, on two DGX of a kind."""
    print("added by handing KV over; section 6.1: whole 64 % and 3 %, by layer 16.5 % and 0.8 %")
    for gpu in GPUS:
        for way in ("whole", "by_layer"):
            both, apart = (Cluster(gpu, 1, decode).overrides(files) for decode in (0, 1))
            own = [*CASE, *SAID["coding"], *SAID["alone"]]
            second, latency = (
                each / base - 1
                for each, base in zip(
                    _second_and_latency_s([*own, *apart, f"cluster.kv_handover={way}"]),
                    _second_and_latency_s([*own, *both]),
                    strict=True,
                )
            )
            print(f"  {gpu} {way:9}: second token {second:6.1%}, latency {latency:5.1%}")


def _second_and_latency_s(overrides: Sequence[str]) -> tuple[float, float]:
    """Return the mean seconds from the first token to the second, and of the whole request."""
    whole_one = simulate(overrides).requests
    two = simulate([*overrides, "workload.output_tokens.tokens=2"]).requests
    return float((two.latency_s - two.ttft_s).mean()), float(whole_one.latency_s.mean())


@program(
    option("--seeds", type=int, default=3, help="of each capacity (default: 3)"),
    option("--keeps-to-its-pool", action="store_true", help="no replica does the other pool's work"),
    JOBS,
    about=__doc__,
    epilog="It reads SIMLORA_MEASURED_DIR and SIMLORA_TRACE_DIR, and takes about forty minutes of a core.",
)
def main(seeds: int, keeps_to_its_pool: bool, jobs: int) -> None:
    """Search and print."""
    whole("--seeds", seeds, "seeds", least=1)
    with TemporaryDirectory() as folder:
        files = {name: written(name, Path(folder)) for name in (MEASURED, LOOKED_UP)}
        _print_handover(files[MEASURED])
        asked = [(name, prices, seed) for name in CLUSTERS for prices in files for seed in range(seeds)]
        searches = [
            delayed(carried_rps)(CLUSTERS[name], files[prices], not keeps_to_its_pool, seed)
            for name, prices, seed in asked
        ]
        found = dict(zip(asked, Parallel(jobs)(searches), strict=True))
    means = {each: fmean(found[*each, seed] for seed in range(seeds)) for each in product(CLUSTERS, files)}
    over = "".join(f"{f'over {base}':>21}" for base in BASELINES)
    print(f"\n{'requests/s':28}{MEASURED:>24}{LOOKED_UP:>24}{over}{'the paper':>19}")
    for name, cluster in CLUSTERS.items():
        rates = "".join(_cell([found[name, prices, seed] for seed in range(seeds)]) for prices in files)
        ratios = (
            ", ".join(f"{means[name, one] / means[base, one]:.2f}" for one in files) for base in BASELINES
        )
        print(f"{name:28}{rates}{''.join(f'{each:>21}' for each in ratios)}{cluster.paper:>19}")
