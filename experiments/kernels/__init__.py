"""The parts of derived calibrations: the table of kernels, the engines' host time, and how well they carry over."""
