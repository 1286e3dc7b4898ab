"""The kernels, interpreted, against float64: every row gets its own adapter's product, and nothing else is touched."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from profiler.kernels.decode import bgmv, decode_scratch, mbgmv
from profiler.kernels.pages import Pages, random_pages
from profiler.kernels.prefill import prefill_scratch, sgmv
from profiler.kernels.torch_ways import one_hot_einsum, padded_bmm
from profiler.kernels.work import BASE_MODEL, TILE_TOKENS, decode_work, prefill_work
from simlora.core.errors import InputError
from tests.profiler.products import reference

CPU = torch.device("cpu")
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Two or three units in the last place of values near 1."""
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
DECODE: tuple[Callable[..., None], ...] = (bgmv, mbgmv, padded_bmm, one_hot_einsum)


def some(rows: int, width: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(dtype)


def poisoned(scratch: Tensor) -> Tensor:
    return torch.full_like(scratch, float("nan"))


def decoded(way: Callable[..., None], adapters: list[int], pages: Pages) -> tuple[Tensor, Tensor, Tensor]:
    """Return what y was, what a way of decoding makes of it, and what it should."""
    work, dtype = decode_work(adapters, pages), pages.a.dtype
    x, y = some(len(adapters), pages.in_features, dtype), some(len(adapters), pages.out_features, dtype, 2)
    found = y.clone()
    if way in (bgmv, mbgmv):
        way(found, x, work, pages, poisoned(decode_scratch(work, pages)))
    else:
        way(found, x, work, pages)
    return y, found, reference(y, x, work, pages)


def prefilled(segments: list[tuple[int, int]], pages: Pages) -> tuple[Tensor, Tensor, Tensor]:
    """Return what y was, what the kernel makes of it, and what it should."""
    work, dtype = prefill_work(segments, pages), pages.a.dtype
    x, y = some(work.tokens, pages.in_features, dtype), some(work.tokens, pages.out_features, dtype, 2)
    found = y.clone()
    sgmv(found, x, work, pages, poisoned(prefill_scratch(work, pages)))
    return y, found, reference(y, x, work, pages)


def assert_near(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])


# Decode


@DTYPES
@pytest.mark.parametrize("way", DECODE, ids=lambda way: way.__name__)
def test_every_row_gets_its_own_adapter(way, dtype):
    pages = random_pages([8, 16, 32, 64, 5], 300, 300, dtype, CPU)
    _, found, expected = decoded(way, [0, 3, BASE_MODEL, 2, 2, 1, 4], pages)
    assert_near(found, expected, dtype)


@settings(max_examples=8, deadline=None)
@given(
    ranks=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    rows=st.lists(st.integers(BASE_MODEL, 3), min_size=1, max_size=5),
    width=st.tuples(st.integers(1, 530), st.integers(1, 530)),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("way", (bgmv, mbgmv), ids=lambda way: way.__name__)
def test_any_ranks_pages_and_odd_sizes_decode_right(way, ranks, rows, width, seed):
    pages = random_pages(ranks, *width, torch.float16, CPU, seed)
    _, found, expected = decoded(way, [min(row, len(ranks) - 1) for row in rows], pages)
    assert_near(found, expected, torch.float16)


@pytest.mark.parametrize("way", DECODE, ids=lambda way: way.__name__)
def test_rows_of_the_base_model_stay_bit_for_bit(way):
    pages = random_pages([16, 8], 64, 64, torch.float16, CPU)
    before, found, _ = decoded(way, [BASE_MODEL, 1, BASE_MODEL], pages)
    assert torch.equal(found[[0, 2]], before[[0, 2]])
    assert not torch.equal(found[1], before[1])
    before, found, _ = decoded(way, [BASE_MODEL], pages)
    assert torch.equal(found, before)


def test_bgmv_reads_the_padding_and_mbgmv_does_not():
    pages = random_pages([4, 64], 64, 64, torch.float16, CPU)
    beyond = pages.table[0, 4:].long()
    pages.a[beyond] = float("nan")
    _, found, expected = decoded(mbgmv, [0, 1], pages)
    assert_near(found, expected, torch.float16)
    assert decoded(bgmv, [0, 1], pages)[1][0].isnan().all()
    # Alone the adapter's own rank is the highest: there is no padding.
    assert_near(*decoded(bgmv, [0], pages)[1:], torch.float16)


def test_the_same_batch_gives_the_same_bits():
    pages = random_pages([8, 32], 700, 300, torch.float16, CPU)
    assert torch.equal(decoded(mbgmv, [0, 1, 1], pages)[1], decoded(mbgmv, [0, 1, 1], pages)[1])


# Prefill


@DTYPES
def test_every_segment_gets_its_own_adapter(dtype):
    pages = random_pages([8, 16, 64, 128, 5], 300, 200, dtype, CPU)
    segments = [(0, 3), (3, 0), (BASE_MODEL, 5), (2, TILE_TOKENS + 7), (1, 2 * TILE_TOKENS), (4, 1)]
    before, found, expected = prefilled(segments, pages)
    assert_near(found, expected, dtype)
    assert torch.equal(found[3:8], before[3:8]), "tokens of the base model are not touched"


@settings(max_examples=8, deadline=None)
@given(
    ranks=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    segments=st.lists(st.tuples(st.integers(BASE_MODEL, 3), st.integers(0, 70)), min_size=1, max_size=4),
    width=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    seed=st.integers(0, 99),
)
def test_any_segments_prefill_right(ranks, segments, width, seed):
    pages = random_pages(ranks, *width, torch.float16, CPU, seed)
    known = [(min(adapter, len(ranks) - 1), tokens) for adapter, tokens in segments]
    _, found, expected = prefilled(known, pages)
    assert_near(found, expected, torch.float16)


# What is refused before any launch


@pytest.mark.parametrize(
    ("ranks", "widths", "dtype", "said"),
    [
        ([], (8, 8), torch.float16, "there is no adapter"),
        ([8, 0], (8, 8), torch.float16, "rank 0 of an adapter must be from 1 to 256"),
        ([8], (8, 8), torch.float64, "torch.float64 are not supported; choose torch.float16"),
    ],
)
def test_pages_that_no_kernel_can_read_are_refused(ranks, widths, dtype, said):
    with pytest.raises(InputError, match=said):
        random_pages(ranks, *widths, dtype, CPU)


@pytest.mark.parametrize("adapter", [-2, 2, 99])
def test_an_index_outside_is_refused_on_the_host(adapter):
    pages = random_pages([8, 8], 32, 32, torch.float16, CPU)
    with pytest.raises(InputError, match=f"adapter {adapter} in row 1 is none of the 2"):
        decode_work([0, adapter], pages)
    with pytest.raises(InputError, match=f"adapter {adapter} in row 1 is none of the 2"):
        prefill_work([(0, 4), (adapter, 4)], pages)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (some(2, 31, torch.float16), some(2, 48, torch.float16), r"x has shape \[2, 31\], must be \[2, 32\]"),
        (some(2, 32, torch.float16), some(3, 48, torch.float16), r"y has shape \[3, 48\], must be \[2, 48\]"),
        (some(2, 32, torch.bfloat16), some(2, 48, torch.float16), "x is torch.bfloat16, must be"),
        (some(32, 2, torch.float16).T, some(2, 48, torch.float16), "the rows of x must be contiguous"),
    ],
)
def test_shapes_and_types_that_do_not_go_together_are_refused(x, y, said):
    pages = random_pages([8], 32, 48, torch.float16, CPU)
    work = decode_work([0, 0], pages)
    for way in (bgmv, mbgmv):
        with pytest.raises(InputError, match=said):
            way(y, x, work, pages)
    with pytest.raises(InputError, match=said):
        sgmv(y, x, prefill_work([(0, 2)], pages), pages)
