"""Sweeps without simulations: tables whose figures are what a test says, and folders of runs that vary one key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from tests.report.make_results import make_requests, make_summary, write_results

Figure = Callable[[str, float, int], float]


def make_sweep(
    folder: Path,
    attainment: Figure,
    systems: tuple[str, ...] = ("slora", "vllm"),
    rates: tuple[float, ...] = (1.0, 2.0),
    seeds: int = 3,
    **more: Any,
) -> Path:
    """Write a sweep of systems over rates; `attainment` is what each system, rate and seed has; `more` are columns."""
    rows = []
    for system in systems:
        for rate in rates:
            for seed in range(seeds):
                share = attainment(system, rate, seed)
                rows.append(
                    {
                        "key": f"{folder.name}-{system}-{rate}-{seed}",
                        "source": "0",
                        "system": system,
                        "workload.rate_rps": rate,
                        "seed": seed,
                        "status": "ran",
                        "reason": "",
                        "load": "past" if share < 0.5 else "below",
                        "seconds": 0.1,
                        "makespan_s": 100.0 + 1e-7 * seed,  # no two seeds are the same run
                        "requests.finished": 100.0 * rate,
                        "throughput_tps": 50.0 * rate,
                        "slo.targets.ttft_s": 6.0,
                        "slo.attainment": share,
                        **{f"{m}.{s}": 2.0 - share for m in TIMES for s in ("mean", "p99")},
                    }
                    | more
                )
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / "sweep.parquet", index=False)
    return folder


TIMES = ("ttft_s", "latency_s")


def lose(folder: Path, row: int, status: str, reason: str) -> None:
    """Let a run of a sweep have no figures."""
    table = pd.read_parquet(folder / "sweep.parquet")
    table.loc[row, "status"] = status
    table.loc[row, "reason"] = reason
    table.loc[row, [name for name in table if "." in name and name != "workload.rate_rps"]] = float("nan")
    table.to_parquet(folder / "sweep.parquet", index=False)


def make_run(
    folder: Path,
    seed: int = 0,
    requests: int = 200,
    system: str = "slora",
    gpu_name: str = "a10g",
    **config: Any,
) -> Path:
    """Write the folder of a run with that configuration."""
    frame = make_requests(requests, seed=seed)
    run = {"system": system, "model": "llama_7b", "gpu": gpu_name, "tp": 1, "replicas": 2}
    tree = {"seed": seed, "workload": {"seed": seed}, "report": True, **config}
    return write_results(folder, frame, summary=make_summary(frame, run=run), config=yaml.safe_dump(tree))
