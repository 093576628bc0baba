"""gluon.contrib.rnn: cells with convolutions, with a projection, or with one dropout mask, against MXNet."""

import json
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon.contrib import rnn
from tests.oracles.mxnet import gluon_cells

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/mxnet/gluon-cells.json").read_text())


@pytest.fixture(scope="module")
def cells():
    with mx.name.NameManager():
        return gluon_cells.cases(mx)


def agree(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a[:-2] == b[:-2]
        np.testing.assert_allclose(a[-2:], b[-2:], rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("name", GOLDEN["numbers"])
def test_outputs_states_and_gradients_are_those_of_mxnet(cells, name):
    cell, sample = cells[name]
    assert list(cell.collect_params()) == GOLDEN["parameters"][name]
    assert [list(s["shape"]) for s in cell.state_info(2)] == GOLDEN["states"][name]
    agree(gluon_cells.numbers(mx, cell, sample), GOLDEN["numbers"][name])


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("lengths", [False, True])
def test_a_loop_over_a_sequence_is_that_of_mxnet(layout, lengths):
    agree(gluon_cells.loops(mx, layout, lengths), GOLDEN["loops"][f"{layout} {lengths}"])


class Looped(gluon.HybridBlock):
    """A cell as one loop over its input."""

    def __init__(self, cell, **options):
        super().__init__()
        self.cell, self.options = cell, options

    def hybrid_forward(self, F, x, lengths, states):
        return rnn.rnn_cell.dynamic_unroll(self.cell, x, states, valid_length=lengths, **self.options)


def test_a_hybridized_loop_has_the_cell_once_and_gives_the_same():
    net = Looped(rnn.Conv1DLSTMCell((2, 5), 3, 3, 3, i2h_pad=1), layout="NTC")
    net.initialize()
    draw = np.random.default_rng(1)
    x, lengths = mx.nd.array(draw.standard_normal((2, 4, 2, 5))), mx.nd.array([4, 2])
    states = [mx.nd.array(draw.standard_normal((2, 3, 5))) for _ in range(2)]
    outputs, last = net(x, lengths, states)
    assert (outputs.asnumpy()[1, 2:] == 0).all() and (outputs.asnumpy()[:, :2] != 0).all()
    net.hybridize()
    again, end = net(x, lengths, states)
    for a, b in zip((outputs, *last), (again, *end)):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), atol=1e-6)


def test_dropout_of_a_loop_has_one_mask_for_all_places():
    cell = gluon.rnn.RNNCell(50, input_size=3)
    cell.initialize()
    for layout in ("TNC", "NTC"):
        with mx.autograd.train_mode():
            outputs, _ = rnn.rnn_cell.dynamic_unroll(
                cell, mx.nd.ones((4, 4, 3)), [mx.nd.zeros((4, 50))], drop_outputs=0.5, layout=layout
            )
        gone = outputs.asnumpy().swapaxes(0, layout.index("T")) == 0
        assert (gone == gone[0]).all() and 0.3 < gone.mean() < 0.7
        assert (gone[0, 0] != gone[0, 1]).any()


@pytest.mark.parametrize("drop_states", [0.0, 0.5])
def test_variational_dropout_keeps_its_masks_for_a_sequence(drop_states):
    cell = rnn.VariationalDropoutCell(gluon.rnn.RNNCell(60, input_size=60), 0, drop_states, 0.5)
    cell.initialize(mx.init.Xavier())
    x = mx.nd.ones((2, 3, 60))
    gone = []
    for _ in range(2):
        with mx.autograd.train_mode():
            outputs, _ = cell.unroll(3, x, merge_outputs=True)
        zero = outputs.asnumpy() == 0
        assert (zero == zero[:, :1]).all() and 0.3 < zero.mean() < 0.7
        gone.append(zero)
    assert (gone[0] != gone[1]).any()
    plain, _ = cell.base_cell.unroll(3, x, merge_outputs=True)
    same, _ = cell.unroll(3, x, merge_outputs=True)
    np.testing.assert_allclose(plain.asnumpy(), same.asnumpy(), atol=1e-6)


def test_variational_dropout_of_inputs_drops_the_same_ones_at_all_places():
    cell = rnn.VariationalDropoutCell(gluon.rnn.RNNCell(40, activation="relu", input_size=40), 0.5, 0.3)
    cell.initialize()
    cell.base_cell.i2h_weight.set_data(mx.nd.eye(40))
    cell.base_cell.h2h_weight.set_data(mx.nd.zeros((40, 40)))
    with mx.autograd.train_mode():
        state = cell.begin_state(1)
        seen = [cell(mx.nd.ones((1, 40)), state)[0].asnumpy() for _ in range(3)]
        cell.reset()
        other = cell(mx.nd.ones((1, 40)), state)[0].asnumpy()
    assert set(np.unique(seen)) == {0.0, 2.0}
    assert (seen[0] == seen[1]).all() and (seen[0] == seen[2]).all() and (seen[0] != other).any()


def test_nodes_are_named_by_their_places():
    for cell in (rnn.LSTMPCell(4, 3, prefix="c_"), rnn.Conv1DGRUCell((2, 5), 3, 3, 3, prefix="c_")):
        outputs, _ = cell.unroll(2, [mx.sym.Variable(f"x{i}") for i in range(2)])
        assert mx.sym.Group(outputs).list_outputs() == ["c_t0_out_output", "c_t1_out_output"]
    assert "c_t1_h_act_output" in outputs[-1].get_internals().list_outputs()


def test_what_cells_cannot_do_is_told():
    with pytest.raises(mx.OpAttributeError, match=r"Conv2DGRUCell: h2h_kernel must be odd.*got 2"):
        rnn.Conv2DGRUCell((2, 5, 5), 3, 3, 2)
    with pytest.raises(mx.OpAttributeError, match=r"i2h_pad must be one number or 2, got \(1, 1, 1\)"):
        rnn.Conv2DGRUCell((2, 5, 5), 3, 3, 3, i2h_pad=(1, 1, 1))
    both = gluon.rnn.BidirectionalCell(gluon.rnn.GRUCell(3), gluon.rnn.GRUCell(3))
    with pytest.raises(mx.MXNetError, match="VariationalDropoutCell: drop_states needs a cell that runs"):
        rnn.VariationalDropoutCell(both, drop_states=0.2)
    assert repr(rnn.LSTMPCell(4, 3)) == "LSTMPCell(None -> 16 -> 3)"
    assert repr(rnn.Conv1DRNNCell((2, 5), 3, 3, 3)) == "Conv1DRNNCell(2 -> 3, tanh, NCW)"
