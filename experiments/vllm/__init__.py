"""vLLM with LoRA, measured and asked: `python -m experiments.vllm [slots how_many_slots …] [--out DIR]`."""
