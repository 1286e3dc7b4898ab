"""Measures what the simulator assumes. Under construction: so far what is to be measured, not yet the measuring.

kernels/   LoRA in Triton (BGMV, MBGMV, SGMV), in plain torch, and compiled ahead of time
model/     a base model with random weights: paged KV cache, attention, adapters, prefills and decode steps
device     where to run: a CUDA GPU or a CPU
"""
