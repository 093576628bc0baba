"""Nodes that passes replace: a gradient goes on sharing random numbers with its forward node."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import passes
from mxlite.backends.passes import named
from mxlite.backends.passes.tiling import activation_prologue
from tests.backends.passes.pass_lists import asking, Willing


def behind_a_norm():
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(1, 1), num_filter=24, name="a")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="n"), act_type="relu", name="r")
    return mx.sym.Convolution(x, kernel=(1, 1), num_filter=8, name="b")


def behind_an_activation(name):
    def made():
        x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=24, name="a")
        return mx.sym.FullyConnected(getattr(mx.sym, name)(x, name="r"), num_hidden=8, name="b")

    return made


CASES = {
    "normed loads": (behind_a_norm, "norm_prologue", "_normed_convolution"),
    "a dense layer's activation": (
        behind_an_activation("relu"),
        "epilogue",
        "_dense_epilogue",
    ),
    "a layer that applies a function": (
        behind_an_activation("gelu"),
        "activation_prologue",
        "_tiled",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_dropout_behind_what_has_changed_has_one_mask(case, monkeypatch):
    made, work, operator = CASES[case]
    last, acts, new = (asking(n, Willing()) for n in ("channels_last", "norm_act", work))
    monkeypatch.setattr(passes, "PASSES", (last, acts, *named("split_gradients"), new))
    for name in ("LEAST_BYTES", "LEAST_COLUMNS"):
        monkeypatch.setattr(activation_prologue, name, 1)
    net = mx.sym.Dropout(made(), p=0.5, name="drop")
    exe = net.simple_bind(mx.cpu(), data=(16, 6, 1, 1), type_dict={"data": "float64"})
    assert operator in [t.op for t in exe._planned.train.problem.tasks]
    rng = np.random.default_rng(0)
    for x in (*exe.arg_dict.values(), *exe.aux_dict.values()):
        x[:] = 1 + rng.random(x.shape)
    mask = exe.forward(is_train=True)[0].asnumpy() != 0
    exe.backward([mx.nd.ones(mask.shape, dtype="float64")])
    assert 0 < mask.sum() < mask.size
    want = 2.0 * mask.sum(axis=(0, *range(2, mask.ndim)))
    np.testing.assert_allclose(exe.grad_dict["b_bias"].asnumpy(), want)
