"""Where to measure is chosen once, and a machine that cannot is told so before anything runs."""

import pytest
import torch

from profiler.device import _gpu, choose
from simlora.core.errors import InputError


def test_without_a_gpu_the_cpu_is_chosen_and_cuda_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose("auto").gpu == choose("cpu").gpu == "cpu"
    assert not choose("auto").is_gpu
    with pytest.raises(InputError, match=r"device=cuda, but torch .* finds no CUDA GPU here; use device=cpu"):
        choose("cuda")
    with pytest.raises(InputError, match="device is 'gpu', must be one of auto, cuda, cpu"):
        choose("gpu")


@pytest.mark.parametrize(
    ("cuda_says", "gpu"),
    [
        ("NVIDIA H200", "h200_141g"),
        ("NVIDIA H100 80GB HBM3", "h100_80g"),
        ("NVIDIA A100-SXM4-40GB", "a100_40g"),
        ("NVIDIA A100-SXM4-80GB", "a100_80g"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L4", "nvidia_l4"),
    ],
)
def test_a_gpu_has_the_name_that_simlora_gives_it(cuda_says, gpu):
    assert _gpu(cuda_says) == gpu
