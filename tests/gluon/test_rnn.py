"""Recurrent layers and cells: beside PyTorch, beside each other."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn, rnn

RNG = np.random.default_rng(6)
X = RNG.standard_normal((5, 3, 4)).astype("f")  # (T, N, C)


def ready(block):
    block.initialize(mx.init.Uniform(0.5), force_reinit=True)
    return block


@pytest.mark.torch
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_layer_is_that_of_pytorch(kind, bidirectional):
    torch = pytest.importorskip("torch")
    options = {"activation": "tanh"} if kind == "RNN" else {}
    layer = ready(getattr(rnn, kind)(6, 2, bidirectional=bidirectional, **options))
    theirs = getattr(torch.nn, kind)(4, 6, 2, bidirectional=bidirectional)
    x = mx.nd.array(X)
    x.attach_grad()
    for _ in range(2):
        state = layer.begin_state(3)
        with mx.autograd.record():
            out, last = layer(x, state)
            loss = (out * out).sum() + last[0].sum()
        loss.backward()
        ours = {"l": "", "r": "_reverse"}
        names = {"i2h": "ih", "h2h": "hh"}
        own = dict(theirs.named_parameters())
        pairs = []
        for name, p in layer._reg_params.items():
            place, group, what = name.split("_")
            pairs.append((p, own[f"{what}_{names[group]}_l{place[1:]}{ours[place[0]]}"]))
        with torch.no_grad():
            for p, target in pairs:
                target.copy_(torch.from_numpy(p.data().asnumpy()))
        theirs.zero_grad()
        tx = torch.from_numpy(X).requires_grad_()
        ty, tl = theirs(tx)
        ((ty * ty).sum() + (tl[0] if kind == "LSTM" else tl).sum()).backward()
        np.testing.assert_allclose(out.asnumpy(), ty.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(x.grad.asnumpy(), tx.grad.numpy(), atol=2e-5)
        for p, target in pairs:
            np.testing.assert_allclose(p.grad().asnumpy(), target.grad.numpy(), atol=5e-5)
        layer.hybridize()


@pytest.mark.parametrize(
    ("layer", "cell"),
    [(rnn.RNN, rnn.RNNCell), (rnn.LSTM, rnn.LSTMCell), (rnn.GRU, rnn.GRUCell)],
)
def test_a_cell_unrolled_is_the_layer(layer, cell):
    options = {"activation": "tanh"} if layer is rnn.RNN else {}
    whole, one = ready(layer(6, layout="NTC", input_size=4, **options)), ready(cell(6, input_size=4))
    for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"):
        getattr(one, name).set_data(getattr(whole, f"l0_{name}").data())
    x = mx.nd.array(X.swapaxes(0, 1))
    expected, last = whole(x, whole.begin_state(3))
    for _ in range(2):
        outputs, states = one.unroll(5, x, merge_outputs=True)
        np.testing.assert_allclose(outputs.asnumpy(), expected.asnumpy(), atol=1e-5)
        for a, b in zip(states, last):
            np.testing.assert_allclose(a.asnumpy(), b.asnumpy()[0], atol=1e-5)
        one.hybridize()
    assert np.allclose(whole(x).asnumpy(), expected.asnumpy())


def test_names_are_those_of_mxnet(tmp_path):
    with mx.name.NameManager():
        layer, cell = rnn.LSTM(6, 2, bidirectional=True), rnn.LSTMCell(3)
        assert list(layer.collect_params())[:5] == [
            "lstm0_l0_i2h_weight", "lstm0_l0_h2h_weight", "lstm0_l0_i2h_bias", "lstm0_l0_h2h_bias",
            "lstm0_r0_i2h_weight",
        ]  # fmt: skip
        assert list(cell.collect_params()) == [
            f"lstm1_{n}" for n in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
        ]
        assert rnn.GRUCell(2).name == "gru0" and rnn.RNNCell(2).name == "rnn0"
        assert rnn.ResidualCell(rnn.GRUCell(2)).prefix == "gru1_residual"
    assert list(layer._structured())[:2] == ["_unfused.0.l_cell.i2h_weight", "_unfused.0.l_cell.h2h_weight"]
    ready(layer)(mx.nd.array(X))
    layer.save_parameters(str(tmp_path / "a"))
    again = rnn.LSTM(6, 2, bidirectional=True)
    again.load_parameters(str(tmp_path / "a"))
    assert np.array_equal(again(mx.nd.array(X)).asnumpy(), layer(mx.nd.array(X)).asnumpy())


def test_behind_a_valid_length_outputs_are_0_and_states_stay():
    cell = ready(rnn.LSTMCell(6, input_size=4))
    x, lengths = mx.nd.array(X), mx.nd.array([5, 2, 3])
    outputs, states = cell.unroll(5, x, layout="TNC", merge_outputs=True, valid_length=lengths)
    short, ends = cell.unroll(2, x[:2], layout="TNC", merge_outputs=True)
    assert (outputs.asnumpy()[2:, 1] == 0).all()
    np.testing.assert_allclose(outputs.asnumpy()[:2, 1], short.asnumpy()[:, 1], atol=1e-6)
    np.testing.assert_allclose(states[0].asnumpy()[1], ends[0].asnumpy()[1], atol=1e-6)


def test_both_directions_are_the_layers():
    layer = ready(rnn.GRU(6, bidirectional=True, input_size=4))
    both = rnn.BidirectionalCell(rnn.GRUCell(6, input_size=4), rnn.GRUCell(6, input_size=4))
    ready(both)
    for side, cell in zip("lr", both.cells):
        for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"):
            getattr(cell, name).set_data(getattr(layer, f"{side}0_{name}").data())
    x = mx.nd.array(X)
    out, _ = both.unroll(5, x, layout="TNC", merge_outputs=True)
    np.testing.assert_allclose(out.asnumpy(), layer(x).asnumpy(), atol=1e-5)
    lengths = mx.nd.array([5, 2, 3])
    out, _ = both.unroll(5, x, layout="TNC", merge_outputs=True, valid_length=lengths)
    alone, _ = both.unroll(2, x[:2], layout="TNC", merge_outputs=True)
    np.testing.assert_allclose(out.asnumpy()[:2, 1], alone.asnumpy()[:, 1], atol=1e-6)
    with pytest.raises(NotImplementedError, match="call unroll"):
        both(x[0], [])


def test_cells_stack_and_are_modified():
    stack = rnn.HybridSequentialRNNCell()
    with stack.name_scope():
        stack.add(rnn.LSTMCell(4))
        stack.add(rnn.DropoutCell(0.5))
        stack.add(rnn.ResidualCell(rnn.GRUCell(4)))
    ready(stack)
    x = mx.nd.array(X)
    assert len(stack) == 3 and [i["shape"] for i in stack.state_info(3)] == [(3, 4)] * 3
    out, states = stack.unroll(5, x, layout="TNC", merge_outputs=True)
    step, state = x[0], stack.begin_state(3)
    for t in range(5):
        step, state = stack(x[t], state)
    np.testing.assert_allclose(step.asnumpy(), out.asnumpy()[4], atol=1e-6)
    np.testing.assert_allclose(state[2].asnumpy(), states[2].asnumpy(), atol=1e-6)
    with pytest.raises(mx.StateError, match="inside of a modifier cell"):
        stack[2].base_cell.begin_state(3)


def test_zoneout_keeps_old_values_in_training_only():
    cell = ready(rnn.ZoneoutCell(rnn.RNNCell(200, input_size=4), 0.5, 0.5))
    x = mx.nd.array(X)
    plain, _ = cell.base_cell.unroll(5, x, layout="TNC")
    same, _ = cell.unroll(5, x, layout="TNC")
    np.testing.assert_allclose(plain[4].asnumpy(), same[4].asnumpy(), atol=1e-6)
    with mx.autograd.train_mode():
        outputs, _ = cell.unroll(5, x, layout="TNC")
    kept = (outputs[1].asnumpy() == outputs[0].asnumpy()).mean()
    assert 0.4 < kept < 0.6


def test_a_language_model_trains_by_truncated_sequences_inside_a_budget():
    class Model(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.encoder = nn.Embedding(11, 8)
                self.rnn = rnn.LSTM(16, 2, dropout=0.2)
                self.decoder = nn.Dense(11, flatten=False)

        def hybrid_forward(self, F, inputs, states):
            out, states = self.rnn(self.encoder(inputs), states)
            return self.decoder(out), states

    text = np.tile(np.arange(11), 40)[:421].astype("f")
    data = text[:-1].reshape(4, 105).T
    target = text[1:].reshape(4, 105).T

    def train(**options):
        mx.random.seed(3)
        model, loss_of = ready(Model()), gluon.loss.SoftmaxCELoss()
        if options:
            model.hybridize(**options)
        trainer = gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.02})
        losses = []
        for _ in range(2):
            states = model.rnn.begin_state(4)
            for i in range(0, 105, 21):
                states = [s.detach() for s in states]
                with mx.autograd.record():
                    out, states = model(mx.nd.array(data[i : i + 21]), states)
                    loss = loss_of(out, mx.nd.array(target[i : i + 21]))
                loss.backward()
                gluon.utils.clip_global_norm([p.grad() for p in model.collect_params().values()], 50)
                trainer.step(4 * 21)
                losses.append(float(loss.mean().asscalar()))
        return losses, model

    losses, _ = train()
    assert losses[-1] < losses[0] - 0.1
    bound, model = train(static_alloc=True)
    with pytest.raises(mx.MemoryBudgetError) as caught:
        train(memory_budget=1)
    budget = caught.value.least_feasible_bytes
    assert budget <= model.memory_plan.peak_bytes
    again, model = train(memory_budget=budget)
    assert again == bound and model.memory_plan.peak_bytes <= budget


def test_options_that_do_not_exist_are_told():
    with pytest.raises(mx.OpAttributeError, match="layout must be 'TNC' or 'NTC', got 'NCT'"):
        rnn.LSTM(3, layout="NCT")
    with pytest.raises(mx.OpAttributeError, match="no projection"):
        rnn.LSTM(3, projection_size=2)
    with pytest.raises(mx.ShapeError, match="length is 4, but the inputs are"):
        rnn.GRUCell(3).unroll(4, mx.nd.array(X), layout="TNC")


@pytest.mark.parametrize("kind", [rnn.RNNCell, rnn.LSTMCell, rnn.GRUCell])
def test_nodes_of_a_cell_are_named_by_their_places(kind):
    cell = kind(4, prefix="rnn_")
    for _ in range(2):  # the second sequence begins anew
        outputs, _ = cell.unroll(3, [mx.sym.Variable(f"x{i}") for i in range(3)])
        names = mx.sym.Group(outputs).list_outputs()
        assert names == ["rnn_t0_out_output", "rnn_t1_out_output", "rnn_t2_out_output"]
    inside = [name for name in outputs[-1].get_internals().list_outputs() if name.startswith("rnn_t")]
    assert len(set(inside)) == len(inside)
