"""The parts that calibrations are composed of: kernels by GPU and model, host time and LoRA kernels by engine."""
