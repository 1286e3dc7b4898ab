"""A base model with random weights, its paged KV cache, and the LoRA beside it."""
