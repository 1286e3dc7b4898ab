"""Draw LoRAServe's figures: `python -m experiments loraserve [figure_17 …] [--out DIR]`.

LoRAServe.
"""
