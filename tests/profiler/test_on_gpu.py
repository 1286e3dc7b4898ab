"""On a CUDA GPU, compiled: the kernels against float64, and recorded steps against steps that are not.

Nothing here runs without one. Triton either interprets or compiles in a process, so these need one of their own:
`python -m pytest tests/profiler/test_on_gpu.py`.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("needs a process of its own, in which Triton compiles", allow_module_level=True)

from profiler.device import choose
from profiler.kernels.decode import bgmv, mbgmv
from profiler.kernels.pages import random_pages
from profiler.kernels.prefill import sgmv
from profiler.kernels.work import BASE_MODEL, decode_work, prefill_work
from profiler.model.engine import Engine, Live
from profiler.model.prefill_attention import prefill_attention, prefill_attention_in_torch, tiles
from simlora.hardware.model import ModelShape
from tests.profiler.products import reference

GPU = choose("cuda")
RANKS = [8, 64, 16, 128, 32]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SHAPE = ModelShape(
    "tiny", layers=2, hidden=512, heads=8, kv_heads=4, head_dim=64, intermediate=1024, vocab=500
)
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@DTYPES
@pytest.mark.parametrize("kernel", [bgmv, mbgmv])
@pytest.mark.parametrize("widths", [(4096, 4096), (4096, 1024), (1000, 777)])
def test_a_step_is_what_float64_makes_of_it(kernel, widths, dtype):
    pages = random_pages(RANKS, *widths, dtype, GPU.torch)
    work = decode_work([0, 3, BASE_MODEL, 1, 2, 4, 3] * 9, pages)
    x, y = (torch.randn(work.rows, width, device=GPU.torch).to(dtype) for width in widths)
    expected = reference(y, x, work, pages)
    kernel(y, x, work, pages)
    torch.testing.assert_close(y.double(), expected, rtol=TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("widths", [(4096, 4096), (1000, 777)])
def test_a_prefill_is_what_float64_makes_of_it(widths, dtype):
    pages = random_pages(RANKS, *widths, dtype, GPU.torch)
    work = prefill_work([(0, 100), (3, 1), (BASE_MODEL, 40), (1, 0), (4, 333), (2, 32)], pages)
    x, y = (torch.randn(work.tokens, width, device=GPU.torch).to(dtype) for width in widths)
    expected = reference(y, x, work, pages)
    sgmv(y, x, work, pages)
    torch.testing.assert_close(y.double(), expected, rtol=TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(32, 32, 128), (32, 8, 128), (8, 4, 64)])
def test_the_attention_of_prompts_is_torchs_own(heads, kv_heads, head_dim, dtype):
    lengths = [1, 300, 64, 1025]
    q, k, v = (
        torch.randn(sum(lengths), width, head_dim, device=GPU.torch).to(dtype)
        for width in (heads, kv_heads, kv_heads)
    )
    found = prefill_attention(q, k, v, tiles(lengths, GPU.torch))
    expected = prefill_attention_in_torch(q.double(), k.double(), v.double(), lengths)
    torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("kernel", ["bgmv", "mbgmv"])
def test_recorded_steps_leave_the_cache_as_steps_that_are_not_recorded(kernel):
    """Greedy tokens may differ where two are as likely, so the keys that were written are compared."""
    found = []
    for recorded in (True, False):
        engine = Engine(SHAPE, GPU, 4000, RANKS)
        if not recorded:
            engine.graphs = None
            engine.cache.grow(-1, 1)  # the page that padding would have
        live = [
            Live(id, id % 6 - 1, [(7 * at + id) % SHAPE.vocab for at in range(30 + 11 * id)])
            for id in range(7)
        ]
        engine.prefill(live, kernel)
        for one in live:
            one.last = 1
        engine.decode(live, kernel)
        places = [engine.cache.slots(one.id, one.context - 1, one.context)[0] for one in live]
        found.append(engine.cache.keys.flatten(1, 2)[:, places].double())
    torch.testing.assert_close(found[0], found[1], rtol=1e-2, atol=1e-2)
