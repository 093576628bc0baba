"""What an import holds: no array beside those of the network itself."""

import pytest

pytest.importorskip("torch", reason="PyTorch is where these modules come from")

import torch

import mxlite as mx

from .functions import Group

pytestmark = pytest.mark.torch

EDGES, ROWS, WIDTH = 3000, 100, 32


def planned(call, *shape):
    """The operators of an imported function of weight * x, and the planned bytes of its training."""
    symbol, _, _ = mx.from_torch(Group(shape, {"call": call}), torch.zeros(shape))
    operators = [node.op.op_name for node in symbol.graph.nodes if node.op is not None]
    return operators, symbol.memory_plan(mx.cpu(), x=shape).peak_bytes


@pytest.mark.parametrize("accumulate", [True, False])
def test_rows_are_written_by_their_numbers(accumulate):
    """No index of each element of a row, which would take twice as many bytes as the elements."""
    at = torch.arange(EDGES) % ROWS

    def written(x):
        none = torch.zeros(ROWS, WIDTH)
        return none.index_add(0, at, x) if accumulate else none.index_put((at,), x)

    _, nbytes = planned(written, EDGES, WIDTH)
    wide = 4 * EDGES * WIDTH
    assert nbytes < 6 * wide  # data, weight, gradient, product and the gradient of that; and no more


@pytest.mark.parametrize("shape", [(6, 4), (2, 6, 4)])
def test_products_read_transposes_as_they_lie(shape):
    for call in (lambda x: x @ x.mT, lambda x: x.transpose(-2, -1) @ x, lambda x: x @ x.flip(0).mT):
        operators, _ = planned(call, *shape)
        assert "transpose" not in operators and {"dot", "batch_dot"} & set(operators)
