"""FastLibra (arXiv 2505.03756), figure by figure: `python -m experiments.fastlibra [figure_12 …] [--out DIR]`."""
