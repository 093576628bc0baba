"""Sequences: what recurrent layers keep, drop and clip; CTC over long sequences; lengths.

Forward and gradients against PyTorch and MXNet 1.9.1 are rows of `cases_sequence.py`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases_sequence import ROWS
from conformance import Call, gradients_of

import mxlite as mx
from mxlite import ops
from mxlite.core.errors import OpAttributeError, ShapeError
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.philox import RandomStream
from mxlite.ops.rnn_layout import Sizes, split


def sizes(data=(64, 32, 100), **attrs):
    a = parse_attrs(ops.RNN, {"state_size": 200, "num_layers": 3, "mode": "lstm"} | attrs)
    return a, Sizes.of(a, data)


def kept_elements(**attrs):
    """Elements of the outputs that only backward reads."""
    a, _ = sizes(**attrs)
    unknown = [None] * (len(ops.RNN.input_names(a)) - 1)
    shapes = ops.RNN.infer_shape(a, (64, 32, 100), *unknown)[1]
    return sum(int(np.prod(s)) for s in shapes[ops.RNN.num_visible_outputs(a) :])


def test_backward_keeps_hidden_states_and_a_cell_state_every_few_steps():
    step = 32 * 200
    assert kept_elements(mode="gru") == 2 * 64 * step  # the lower layers' results; the upper one's is `out`
    assert kept_elements(mode="rnn_tanh", num_layers=1) == 0
    assert kept_elements() == 2 * 64 * step + 3 * 7 * step  # of 64 steps, stretches of 8
    assert kept_elements(bidirectional=True) == 2 * (2 * 64 + 3 * 7) * step


@pytest.mark.parametrize("T, B", [(T, B) for T in (0, 1, 2, 7, 64, 1000) for B in (0, 1, 3, 300)])
def test_stretches_cover_each_step_once_in_order(T, B):
    for both in (False, True):
        _, s = sizes((T, B, 4), bidirectional=both, num_layers=2)
        steps = [[] for _ in range(s.passes)]
        for layer, d, n in s.order():
            begin, end = s.span(d, n)
            assert 0 < end - begin <= s.K
            steps[layer * s.D + d] += range(begin, end) if d == 0 else range(end - 1, begin - 1, -1)
        for number, seen in enumerate(steps):
            assert seen == list(range(T) if number % s.D == 0 else range(T - 1, -1, -1))


def test_weights_fill_the_vector_once():
    for both, width in itertools.product((False, True), (None, 7)):
        _, s = sizes(bidirectional=both, projection_size=width)
        flat = np.zeros(s.parameters)
        for w in split(flat, s):
            for part in w:
                if part is not None:
                    part += 1
        assert (flat == 1).all()


def bound(symbol, shape, seed=0, budget=None, **arrays):
    ex = symbol.simple_bind(mx.cpu(), memory_budget=budget, **shape)
    rng = np.random.default_rng(seed)
    for name, target in ex.arg_dict.items():
        target[:] = mx.nd.array(arrays.get(name, 0.3 * rng.standard_normal(target.shape)))
    return ex


def test_names_are_those_of_mxnet():
    net = mx.sym.RNN(mx.sym.Variable("d"), mode="lstm", state_size=4, num_layers=2, bidirectional=True,
                     state_outputs=True, name="r")  # fmt: skip
    assert net.list_arguments() == ["d", "r_parameters", "r_state", "r_state_cell"]
    assert net.list_outputs() == ["r_output", "r_state_output", "r_statecell_output"]
    assert net.infer_shape(d=(5, 3, 6))[0] == [(5, 3, 6), (832,), (4, 3, 4), (4, 3, 4)]
    net = mx.sym.RNN(
        mx.sym.Variable("d"), mode="gru", state_size=4, num_layers=2, use_sequence_length=True, name="r"
    )
    assert net.list_arguments() == ["d", "r_parameters", "r_state", "r_sequence_length"]
    assert net.list_outputs() == ["r_output"]


def test_a_program_trains_and_infers_alike_and_under_a_budget():
    x = mx.sym.Variable("data")
    for i in range(3):
        x = mx.sym.RNN(x, mode="lstm", state_size=8, num_layers=2, bidirectional=True, name=f"r{i}")
    net = mx.sym.MakeLoss(mx.sym.sum(x * x))
    shape = {"data": (20, 16, 8)}
    free = net.memory_plan(**shape).peak_bytes
    found = []
    for budget in (None, int(free * 0.93)):
        ex = bound(net, shape, budget=budget)
        infer = ex.forward()[0].asnumpy()
        train = ex.forward(is_train=True)[0].asnumpy()
        ex.backward()
        np.testing.assert_array_equal(infer, train)
        found.append([train, *(g.asnumpy() for g in ex.grad_arrays)])
    for want, got in zip(*found):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("row", ["RNN-dropout", "RNN-dropout-long"])
def test_dropout_between_layers_is_that_of_the_stream(row):
    """Two layers with dropout are a layer, a mask of the stream's numbers, and a layer."""
    case = ROWS[row]
    call, arrays = Call.of(case), case.inputs()
    a = call.attrs
    out, _, _ = gradients_of(call, arrays)
    data, flat, state = arrays
    s = Sizes.of(a, data.shape)
    masks = np.empty((s.L - 1, s.T, s.B, s.P), np.float32)
    RandomStream(np.array([7, 3], np.uint64), 5).fill_uniform(
        np, masks, np.empty(RandomStream.WORK_BYTES, "u1")
    )
    x = data
    for layer, w in enumerate(split(flat, s)):
        vector = np.concatenate([part.reshape(-1) for part in w if part is not None])
        one = parse_attrs(ops.RNN, {"state_size": s.H, "num_layers": 1, "mode": "gru"})
        single = Call(ops.RNN, one, ((x.shape, vector.shape, state[:1].shape), (x.shape[:2] + (s.H,),)),
                      ((x.dtype,) * 3, (x.dtype,)), True)  # fmt: skip
        x = gradients_of(single, [x, vector, state[layer : layer + 1]])[0]["out"]
        if layer < s.L - 1:
            x = x * (masks[layer] >= a.p) / (1 - a.p)
    np.testing.assert_allclose(out["out"], x, rtol=1e-12)


def test_dropout_is_for_training_only_and_1_cuts_layers_apart():
    net = mx.sym.RNN(mx.sym.Variable("data"), mode="rnn_tanh", state_size=3, num_layers=2, p=1, name="r")
    ex = bound(net, {"data": (4, 2, 3)})
    infer = ex.forward()[0].asnumpy()
    train = ex.forward(is_train=True)[0].asnumpy()
    ex.backward(mx.nd.ones((4, 2, 3)))
    assert (infer != train).any() and (ex.grad_dict["data"].asnumpy() == 0).all()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_cell_states_are_clipped_and_nan_stopped():
    case = ROWS["RNN-clip"]
    data, flat, h, c = case.inputs()
    w = split(flat, Sizes.of(case.parsed, data.shape))[0]
    h, c = h[0], c[0]
    want, touched = [], 0
    for x in data:
        i, f, g, o = np.split(x @ w.x.T + w.bx + h @ w.h.T + w.bh, 4, axis=1)
        free = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        c = np.clip(free, -0.1, 0.2)
        touched += (c != free).sum()
        h = sigmoid(o) * np.tanh(c)
        want.append(h)
    assert touched
    call = Call.of(case)
    np.testing.assert_allclose(gradients_of(call, case.inputs())[0]["out"], want, rtol=1e-12)
    bad = case.inputs()
    bad[3][0, 1, 2] = np.nan
    assert np.isfinite(gradients_of(call, bad)[0]["out"]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_are_computed_in_float32(dtype):
    """`out` is that of float32 rounded, and a gradient's error is that of a few roundings."""
    case = ROWS["RNN-long"]
    small, wide = Call.of(case, dtype=dtype), Call.of(case, dtype="float32")
    arrays = case.inputs(dtype=dtype)
    got, d_got, _ = gradients_of(small, arrays)
    want, d_want, _ = gradients_of(wide, [x.astype("float32") for x in arrays])
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(got["out"].astype("f4"), want["out"], atol=4 * unit)
    scale = np.abs(d_want["parameters"]).max()
    assert np.abs(d_got["parameters"].astype("f4") - d_want["parameters"]).max() < 8 * unit * scale


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"state_size": 0}, "state_size must be at least 1"),
        ({"projection_size": 2}, "projection_size is for mode 'lstm' only"),
        ({"p": 1.5}, r"p must be in \[0, 1\]"),
        ({"lstm_state_clip_min": 1}, "go together"),
        ({"lstm_state_clip_min": 1, "lstm_state_clip_max": 0}, "must be at most"),
        ({"mode": "elman"}, "must be one of"),
    ],
)
def test_wrong_parameters(wrong, text):
    with pytest.raises(OpAttributeError, match=text):
        parse_attrs(ops.RNN, {"mode": "gru", "state_size": 3, "num_layers": 1} | wrong)


def test_data_must_have_three_axes():
    with pytest.raises(ShapeError, match=r"data must be \(steps, samples, inputs\), got \(3, 4\)"):
        mx.sym.RNN(mx.sym.Variable("d"), mode="gru", state_size=3, num_layers=1).infer_shape(d=(3, 4))


def test_ctc_of_a_long_sequence_is_as_exact_in_float32_as_the_data():
    rng = np.random.default_rng(0)
    T, B, C, L = 1500, 2, 6, 300
    data, label = rng.standard_normal((T, B, C)) * 3, rng.integers(1, C, (B, L)).astype("float64")
    found = []
    for dtype in ("float32", "float64"):
        x, y = mx.nd.array(data.astype("f4"), dtype=dtype), mx.nd.array(label, dtype=dtype)
        ex = mx.sym.CTCLoss(mx.sym.Variable("x"), mx.sym.Variable("y")).bind(
            mx.cpu(), {"x": x, "y": y}, {"x": mx.nd.zeros((T, B, C), dtype=dtype)}
        )
        loss = ex.forward(is_train=True)[0].asnumpy()
        ex.backward(mx.nd.ones((B,), dtype=dtype))
        found.append((loss, ex.grad_dict["x"].asnumpy()))
    (loss, grad), (want, d_want) = found
    np.testing.assert_allclose(loss, want, rtol=1e-6)
    np.testing.assert_allclose(grad, d_want, atol=2e-4)


def test_ctc_names_are_those_of_mxnet():
    net = mx.sym.CTCLoss(mx.sym.Variable("d"), use_data_lengths=True, use_label_lengths=True, name="c")
    assert net.list_arguments() == ["d", "c_label", "c_data_lengths", "c_label_lengths"]
    for name in ("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"):
        assert ops.find_op(name) is ops.CTCLoss
    with pytest.raises(ShapeError, match=r"label must be \(samples, labels\), \(3, ...\)"):
        mx.sym.CTCLoss(mx.sym.Variable("d"), mx.sym.Variable("l")).infer_shape(d=(5, 3, 4), l=(2, 2))


def test_sequence_operators_refuse_other_axes_and_flat_data():
    for name in ("SequenceMask", "SequenceLast", "SequenceReverse"):
        call = getattr(mx.sym, name)
        with pytest.raises(OpAttributeError, match="axis must be 0 or 1, got 2"):
            call(mx.sym.Variable("x"), axis=2)
        with pytest.raises(ShapeError, match="at least 2 axes"):
            call(mx.sym.Variable("x")).infer_shape(x=(3,))


def test_lengths_of_nothing_and_beyond_the_end():
    x = mx.nd.arange(12).reshape((3, 2, 2))
    for lengths, last in (([0, 2], [[0, 0], [6, 7]]), ([-4, 9], [[0, 0], [10, 11]])):
        got = mx.nd.SequenceLast(x, mx.nd.array(lengths), use_sequence_length=True).asnumpy()
        np.testing.assert_array_equal(got, last)
        turned = mx.nd.SequenceReverse(x, mx.nd.array(lengths), use_sequence_length=True).asnumpy()
        np.testing.assert_array_equal(turned[:, 0], x.asnumpy()[:, 0])
