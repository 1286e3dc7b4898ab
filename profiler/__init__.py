"""Measures what the simulator assumes: kernels, the base model, transfers, on a GPU or a CPU. Under construction.

kernels/   LoRA in Triton (BGMV, MBGMV, SGMV), in plain torch, and compiled ahead of time
model/     a base model with random weights: paged KV cache, attention, adapters, prefills and decode steps
points     what a plan measures; bench times it, collect keeps the samples, fit and write make a calibration of them
replay/    a real batch loop driven by the simulator's schedulers, beside the simulation of the same trace

Tested so far: kernels and model.
"""
