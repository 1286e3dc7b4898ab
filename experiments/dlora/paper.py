"""What all of dLoRA's studies have in common: where they are, the seeds of their runs, the targets of their figures."""

from __future__ import annotations

from pathlib import Path

from experiments.studies.several import read_seeds

FOLDER = Path(__file__).resolve().parent
SEEDS = read_seeds(FOLDER / "claims.yaml")
"""Those over which the claims are judged: a curve is their mean, the band around it from the least to the most."""
TARGETS_S = {
    "latency_per_output_token_s.mean": 0.5,
    "latency_over_output_tokens_s": 0.5,
    "queue_per_output_token_s.mean": 0.5,
}
"""By metric: 10 times a decode step (§7.1), and in Figure 11(a) the same of the queueing delay per token."""
