"""What 0 means in a shape: open, as MXNet's programs say, or a size, inside `mx.util.np_shape()`."""

import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.compat.npshape import from_user, to_user
from mxlite.core.errors import BindError, MXLiteError, ShapeError


def dense():
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")


def test_0_is_open_outside_and_a_size_inside():
    net = dense()
    assert net.infer_shape(data=(0, 3)) == (None, None, None)
    assert net.infer_shape_partial(data=(0, 3)) == ([(0, 3), (4, 3), (4,)], [(0, 4)], [])
    with mx.util.np_shape():
        assert net.infer_shape(data=(0, 3)) == ([(0, 3), (4, 3), (4,)], [(0, 4)], [])
        assert net.infer_shape(data=(-1, 3)) == (None, None, None)
        assert net.infer_shape_partial(data=(-1, 3)) == ([(-1, 3), (4, 3), (4,)], [(-1, 4)], [])
        assert net.infer_shape_partial() == ([None, None, None], [None], [])
    assert net.infer_shape(data=(0, 3)) == (None, None, None)


def test_an_empty_tuple_is_an_unknown_rank_outside_and_one_number_inside():
    net = mx.sym.exp(mx.sym.Variable("data"))
    assert net.infer_shape(data=()) == (None, None, None)
    with mx.util.np_shape():
        assert net.infer_shape(data=()) == ([()], [()], [])
        executor = net.simple_bind(mx.cpu(), data=())
    assert executor.arg_dict["data"].shape == ()
    assert executor.forward()[0].asnumpy() == 1


def test_a_variables_shape_is_read_as_the_scope_says():
    net = mx.sym.Variable("a", shape=(0, 3)) + mx.sym.Variable("b")
    assert net.infer_shape(b=(2, 3))[1] == [(2, 3)]
    with mx.util.np_shape():
        assert net.infer_shape(b=(-1, 3))[1] == [(0, 3)]
        with pytest.raises(ShapeError):
            net.infer_shape(b=(2, 3))


def test_a_file_says_what_0_means_in_it():
    old = (mx.sym.Variable("a", shape=(0, 10)) + mx.sym.Variable("b")).tojson()
    with mx.util.np_shape():
        new = (mx.sym.Variable("a", shape=(0, 10)) + mx.sym.Variable("b")).tojson()
        assert mx.sym.load_json(old).infer_shape(b=(2, 10))[1] == [(2, 10)]
        with pytest.raises(ShapeError):
            mx.sym.load_json(new).infer_shape(b=(2, 10))
    assert new.endswith(
        '"attrs": {\n    "is_np_shape": ["int", 1], \n    "mxnet_version": ["int", 10901]\n  }\n}'
    )
    assert "is_np_shape" not in old and mx.sym.load_json(old).tojson() == old


def test_open_lengths_of_a_constant_come_back_through_a_transpose():
    net = mx.sym.ones((2, 3)) + mx.sym.transpose(mx.sym.ones((-1, -1)))
    assert net.bind(mx.cpu(), {}).forward()[0].shape == (2, 3)


def test_negative_axes_are_refused_outside():
    with pytest.raises(ShapeError, match="0 for unknown"):
        dense().infer_shape(data=(-1, 3))
    with mx.util.np_shape(), pytest.raises(ShapeError, match="-1 for unknown"):
        dense().infer_shape(data=(-2, 3))


def test_an_empty_batch_runs_forward_and_backward():
    net = mx.sym.sum(mx.sym.tanh(dense()))
    with pytest.raises(MXLiteError):
        net.simple_bind(mx.cpu(), data=(0, 3))
    with mx.util.np_shape():
        executor = net.simple_bind(mx.cpu(), data=(0, 3))
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [0]
    executor.grad_dict["fc_weight"][:] = 7
    executor.backward(mx.nd.ones(1))
    assert executor.grad_dict["data"].shape == (0, 3)
    assert not executor.grad_dict["fc_weight"].asnumpy().any()


def test_bound_arrays_mean_what_they_are_in_either_mode():
    arrays = {"data": mx.nd.zeros((0, 3)), "fc_weight": mx.nd.ones((4, 3)), "fc_bias": mx.nd.ones(4)}
    for active in (False, True):
        with mx.util.np_shape(active):
            executor = dense().bind(mx.cpu(), arrays)
            assert executor.forward()[0].shape == (0, 4)
            assert dense().eval(**arrays)[0].shape == (0, 4)


def test_a_program_is_bound_anew_for_an_empty_batch():
    executor = dense().simple_bind(mx.cpu(), data=(5, 3))
    executor.arg_dict["fc_bias"][:] = 2
    with pytest.raises((BindError, ShapeError)):
        executor.reshape(data=(0, 3))
    with mx.util.np_shape():
        empty = executor.reshape(data=(0, 3))
    assert empty.forward()[0].shape == (0, 4)
    assert empty.arg_dict["fc_bias"].asnumpy().tolist() == [2] * 4


def test_the_switch_belongs_to_its_thread_and_is_set_back():
    seen = []
    with mx.util.np_shape():
        thread = threading.Thread(target=lambda: seen.append(mx.util.is_np_shape()))
        thread.start()
        thread.join()
        assert mx.util.is_np_shape()
        with pytest.raises(ZeroDivisionError), mx.util.np_shape(False):
            assert not mx.util.is_np_shape()
            raise ZeroDivisionError
        assert mx.util.is_np_shape()
    assert seen == [False] and not mx.util.is_np_shape()
    assert mx.util.set_np_shape(True) is False
    assert mx.util.set_np_shape(False) is True


def test_a_function_can_be_marked():
    @mx.util.use_np_shape
    def shape_of(*shape, **known):
        "Doc."
        return dense().infer_shape(**known)[1]

    assert shape_of(data=(0, 3)) == [(0, 4)] and shape_of.__doc__ == "Doc."


def test_shapes_in_and_out():
    assert from_user((0, 3)) == (-1, 3) and to_user((-1, 3)) == (0, 3)
    with mx.util.np_shape():
        assert from_user((0, -1, np.int64(3))) == (0, -1, 3) and to_user((-1, 0)) == (-1, 0)
