import numpy as np
import pytest

from mxlite.ops.blocks import BLOCK, fold, fold_bytes, iota, PIECE, pieces


@pytest.mark.parametrize(
    "shape, target",
    [
        ((3 * BLOCK + 7, 4), (1, 4)),
        ((3 * BLOCK + 7, 4), (3 * BLOCK + 7, 1)),
        ((50, 3, 30, 20), (1, 3, 1, 1)),
        ((1, 1, 2 * BLOCK + 1, 2), (2,)),
        ((3, BLOCK + 1), (1, BLOCK + 1)),
        ((5, 6), (1, 1)),
        ((7,), (1,)),
    ],
)
def test_fold_over_many_blocks_is_the_sum_of_the_whole_and_keeps_to_its_workspace(shape, target):
    rng = np.random.default_rng(0)
    # Whole numbers, so that the order of the additions does not show.
    x, y = (rng.integers(-4, 5, s).astype(float) for s in (shape, shape[-2:]))
    out = np.full(target, np.nan)
    nbytes = fold_bytes(shape, (target,), out.dtype)
    block = np.full(nbytes + 64, 0x3C, np.uint8)
    block[:nbytes] = 0xFF
    fold(np, lambda into, a, b: np.multiply(a, b, out=into), (x, y), out, block[:nbytes])
    full = (1,) * (len(shape) - len(target)) + target
    axes = tuple(i for i in range(len(shape)) if full[i] != shape[i])
    np.testing.assert_array_equal(out.reshape(full), (x * y).sum(axis=axes, keepdims=True))
    assert (block[nbytes:] == 0x3C).all()


def test_fold_needs_no_workspace_where_nothing_is_stretched():
    assert fold_bytes((3, 4), ((3, 4), (1, 3, 4)), np.dtype("float32")) == 0


@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1, 3 * PIECE])
def test_pieces_cover_an_array_once(size):
    x = np.zeros(size)
    for (part,) in pieces(x):
        assert part.size <= PIECE
        part += 1
    assert (x == 1).all()


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000])
def test_iota_counts(size):
    out = np.full(size, -1)
    iota(np, out)
    np.testing.assert_array_equal(out, np.arange(size))
