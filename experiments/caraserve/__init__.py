"""Draw CaraServe's figures and tables: `python -m experiments caraserve [figure_10 …] [--out DIR]`.

CaraServe, also Toppings (arXiv 2401.11240).
"""
