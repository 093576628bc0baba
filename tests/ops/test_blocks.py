import numpy as np
import pytest

from mxlite.ops.blocks import iota, PIECE, pieces


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
