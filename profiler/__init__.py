"""Measures what the simulator assumes, on a CUDA GPU or a CPU, and serves traces on it to judge the simulator by.

kernels/   LoRA in Triton (BGMV, MBGMV, SGMV), in plain torch, and compiled ahead of time
model/     a base model with random weights: paged KV cache, attention, adapters, prefills and decode steps
points     what to time: one point is one iteration, copy or product; plans/ are lists of them
device     where to run
bench      times a point; host: the CPU's part; answering: the process to which it hands work over
collect    times all points of a plan, and keeps every sample
fit        linear models of the points; write: a calibration; report: a page
command    simlora-profile
replay/    python -m profiler.replay: a replica whose iterations run on the device, beside the same one simulated
"""
