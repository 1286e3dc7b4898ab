"""dLoRA (OSDI'24), figure by figure: `python -m experiments.dlora [figure_10 …] [--out DIR]`."""
