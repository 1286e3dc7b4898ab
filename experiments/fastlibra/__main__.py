"""Draw FastLibra's figures: `python -m experiments.fastlibra [figure_9 what_if_link …] [--out DIR]`."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.studies.command import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
