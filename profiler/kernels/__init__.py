"""LoRA kernels in Triton, and the same products in plain torch."""
