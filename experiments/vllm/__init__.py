"""Draw what vLLM with LoRA does: `python -m experiments vllm [slots how_many_slots …] [--out DIR]`.

VLLM with LoRA, measured and asked.
"""
