"""Draw dLoRA's figures: `python -m experiments dlora [figure_10 what_if_slower …] [--out DIR]`.

DLoRA (OSDI'24).
"""
