"""Draw S-LoRA's figures and tables: `python -m experiments slora [table_3 figure_5 …] [--out DIR]`.

S-LoRA (MLSys'24).
"""
