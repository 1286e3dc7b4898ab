"""Draw CaraServe's figures and tables: `python -m experiments.caraserve [figure_10 figure_14 …] [--out DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.studies.command import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
