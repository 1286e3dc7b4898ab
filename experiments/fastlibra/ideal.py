"""Mooncake's trace with memory without end: `python -m experiments.fastlibra.ideal`.

What its prompts have in common with those before, by the trace alone (`simlora.workload.reuse`), and what one replica
finds that serves them one after the other; then all at their times, where some begin alike in one prefill. Blocks are
512 tokens, the last of a prompt, which is not whole, among them; once with the base model, once with an adapter for
each session, whose KV is of no use to others. Needs the trace in SIMLORA_TRACE_DIR (default: ../shared/traces).
"""

from __future__ import annotations

from experiments.scenarios import scenario
from experiments.studies.command import program
from simlora.engine.cluster.simulation import Simulation
from simlora.workload.reuse import ideal_reuse

ENDLESS = ("replica.kv_token_budget=400000000",)
ONE_BY_ONE = ("replica.max_num_seqs=1",)


def found(adapters: int, *overrides: str) -> tuple[int, int, int]:
    """Return the blocks that could be found, those that a replica found, and all."""
    group = ("system=fastlibra", "workload=mooncake_conversation", f"workload.adapters={adapters}")
    run = scenario([*group, *ENDLESS, *overrides])
    ideal = ideal_reuse(run.trace)
    recorder = Simulation(run).run()
    return ideal.found_blocks, recorder.cached_tokens // run.trace.hash_block_tokens, ideal.blocks


@program()
def main() -> None:
    """Print the hit rates; 2 without the trace."""
    for adapters, title in ((0, "the base model"), (100, "100 adapters, one a session")):
        for how, overrides in (("one by one", ONE_BY_ONE), ("at their times", ())):
            ideal, simulated, blocks = found(adapters, *overrides)
            print(
                f"{title}, {how}: {simulated:,} of {blocks:,} blocks, {simulated / blocks:.2%}; "
                f"ideal {ideal:,}, {ideal / blocks:.2%}"
            )
