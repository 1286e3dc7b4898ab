"""What `simlora-trace info` says of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlora.config.engine_flags import TODAY, allowed_rank
from simlora.report.format import digits, percent
from simlora.workload.facts import QUANTILES, Facts, Rates
from simlora.workload.file import File

if TYPE_CHECKING:
    from simlora.core.trace import Trace

ONE = "one adapter for all"
UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))
"""With the seconds that each has."""


def facts_in_words(found: Facts) -> str:
    """Return the facts as lines."""
    rates, shares = found.rates, found.shares
    lines = [
        f"{'requests':<12}{found.requests:,} in {_long(rates.span_s)}",
        f"{'rate':<12}mean {digits(rates.mean_rps)}/s{_peak(rates)}",
        f"{'burstiness':<12}gaps' coefficient of variation {digits(rates.gap_cv)} (Poisson: 1)",
    ]
    if rates.dispersion:
        windows = ", ".join(f"{digits(value)} in {width:g} s" for width, value in rates.dispersion.items())
        lines.append(f"{'':<12}variance over mean of counts {windows} (Poisson: 1)")
    heads = [{0.0: "least", 1.0: "most"}.get(share, f"p{share * 100:g}") for share in QUANTILES]
    lines += ["", f"{'tokens':<12}" + "".join(f"{head:>9}" for head in (*heads, "mean"))]
    for name, values in (("prompts", found.prompts), ("answers", found.outputs)):
        lines.append(
            f"{name:<12}" + "".join(f"{value:>9,.0f}" for value in values[:-1]) + f"{values[-1]:>9,.1f}"
        )
    lines.append("")
    if found.sessions:
        each = found.sessions.requests / found.sessions.sessions
        lines.append(
            f"{'sessions':<12}{found.sessions.sessions:,}, of {digits(each)} requests on average and at most "
            f"{found.sessions.longest:,}"
        )
    if found.reuse and found.reuse_of_one:
        lines.append(
            f"{'reuse':<12}at best {percent(found.reuse.of_blocks)} of the prompts' blocks of "
            f"{found.reuse.block_tokens} tokens came before; with {ONE} {percent(found.reuse_of_one.of_blocks)}"
        )
    else:
        lines.append(f"{'reuse':<12}not known: the trace has neither sessions nor block hashes")
    if shares.used:
        lines.append(
            f"{'adapters':<12}{shares.used:,} used of {shares.adapters:,}; the first has {percent(shares.top)} of the "
            f"requests, the first tenth {percent(shares.top_tenth)}"
        )
        lines.append(f"{'':<12}Gini {shares.gini:.3f}, as if {digits(shares.effective)} were alike")
    if shares.base_model:
        lines.append(f"{'base model':<12}{shares.base_model:,} requests")
    return "\n".join(lines)


def next_commands(path: str, trace: Trace, model: str | None = None) -> str:
    """Return the commands that run a file of a trace and, where simlora has its model, that plan for it."""
    workload = f"workload=file workload.path={path}"
    if trace.has_hashes and trace.hash_block_tokens != File.hash_block_tokens:
        workload += f" workload.hash_block_tokens={trace.hash_block_tokens}"
    if model is None:
        return f"Run it: simlora gpu=a10g model=llama_7b {workload}"
    rank = allowed_rank(max((adapter.rank for adapter in trace.adapters), default=1))
    return (
        f"Run it: simlora system=vllm gpu=h100_80g model={model} replica.max_lora_rank={rank} "
        f"{TODAY} {workload}\n"
        f"Plan for it: simlora-plan model={model} {workload} slo.ttft_s=2 slo.tpot_s=0.1"
    )


def _peak(rates: Rates) -> str:
    """Return what the busiest minute had; nothing of a trace that is shorter."""
    if rates.peak_rps is None:
        return ""
    return f", busiest minute {digits(rates.peak_rps)}/s, peak to mean {digits(rates.peak_to_mean)}"


def _long(seconds: float) -> str:
    """Return a time as people say it."""
    for unit, length_s in UNITS:
        if seconds >= 2 * length_s:
            return f"{digits(seconds / length_s)} {unit}"
    return f"{digits(seconds)} s"
