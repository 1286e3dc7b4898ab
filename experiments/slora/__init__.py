"""S-LoRA (MLSys'24), figure by figure: `python -m experiments.slora [table_3 figure_5 …] [--out DIR]`."""
