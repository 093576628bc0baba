"""Kernels of tables of rows."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.core.machine_code import native
from mxlite.ops.index.embedding import Embedding

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not installed")


@pytest.fixture
def threads():
    """Sets the number of threads, and brings the old one back."""
    before = mx.get_num_threads()
    yield mx.set_num_threads
    mx.set_num_threads(before)


@pytest.mark.parametrize("columns", [1, 70, 512])
def test_gradients_of_a_table_are_added_up_in_order(threads, columns):
    """Bit for bit as numpy does it, for places that come again and some beyond the ends."""
    rows, count = 20000 // columns + 3, 257
    rng = np.random.default_rng(7)
    data = rng.integers(-2, rows + 2, count).astype(np.float32)
    d_out = rng.standard_normal((count, columns)).astype(np.float32)
    wanted = np.zeros((rows, columns), np.float32)
    np.add.at(wanted, np.clip(data.astype(int), 0, rows - 1), d_out)
    op, a = Embedding.grad_op, Embedding.Attrs(rows, columns)
    shapes = ((count,), (rows, columns)), ((count, columns),)
    for many in (1, 2, 3):
        threads(many)
        chosen = CPU.choose(op, a, *shapes, np.dtype("float32"), (np.dtype("float32"),) * 2)
        assert chosen.name == "compiled 2 loop nests"
        found, work = np.full((rows, columns), np.nan, np.float32), np.empty(chosen.workspace, np.uint8)
        chosen.run(np, a, d_out, data, d_weight=found, work=work)
        assert (found == wanted).all()
