"""LoRAServe's figures, made again."""
