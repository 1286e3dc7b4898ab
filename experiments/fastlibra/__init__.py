"""Draw FastLibra's figures: `python -m experiments fastlibra [figure_9 what_if_link …] [--out DIR]`.

FastLibra (arXiv 2505.03756).
"""
