"""CaraServe, also Toppings (arXiv 2401.11240), figure by figure: `python -m experiments.caraserve [figure_10 …]`."""
