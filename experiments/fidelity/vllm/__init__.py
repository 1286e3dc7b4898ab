"""Runs of vLLM with LoRA, as measured at its client, and as simulated."""
