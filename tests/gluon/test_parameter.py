"""Parameters, constants and their dictionaries."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import gluon
from mxlite.gluon import nn


def test_a_parameter_has_values_and_a_gradient_once_it_is_initialized():
    p = gluon.Parameter("w", shape=(3, 4))
    with pytest.raises(mx.StateError, match=r"Parameter 'w' is not initialized\. net\.initialize"):
        p.data()
    p.initialize(init="ones")
    assert p.data().shape == p.grad().shape == (3, 4)
    assert (p.data().asnumpy() == 1).all() and (p.grad().asnumpy() == 0).all()
    assert p.list_ctx() == [mx.cpu()] and p.data(mx.cpu()) is p.list_data()[0]
    assert repr(p) == "Parameter w (shape=(3, 4), dtype=float32)"


def test_a_shape_that_is_not_known_defers_the_values_to_the_first_forward_pass():
    layer = nn.Dense(5)
    layer.initialize("one")
    with pytest.raises(
        gluon.DeferredInitializationError, match=r"its shape is \(5, 0\), and the first forward"
    ):
        layer.weight.data()
    with pytest.raises(mx.MXNetError):
        layer.weight.grad()
    assert layer.weight.list_ctx() == [mx.cpu()]
    layer(mx.nd.ones((2, 7)))
    assert layer.weight.shape == (5, 7) and (layer.weight.data().asnumpy() == 1).all()
    with pytest.raises(ValueError, match=r"cannot be initialized: its shape is \(0, 2\)"):
        gluon.Parameter("w", shape=(0, 2)).initialize()


def test_an_initializer_of_its_own_goes_before_the_networks_and_the_callers_before_both():
    p = gluon.Parameter("some_name", shape=(2,), init="ones")
    p.initialize(default_init=mx.init.Constant(5))
    assert p.data().asnumpy().tolist() == [1, 1]
    p.initialize(init=mx.init.Constant(7), force_reinit=True)
    assert p.data().asnumpy().tolist() == [7, 7]
    with pytest.warns(UserWarning, match="is initialized already"):
        p.initialize()
    bare = gluon.Parameter("anything", shape=(2,))
    bare.initialize(default_init=mx.init.Constant(3))
    assert bare.data().asnumpy().tolist() == [3, 3]


def test_grad_req_decides_how_backward_writes():
    p = gluon.Parameter("w", shape=(2,), init="ones")
    p.initialize()

    def step():
        with mx.autograd.record():
            loss = (p.data() * 3).sum()
        loss.backward()
        return p.grad().asnumpy().tolist()

    assert step() == step() == [3, 3]
    p.grad_req = "add"
    assert step() == [3, 3] and step() == [6, 6]
    p.zero_grad()
    assert step() == [3, 3]
    p.grad_req = "null"
    with pytest.raises(mx.StateError, match="has no gradient: its grad_req is 'null'"):
        p.grad()
    with pytest.raises(mx.OpAttributeError, match="grad_req must be one of"):
        p.grad_req = "wrte"


def test_values_can_be_set_cast_and_moved():
    p = gluon.Parameter("w", shape=(2,), init="ones")
    p.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert p.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    p.set_data(mx.nd.array([2, 4]))
    assert [a.asnumpy().tolist() for a in p.list_data()] == [[2, 4]] * 2
    p.data(mx.cpu(1))[:] = 0
    p.reset_ctx(mx.cpu(1))
    assert p.list_ctx() == [mx.cpu(1)] and p.data().asnumpy().tolist() == [1, 2]
    with pytest.raises(mx.StateError, match=r"is not on cpu\(5\): it was initialized on \[cpu\(1\)\]"):
        p.data(mx.cpu(5))
    p.cast("float64")
    assert p.data().dtype == np.float64 and p.grad().dtype == np.float64
    with pytest.raises(mx.ShapeError, match=r"is \(2,\), which \(3,\) does not fit"):
        p.set_data(mx.nd.ones(3))


def test_set_data_before_the_shape_is_known_decides_it():
    layer = nn.Dense(2, use_bias=False)
    layer.initialize()
    layer.weight.set_data(mx.nd.array([[1, 2, 3], [4, 5, 6]]))
    out = layer(mx.nd.ones((1, 3)))
    assert out.asnumpy().tolist() == [[6, 15]]


def test_a_constant_keeps_its_value_and_has_no_gradient():
    c = gluon.Constant("c", [[1, 2], [3, 4]])
    c.initialize(mx.init.Zero())
    assert c.data().asnumpy().tolist() == [[1, 2], [3, 4]] and c.grad_req == "null"
    with pytest.warns(UserWarning, match="has no gradient"):
        c.grad_req = "write"
    assert c.grad_req == "null"


def test_a_dictionary_makes_shares_and_checks_parameters():
    ours = gluon.ParameterDict("net_")
    w = ours.get("w", shape=(2, 0))
    assert w.name == "net_w" and ours.get("w", shape=(0, 3)) is w and w.shape == (2, 3)
    theirs = gluon.ParameterDict("net_", shared=ours)
    assert theirs.get("w") is w and list(theirs) == ["net_w"]
    with pytest.raises(AssertionError, match=r"has shape=\(2, 3\), and not \(5, 3\)"):
        ours.get("w", shape=(5, 3))
    with pytest.raises(KeyError, match="no parameter 'net_v' here"):
        ours["net_v"]
    assert "net_w" in ours and len(ours) == 1
    other = gluon.ParameterDict()
    other.get("net_w")
    with pytest.raises(mx.OpAttributeError, match="Two different parameters are called 'net_w'"):
        ours.update(other)
    ours.setattr("lr_mult", 0.5)
    assert w.lr_mult == 0.5
    assert repr(ours) == "net_ (\n  Parameter net_w (shape=(2, 3), dtype=float32)\n)"
    with pytest.raises(KeyError, match="no constant"):
        ours.get_constant("c")
    c = ours.get_constant("c", np.ones(2, "f"))
    assert ours.get_constant("c") is c and ours.get_constant("c", np.ones(2)) is c
    with pytest.raises(mx.OpAttributeError, match="with other values"):
        ours.get_constant("c", np.zeros(2))


def test_a_dictionary_is_saved_and_loaded_by_name(tmp_path):
    file = str(tmp_path / "a.params")
    ours = gluon.ParameterDict("net_")
    ours.get("a", shape=(2,), init="ones")
    ours.get("b", shape=(3,), init="zeros")
    ours.initialize()
    ours.save(file, strip_prefix="net_")
    assert set(mx.nd.load(file)) == {"a", "b"}
    fresh = gluon.ParameterDict("net_")
    fresh.get("a", shape=(2,))
    with pytest.raises(mx.UnknownNameError, match="'net_b' and 0 others that are no parameters here"):
        fresh.load(file, restore_prefix="net_")
    fresh.load(file, ignore_extra=True, restore_prefix="net_")
    assert fresh["net_a"].data().asnumpy().tolist() == [1, 1]
    fresh.get("c", shape=(1,))
    with pytest.raises(mx.UnknownNameError, match="'net_c' is not in"):
        fresh.load(file, ignore_extra=True, restore_prefix="net_")
    wrong = gluon.ParameterDict("net_")
    wrong.get("a", shape=(4,))
    with pytest.raises(mx.ShapeError, match=r"'net_a' is \(4,\), but in the file it is \(2,\)"):
        wrong.load(file, ignore_extra=True, restore_prefix="net_")
    half = gluon.ParameterDict("net_")
    half.get("a", shape=(2,), dtype="float16")
    with pytest.raises(mx.DTypeError, match="is of float16, but in the file of float32"):
        half.load(file, ignore_extra=True, restore_prefix="net_")
    half.load(file, ignore_extra=True, restore_prefix="net_", cast_dtype=True)
    assert half["net_a"].data().dtype == np.float16


class Halved(gluon.Parameter):
    """Half of another parameter, made as GluonNLP makes dropped weights: of MXNet's private attributes."""

    def __init__(self, p):
        self._deferred_init = p._deferred_init
        super().__init__(
            name=p.name, grad_req=p.grad_req, shape=p._shape, dtype=p.dtype, lr_mult=p.lr_mult,
            wd_mult=p.wd_mult, init=p.init, allow_deferred_init=p._allow_deferred_init,
            differentiable=p._differentiable,
        )  # fmt: skip
        self._var, self._data, self._grad = p._var, p._data, p._grad
        self._ctx_list, self._ctx_map, self._trainer = p._ctx_list, p._ctx_map, p._trainer

    def data(self, ctx=None):
        return self._check_and_get(self._data, ctx) / 2


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_a_parameter_may_compute_what_blocks_compute_with(hybrid, early):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(2, use_bias=False, in_units=2), gluon.nn.Dense(1, use_bias=False, in_units=2))
    layer = net[0]
    if early:
        net.initialize(mx.init.One())
    layer.params._params[layer.weight.name] = layer._reg_params["weight"] = Halved(layer.weight)
    if not early:
        net.initialize(mx.init.One())
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    x = mx.nd.array([[1, 2]])
    with mx.autograd.record():
        out = net(x)
    out.backward()
    assert out.asscalar() == 3
    weight = layer.params[layer.weight.name]
    assert weight.grad().asnumpy().tolist() == [[0.5, 1], [0.5, 1]]
    trainer.step(1)
    assert weight.list_data()[0].asnumpy().tolist() == [[0.5, 0], [0.5, 0]]
    assert net(x).asscalar() == 0.25 * 2 * (1 - 1.5)
