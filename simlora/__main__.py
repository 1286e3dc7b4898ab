"""`python -m simlora` is `simlora`."""

import sys

from simlora.cli import main

if __name__ == "__main__":
    sys.exit(main())
