"""Draw LoRAServe's figures: `python -m experiments.loraserve [figure_17 …] [--out DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.studies.command import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
