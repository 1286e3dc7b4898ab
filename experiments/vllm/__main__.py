"""Draw what vLLM with LoRA does: `python -m experiments.vllm [slots how_many_slots …] [--out DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.studies.command import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
