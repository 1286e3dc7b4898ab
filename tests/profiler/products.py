"""What LoRA kernels are held against."""

from torch import Tensor

from profiler.kernels.pages import Pages
from profiler.kernels.torch_ways import stretches
from profiler.kernels.work import BASE_MODEL, DecodeWork, PrefillWork


def reference(y: Tensor, x: Tensor, work: DecodeWork | PrefillWork, pages: Pages) -> Tensor:
    """Return what any kernel should make of y, computed in float64."""
    found = y.double()
    for begin, end, adapter in stretches(work):
        if adapter != BASE_MODEL:
            a, b = (weights.double() for weights in pages.weights(adapter))
            found[begin:end] += pages.scales[adapter] * (x[begin:end].double() @ a.T @ b)
    return found
