"""`simlora-plan [option …] [group=choice] [key=value] …`: the cheapest GPUs and flags that keep an SLO."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from simlora.cli.guarded import (
    DONE,
    RUNS_ARE_KEPT,
    add_config_dir,
    add_longest,
    command_parser,
    guarded_options,
    overrides_of,
)
from simlora.cli.messages import say, show
from simlora.cli.pairs import as_number, numbers, pairs

DESCRIPTION = """\
Find the cheapest GPUs, and the engine's flags on them, that serve a traffic within an SLO; and print the command that
starts each engine. What comes after the options says the traffic, the model and the SLO, as for simlora."""
EXAMPLES = """\
examples
  simlora-plan model=llama_3_1_8b workload=per_adapter workload.adapters=60 slo.ttft_s=2 slo.tpot_s=0.06
  simlora-plan model=llama_3_1_8b workload=file workload.path=trace.csv slo.ttft_s=1 --gpus l40s,h100_80g \\
      --price l40s=1.9
  simlora-plan model=llama_3_1_8b workload=file workload.path=trace.csv --limit ttft_s.p95=1 --engines vllm,sglang
  simlora-plan model=llama_3_1_8b workload=file workload.path=trace.csv slo.ttft_s=1 --tune replica.max_loras=8,16,32

A kind of machine is an engine on 1, 2, 4 or 8 GPUs. Each costs at least what its tokens take at the best batch; those
that cannot be among the cheapest by that are not looked at. Of the others the fewest replicas are found, with the flags
that let them be few: --max-loras, --max-num-seqs, --max-num-batched-tokens, --gpu-memory-utilization, the router, and
prefix caching where requests share prefixes. --max-lora-rank and --max-cpu-loras follow from the adapters.
A plan keeps the SLO with every seed, and in runs four times as long; of a trace, which is as long as it is, it says
where that is too short. It says what binds, how much more traffic it carries, how sure it is by the error of its
calibration, and what the next value of each flag does. A GPU without a price in conf/gpu needs --price.
Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache here): after an interruption the same command goes on where
it was. Written are plan.json, plan.png, runs.parquet and a kubernetes_N.yaml for each plan.
Exit status: 0 done, 2 bad input, or no machine keeps the SLO, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, RUNS_ARE_KEPT)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-plan", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("overrides", nargs="*", metavar="key=value", help="traffic, model and SLO, as for simlora")
    add_config_dir(parser)
    add("--engines", default="vllm", metavar="NAME,…", help="vllm, sglang or both (default: vllm)")
    add("--gpus", metavar="NAME,…", help="kinds of GPU (default: every kind that has a price)")
    add("--tp", default="1,2,4,8", metavar="N,…", help="GPUs of a replica (default: 1,2,4,8)")
    add(
        "--price",
        action="append",
        default=[],
        metavar="GPU=USD",
        help="rent of one GPU for an hour, in place of conf/gpu's; may be given several times",
    )
    add(
        "--tune",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="the values that a key may take, instead of the usual ones; one value fixes it",
    )
    add(
        "--limit",
        action="append",
        default=[],
        metavar="FIGURE=LIMIT",
        help="a figure of summary.json that has to stay below, such as ttft_s.p95=1; may be given several times",
    )
    add(
        "--attainment",
        type=float,
        metavar="SHARE",
        help="least share of the requests within all slo.* targets (default: 0.95, if there is no --limit)",
    )
    add(
        "--seeds", type=int, default=3, metavar="N", help="seeds with which a plan keeps the SLO (default: 3)"
    )
    add("--plans", type=int, default=3, metavar="N", help="plans to print, cheapest first (default: 3)")
    add(
        "--pools",
        action="store_true",
        help="also plan with replicas that only prefill and others that decode, where fewer do then",
    )
    add_longest(parser)
    add("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)")
    add("--out", type=Path, metavar="DIR", help="where the results go (default: outputs/plan)")
    return parser


def _run(options: argparse.Namespace) -> int:
    from simlora.planning import plan

    found = plan(
        overrides_of(options),
        engines=_names(options.engines),
        gpus=None if options.gpus is None else _names(options.gpus),
        degrees=[as_number("--tp", text, int) for text in _names(options.tp)],
        prices=numbers("--price", options.price, "l40s=1.9"),
        tune={
            key: [yaml.safe_load(one) for one in _names(text)]
            for key, text in pairs("--tune", options.tune, "replica.max_loras=8,16").items()
        },
        limits=numbers("--limit", options.limit, "ttft_s.p95=1"),
        attainment=options.attainment,
        seeds=options.seeds,
        plans=options.plans,
        pools=options.pools,
        longest=options.longest,
        jobs=options.jobs,
        tell=say,
    )
    folder = options.out or Path("outputs") / "plan"
    found.save(folder)
    show(found.text())
    show(f"\nResults: {folder}/plan.png, plan.json, runs.parquet, kubernetes_N.yaml of plan N\n")
    return DONE


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
