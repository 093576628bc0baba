"""Autograd: what backward gives, what the tape refuses, and what it keeps alive; on both engines."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, nd
from mxlite.core import DerivativeError, DTypeError, OpAttributeError, OperatorError, ShapeError, StateError
from mxlite.engine import use_engine
from mxlite.graph.opdef import Op
from mxlite.ndarray import NDArray
from mxlite.ndarray.calls.invoke import invoke
from mxlite.ndarray.calls.plan import call_of, kept_names
from mxlite.ndarray.gradients.tape import TapeStep
from tests.conformance.cases import CASES


@pytest.fixture(autouse=True, params=["naive", "threaded"])
def engine(request):
    with use_engine(request.param) as engine:
        yield engine


def leaf(values, req="write", dtype="float32"):
    x = nd.array(values, dtype=dtype)
    x.attach_grad(req)
    return x


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def same(a, b):
    np.testing.assert_array_equal(a.asnumpy() if isinstance(a, NDArray) else a, b)


def kept_bytes(*heads):
    """Bytes that the tape behind some arrays keeps alive, each array once."""
    seen, blocks, todo = set(), {}, [h.origin[0] for h in heads]
    while todo:
        step = todo.pop()
        if step in seen or not isinstance(step, TapeStep):
            continue
        seen.add(step)
        blocks |= {var: raw.nbytes for raw, var, _ in step.kept}
        if "call" in (step.state or {}):  # a checkpointed function keeps what it was given
            blocks |= {a.var: a.storage.nbytes for a in step.state["call"].watched}
        todo += [o[0] for o in step.inputs if o is not None]
    return sum(blocks.values())


# -- backward ----------------------------------------------------------------------------------------


def test_gradient_of_a_product():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x
    y.backward()
    same(x.grad, [2, 4, 6])


def test_write_overwrites_and_add_adds_and_null_leaves_alone():
    x, y, z = leaf([1, 2]), leaf([3, 4], "add"), leaf([5, 6], "null")
    for _ in range(2):
        with autograd.record():
            head = x * y * z
        head.backward()
    same(x.grad, [15, 24])
    same(y.grad, [10, 24])
    same(z.grad, [0, 0])


def test_head_gradients_scale_each_head():
    x = leaf([1, 2])
    with autograd.record():
        y, z = x * 2, x * 3
    autograd.backward([y, z], [None, nd.array([10, 100])])
    same(x.grad, [32, 302])


def test_array_that_no_head_depends_on_keeps_its_gradient():
    x, w = leaf([1, 2]), leaf([1, 2])
    w.grad[:] = 7
    with autograd.record():
        y = x * x
    y.backward()
    same(w.grad, [7, 7])


def test_array_behind_blockgrad_has_the_gradient_0():
    x, w = leaf([1, 2]), leaf([1, 2])
    x.grad[:] = 7
    with autograd.record():
        y = nd.BlockGrad(x * 1) + w
    y.backward()
    same(w.grad, [1, 1])
    same(x.grad, [0, 0])


def test_backward_from_a_leaf_is_one():
    x = leaf([1, 2])
    x.backward()
    same(x.grad, [1, 1])


def test_head_gradient_may_be_the_gradient_array_itself():
    x, w = leaf([2, 3]), leaf([5, 7])
    x.grad[:] = 4
    with autograd.record():
        y = x * w
    y.backward(x.grad)
    same(x.grad, [20, 28])
    same(w.grad, [8, 12])


def test_shared_array_gets_the_sum():
    x = leaf([1, 2])
    with autograd.record():
        y = x + x + x * 2 + x
    y.backward()
    same(x.grad, [5, 5])


def test_marked_variables_get_their_gradient_in_the_array_given():
    x, g = nd.array([1, 2]), nd.zeros(2)
    autograd.mark_variables([x], [g], "add")
    assert x.grad is g
    for _ in range(3):
        with autograd.record():
            y = x * 2
        y.backward()
    same(g, [6, 6])


def test_gradient_may_be_written_into_a_part_of_an_array():
    x, whole = nd.array([1, 2]), nd.ones((3, 2))
    autograd.mark_variables(x, whole[1])
    with autograd.record():
        y = x * x
    y.backward()
    same(whole, [[1, 1], [2, 4], [1, 1]])


def test_losses_need_no_head_gradient():
    x, label = leaf([[1, 2, 3]]), nd.array([1])
    with autograd.record():
        y = nd.SoftmaxOutput(x, label)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), y.asnumpy() - [[0, 1, 0]], rtol=1e-6)


def test_attach_grad_on_a_recorded_array_cuts_the_graph_there():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        y.attach_grad()
        z = y * 3
    z.backward()
    same(x.grad, [0, 0])
    same(y.grad, [3, 3])


def test_detach_stops_the_gradient():
    x = leaf([1, 2])
    with autograd.record():
        y = x * 2
        z = y.detach() * x
    z.backward()
    same(x.grad, [2, 4])


def test_casts_and_copies_are_recorded():
    x = leaf([1, 2])
    with autograd.record():
        y = (x.astype("float64") * 2).astype("float32") + x.copy() + x.as_in_context(mx.cpu())
        w = nd.zeros(2)
        (x * 5).copyto(w)
        v = nd.zeros(2)
        v[:] = x * 7
        z = y + w + v
    z.backward()
    same(x.grad, [16, 16])


def test_views_and_indexing_are_recorded():
    values = normal(4, 5, 6)
    torch = pytest.importorskip("torch")
    few, pairs = [0, 2, -1], [[0], [3]]
    every = slice(None)
    for key in (
        1, -1, slice(1, 3), (every, 2), (every, slice(1, 4), -1), (..., 2), (None, 1), (1, None, slice(0, 2)),
        (0, 1, 2), (every, slice(None, None, 2)), (few,), (every, few), ([0, 1, 2], few), (pairs, few),
        (every, few, [0, 1, 2]), ([0, 1, 2], every, few), ([0, 1, 2], slice(1, 3), few), (1, every, few),
        (slice(0, 2), few, 1), (None, few), (few, None, [0, 1, 2]), (..., few), (every, every, every), ...,
    ):  # fmt: skip
        x = leaf(values)
        with autograd.record():
            part = x[key]
            head = part * part * part
        head.backward()
        t = torch.tensor(values, requires_grad=True)
        (t[key] ** 3).sum().backward()
        same(part.asnumpy().reshape(values[key].shape), values[key])
        np.testing.assert_allclose(x.grad.asnumpy(), t.grad.numpy(), rtol=1e-5, atol=1e-6, err_msg=str(key))


def test_indices_may_be_arrays_and_slices_may_run_backwards():
    x = leaf(normal(3, 4))
    with autograd.record():
        y = x[nd.array([0, -1])]
        z = y[:, ::-1] * nd.array([1, 2, 3, 4])
    z.backward()
    same(x.grad, [[4, 3, 2, 1], [0, 0, 0, 0], [4, 3, 2, 1]])


def test_views_under_record_share_memory():
    x = leaf(normal(3, 4))
    with autograd.record():
        parts = x[1], x[0:2], x.reshape((4, 3)), x.reshape_like(nd.zeros((2, 6)))
    assert all(p.var is x.var for p in parts)
    autograd.backward(parts)
    same(x.grad, [[3] * 4, [4] * 4, [2] * 4])


def test_grad_gives_new_arrays_and_leaves_grad_alone():
    x, w = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        y = x * w
        z = y * y
    gx, gw, gy = autograd.grad(z, [x, w, y], retain_graph=True)
    same(gx, [18, 64])
    same(gw, [6, 32])
    same(gy, [6, 16])
    same(x.grad, [0, 0])
    (alone,) = autograd.grad(z, x)  # a list for one variable, too
    assert isinstance(alone, NDArray) and alone.shape == x.shape


def test_gradients_that_are_one_array_are_given_twice():
    x, w = leaf([1, 2]), leaf([3, 4])
    head = nd.ones(2)
    with autograd.record():
        y = x + w
    gx, gw = autograd.grad(y, [x, w], head)
    gx += 1
    same(gw, [1, 1])
    same(head, [1, 1])


# -- gradients of gradients --------------------------------------------------------------------------


def test_third_derivative_of_a_power():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x * x
        (first,) = autograd.grad(y, x, create_graph=True)
        (second,) = autograd.grad(first, x, create_graph=True)
    second.backward()
    same(first, [3, 12, 27])
    same(second, [6, 12, 18])
    same(x.grad, [6, 6, 6])


def test_gradient_penalty_against_pytorch():
    torch = pytest.importorskip("torch")
    a, b = normal(3, 4), normal(1, 4, seed=1)
    x, w = leaf(a), leaf(b)
    with autograd.record():
        y = nd.exp(x * w) + x / (w * w + 2)
        (g,) = autograd.grad(y, x, create_graph=True)
        loss = (g * g) + y
    loss.backward()
    tx, tw = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    ty = torch.exp(tx * tw) + tx / (tw * tw + 2)
    (tg,) = torch.autograd.grad(ty.sum(), tx, create_graph=True)
    (tg * tg + ty).sum().backward()
    np.testing.assert_allclose(x.grad.asnumpy(), tx.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(w.grad.asnumpy(), tw.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_second_derivatives_of_layers_against_pytorch():
    torch = pytest.importorskip("torch")
    arrays = [normal(2, 3, 5, 5), normal(4, 3, 3, 3, seed=1), normal(4, seed=2), normal(3, 5, seed=3)]
    x, w, b, v = (leaf(a, dtype="float64") for a in arrays)
    with autograd.record():
        y = nd.tanh(nd.Convolution(x, w, b, num_filter=4, kernel=(3, 3)))
        y = nd.dot(nd.log_softmax(y, axis=1), v).sum(axis=2).mean()
        gradients = autograd.grad(y, [x, w, v], create_graph=True)
        loss = sum(((g * g).sum() for g in gradients), nd.zeros(1, dtype="float64"))
    loss.backward()
    tx, tw, tb, tv = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)
    ty = torch.tanh(torch.nn.functional.conv2d(tx, tw, tb))
    ty = (torch.log_softmax(ty, 1) @ tv).sum(2).mean()
    found = torch.autograd.grad(ty, [tx, tw, tv], create_graph=True)
    sum((g * g).sum() for g in found).backward()
    for mine, theirs in zip((x, w, b, v), (tx, tw, tb, tv)):
        np.testing.assert_allclose(mine.grad.asnumpy(), theirs.grad.numpy(), rtol=1e-7, atol=1e-10)


class _once(Op):
    """A square whose gradient has no gradient."""

    inputs = ("data",)
    same_shape = True

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        xp.multiply(d_out, data, out=d_data)
        xp.multiply(d_data, 2, out=d_data)


def test_gradient_of_an_operator_without_derivative_cannot_be_differentiated():
    x, w = leaf(normal(4)), leaf(normal(4))
    with autograd.record():
        y = invoke(call_of(_once, {}), (x * w,))
        (g,) = autograd.grad(y, x, create_graph=True)
    with pytest.raises(DerivativeError, match="_once"):
        g.backward()


def test_gradient_through_a_function_can_be_differentiated():
    class square(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * x

        def backward(self, dy):
            (x,) = self.saved_tensors
            return dy * x * 2

    x = leaf([1, 2])
    with autograd.record():
        y = square()(x) * x
        (g,) = autograd.grad(y, x, create_graph=True)
    g.backward()
    same(g, [3, 12])
    same(x.grad, [6, 12])


def values_of(made):
    return [a.asnumpy() for a in (made if isinstance(made, list) else [made])]


def test_inputs_read_for_their_shape_alone_are_declared():
    """What is not declared `shape_only` is kept alive by the tape for nothing."""
    for case in CASES.values():
        op = case.op
        declared = set(op.input_names(case.parsed)) & set(op.shape_only_names(case.parsed))
        if (
            not (declared or op.op_name.endswith("_like"))
            or op.random
            or 0 in map(min, filter(len, case.shapes))
        ):
            continue
        arrays = [nd.array(a, dtype=a.dtype) for a in case.inputs()]
        call = call_of(op, case.attrs)
        want = values_of(invoke(call, arrays))
        for i, name in enumerate(call.inputs):
            garbage = [a if k != i else a * 0 - 77 for k, a in enumerate(arrays)]
            got = values_of(invoke(call, garbage))
            unread = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(want, got))
            assert unread == (name in declared), f"{op.op_name}.{name}"


# -- modes -------------------------------------------------------------------------------------------


def modes():
    return autograd.is_recording(), autograd.is_training()


def test_scopes_set_and_restore_modes():
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
        with autograd.pause(train_mode=True):
            assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
    with autograd.record(train_mode=False):
        assert modes() == (True, False)
        with autograd.train_mode():
            assert modes() == (True, True)
    with pytest.raises(KeyError), autograd.record():
        raise KeyError
    assert modes() == (False, False)
    assert (autograd.set_recording(True), autograd.set_recording(False)) == (False, True)
    assert (autograd.set_training(True), autograd.set_training(False)) == (False, True)


def test_modes_belong_to_a_thread():
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append(modes()))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


def test_dropout_drops_only_in_training():
    x = nd.ones((100,))
    same(nd.Dropout(x), x.asnumpy())
    with autograd.train_mode():
        assert set(nd.Dropout(x).asnumpy()) == {0, 2}
    with autograd.record(train_mode=False):
        same(nd.Dropout(x), x.asnumpy())


def test_dropout_has_the_same_mask_in_backward():
    x = leaf(np.ones(1000))
    with autograd.record():
        y = nd.Dropout(x, p=0.3) * 1.0
        z = nd.Dropout(y, p=0.3)
    z.backward()
    same(x.grad, z.asnumpy())


def test_batch_norm_moves_its_averages_in_backward():
    x, gamma, beta = leaf(normal(8, 3)), leaf(np.ones(3)), leaf(np.zeros(3))
    mean, var = nd.zeros(3), nd.ones(3)
    with autograd.record():
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
        z = nd.BatchNorm(y, gamma, beta, mean, var, fix_gamma=False) * x
    assert abs(y.asnumpy().mean(0)).max() < 1e-6
    same(mean, [0, 0, 0])
    z.backward(retain_graph=True)
    moved = mean.asnumpy()
    np.testing.assert_allclose(moved, 0.1 * x.asnumpy().mean(0), rtol=1e-4, atol=1e-6)
    z.backward()  # the averages moved in between, which is no reason to refuse
    assert np.isfinite(x.grad.asnumpy()).all() and np.any(mean.asnumpy() != moved)


# -- refusals ----------------------------------------------------------------------------------------


def test_backward_of_an_array_that_is_not_on_the_tape():
    x = nd.array([1, 2])
    with pytest.raises(StateError, match="not on the tape"):
        x.backward()
    with autograd.record():
        y = x * x
    with pytest.raises(StateError, match="not on the tape"):
        y.backward()
    with pytest.raises(StateError, match="not on the tape"):
        (leaf([1]) * 2).backward()
    null = leaf([1], "null")
    with autograd.record():
        y = null * 2
    with pytest.raises(StateError, match="attach_grad"):
        y.backward()


def test_second_backward_needs_retain_graph():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        z = y * 2
    z.backward(retain_graph=True)
    z.backward()
    for head in (z, y):
        with pytest.raises(StateError, match="retain_graph"):
            head.backward()
    with autograd.record():
        w = y * x  # y is an array like any other now
    w.backward()
    same(x.grad, y.asnumpy())


def test_two_heads_on_one_trunk_need_retain_graph():
    x = leaf([1, 2])
    with autograd.record():
        trunk = x * x
        a, b = trunk * 2, trunk * 3
    a.backward()
    with pytest.raises(StateError, match="broadcast_mul was freed"):
        b.backward()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.__iadd__(1),
        lambda x: x.__setitem__(0, 1),
        lambda x: x.__setitem__(slice(None), nd.ones(2)),
        lambda x: nd.relu(x, out=x),
        lambda x: nd.sgd_update(x, nd.ones(2), lr=0.1, out=x),
        lambda x: nd.ones(2).copyto(x),
    ],
)
def test_writes_to_recorded_arrays_are_refused(write):
    x = leaf([1, 2])
    with autograd.record():
        y = x * 2
        for array in (x, y):
            with pytest.raises(StateError, match=r"autograd\.pause"):
                write(array)
    same(x, [1, 2])
    write(x)  # outside it is allowed


def test_write_to_what_a_gradient_reads_is_found_in_backward():
    x, other = leaf([1, 2]), leaf([1, 2])
    with autograd.record():
        y = nd.exp(x) * 2
        z = x * x
        buffer = nd.ones(2)
        w = other * buffer
        with autograd.pause():
            buffer += 1
    x[0:1] = 3  # through a view
    y.backward()  # exp reads its output
    for head, op, name in ((z, "broadcast_mul", "'lhs'"), (w, "broadcast_mul", "'rhs'")):
        with pytest.raises(StateError, match=f"gradient of {op} reads its {name}"):
            head.backward()


def test_of_two_reads_of_an_array_the_one_before_a_write_is_refused():
    x, w = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        before = x * w
        with autograd.pause():
            w[:] = 10
        total = before + x * w
    with pytest.raises(StateError, match="gradient of broadcast_mul reads its"):
        total.backward()


def test_weights_may_be_updated_between_backward_and_the_next_record():
    w = leaf([1, 2])
    for _ in range(3):
        with autograd.record():
            loss = (w * w).sum()
        loss.backward()
        w -= 0.1 * w.grad
    np.testing.assert_allclose(w.asnumpy(), np.array([1, 2]) * 0.8**3, rtol=1e-6)


def test_array_that_nobody_records_may_be_written_under_record():
    x, count, rows = leaf([1, 2]), nd.zeros(1), nd.zeros((2, 2))
    with autograd.record():
        for i in range(2):
            count += 1
            rows[i] = nd.ones(2)
        y = x * count
    y.backward()
    same(x.grad, [2, 2])
    with autograd.record(), pytest.raises(StateError, match="no gradient would reach"):
        rows[0] = x * 2


def test_out_is_recorded():
    x, out = leaf([1, 2]), nd.zeros(2)
    with autograd.record():
        nd.elemwise_mul(x, x, out=out)
    out.backward()
    same(x.grad, [2, 4])


def test_wrong_arguments_are_named():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
    with pytest.raises(ShapeError):
        y.backward(nd.ones(3))
    with pytest.raises(DTypeError):
        y.backward(nd.ones(2, dtype="float64"))
    with pytest.raises(ShapeError):
        autograd.backward([y], [None, None])
    with pytest.raises(TypeError):
        autograd.backward(3)
    with pytest.raises(OpAttributeError, match="'write'"):
        x.attach_grad("wirte")
    with pytest.raises(DTypeError, match="truth values"):
        nd.ones(2, dtype="bool").attach_grad()
    with pytest.raises(ShapeError):
        autograd.mark_variables([x], [nd.zeros(3)])
    with pytest.raises(StateError, match="variable 1"):
        autograd.grad(y, [x, nd.ones(2)])
    with pytest.raises(StateError, match="do not depend on variable 0"):
        autograd.grad(y, [leaf([1])], retain_graph=True)
    y.backward()
    same(x.grad, [2, 4])


class _bad(Op):
    """Fails when it runs."""

    inputs = ("data",)
    same_shape = True

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        raise ArithmeticError("no gradient today")


def test_failure_in_backward_surfaces_where_the_gradient_is_read():
    x, w = leaf([1, 2]), leaf([1, 2])
    with autograd.record():
        y = invoke(call_of(_bad, {}), (x * 1.0,)) * w
    y.backward()
    same(w.grad, [1, 2])
    with pytest.raises(OperatorError, match="no gradient today"):
        x.grad.asnumpy()
    with autograd.record():
        y = x * w
    y.backward()
    same(x.grad, [1, 2])  # written anew


# -- memory ------------------------------------------------------------------------------------------


def test_chain_keeps_only_what_backward_reads():
    x = leaf(normal(1000))
    n = x.storage.nbytes
    with autograd.record():
        y = nd.relu(x + 1) * 2.0 - 3.0
    assert kept_bytes(y) == n  # relu's output; adding and scaling keep nothing
    with autograd.record():
        z = nd.tanh(nd.tanh(y.reshape((10, 100)).sum(axis=1)))
    assert kept_bytes(z) == n + 2 * 40


def test_broadcasting_sum_keeps_nothing():
    x, b = leaf(normal(10, 10)), leaf(normal(1, 10))
    with autograd.record():
        y = x + b
    assert kept_bytes(y) == 0
    y.backward()
    same(b.grad, np.full((1, 10), 10))


def test_memory_is_freed_with_the_arrays_or_by_backward():
    x = leaf(normal(1000))
    with autograd.record():
        hidden = nd.exp(x)
        y = nd.exp(hidden)
    nd.waitall()
    raw = weakref.ref(hidden.storage.base if hidden.storage.base is not None else hidden.storage)
    del hidden
    gc.collect()
    assert raw() is not None
    y.backward()
    nd.waitall()
    gc.collect()
    assert raw() is None
    with autograd.record():
        y = nd.exp(nd.exp(x))
    inner = weakref.ref(y.origin[0].inputs[0][0])
    del y
    nd.waitall()
    gc.collect()
    assert inner() is None


def test_what_carries_no_gradient_keeps_nothing():
    x, data = leaf(normal(4)), nd.ones(4)
    with autograd.record():
        assert (data * 2).origin is None
        assert nd.one_hot(nd.array([1]), 3).origin is None
        for constant in (nd.argmax(x, axis=0), x > 0, nd.zeros_like(x), nd.exp((x > 0) * 2).reshape((2, 2))):
            assert kept_bytes(constant) == 0
            constant.backward(retain_graph=True)
            same(x.grad, np.zeros(4))


def test_a_constant_may_be_written():
    x = leaf([1, -2])
    with autograd.record():
        sign = nd.sign(x)
        sign += 1
        total = nd.zeros_like(x)
        total += x * 2
    same(sign, [2, 0])
    with autograd.record():
        table = nd.zeros((2, 2))
        table[0] = x > 0
    same(table, [[1, 0], [0, 0]])
    total.backward()
    same(x.grad, [2, 2])


def test_hidden_outputs_are_made_only_when_backward_reads_them():
    x = leaf(normal(1, 1, 4, 4))
    with autograd.record():
        y = nd.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    assert kept_bytes(y) == 4  # one byte for each of four maxima
    y.backward()
    assert x.grad.asnumpy().sum() == 4


class watch(autograd.Function):
    """Identity that notes, when backward comes through, which of the blocks in `refs` are alive."""

    refs = ()

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        nd.waitall()
        gc.collect()
        self.alive = [r() is not None for r in self.refs]
        return dy


def memory(array):
    """The block behind an array."""
    raw = array.storage
    while raw.base is not None and isinstance(raw.base, np.ndarray):
        raw = raw.base
    return raw


def test_backward_frees_arrays_as_it_goes():
    x, look = leaf(normal(1000) * 0.1), watch()
    with autograd.record():
        early = nd.exp(x)
        late = nd.exp(look(early))
        head = nd.exp(late)
    look.refs = [weakref.ref(memory(a)) for a in (early, late)]
    del early, late
    head.backward(retain_graph=True)
    assert look.alive == [True, True]
    head.backward()
    assert look.alive == [True, False]


def test_freed_steps_hold_nothing():
    x = leaf(normal(10))
    with autograd.record():
        y = nd.exp(nd.exp(x))
    inner = weakref.ref(y.origin[0].inputs[0][0])
    y.backward()
    nd.waitall()
    gc.collect()
    assert inner() is None


class _two(Op):
    """data, and a hidden copy of it that backward does not read."""

    inputs = ("data",)
    outputs = ("out", "copy")
    hidden = 1
    gradient_is = {"data": "d_out"}

    @staticmethod
    def infer_shape(a, data):
        return (data,), (data, data)

    @staticmethod
    def forward(xp, a, data, *, out, copy):
        assert copy is None
        out[...] = data


def test_hidden_output_that_backward_does_not_read_is_not_made():
    x = leaf([1, 2])
    with autograd.record():
        y = invoke(call_of(_two, {}), (x,)) * 3
    y.backward()
    same(x.grad, [3, 3])


def test_long_chains_do_not_recurse():
    x = leaf([1.0])
    with autograd.record():
        y = x
        for _ in range(10_000):
            y = y * 1.0001
    y.backward(retain_graph=True)
    np.testing.assert_allclose(x.grad.asnumpy(), 1.0001**10_000, rtol=1e-3)
    del y  # frees 10,000 steps, each held by the next


def test_names_that_the_tape_keeps_are_those_the_gradient_reads():
    for name, want in (("relu", {"out"}), ("broadcast_add", set()), ("broadcast_mul", {"lhs", "rhs"})):
        call = call_of(name, {})
        assert kept_names(call.op, call.attrs) == want


@pytest.mark.parametrize("req", ["write", "add"])
def test_one_gradient_goes_to_all_leaves_that_have_it(req):
    x, y, z = leaf([1, 2], req), leaf([3, 4], req), leaf([5, 6])
    with autograd.record():
        s = nd.elemwise_add(nd.elemwise_add(x, y), z)
        out = s * s
    out.backward()
    for a in (x, y, z):
        same(a.grad, [18, 24])


# -- Function ----------------------------------------------------------------------------------------


class scale(autograd.Function):
    """x * k, and x itself; k is a plain number."""

    def forward(self, x, y, k):
        assert not autograd.is_recording()
        self.k = k
        self.save_for_backward(x, y)
        return x * y * k, x

    def backward(self, d_product, d_x):
        x, y = self.saved_tensors
        return d_product * y * self.k + d_x, d_product * x * self.k, None


def test_function_has_the_gradient_it_says():
    x, y = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        product, again = scale()(x, y, 10)
        z = product * 2 + again
    z.backward()
    same(x.grad, [61, 81])
    same(y.grad, [20, 40])
    with autograd.record():
        product, _ = scale()(x, y, 10)
    product.backward()  # no gradient arrives at the second output
    same(x.grad, [30, 40])


def test_function_serves_one_call_and_is_checked():
    x, y = leaf([1, 2]), leaf([3, 4])
    f = scale()
    f(x, y, 1)
    with pytest.raises(StateError, match="one call"):
        f(x, y, 1)
    with autograd.record():
        product, _ = scale()(x, y, 1)
    y += 1
    with pytest.raises(StateError, match="saved for backward was written"):
        product.backward()

    class wrong(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return nd.ones(7)

    with autograd.record():
        z = wrong()(x)
    with pytest.raises(ShapeError, match=r"wrong\.backward"):
        z.backward()


class handed(autograd.Function):
    """a + b, whose gradients are the very arrays in `given`, None for the one that arrives."""

    def __init__(self, *given):
        super().__init__()
        self.given = given

    def forward(self, a, b):
        return a + b

    def backward(self, dy):
        return tuple(dy if g is None else g for g in self.given)


def test_a_gradient_that_a_function_gives_is_not_written_over():
    """It may be one array for both arguments, the user's head gradient, or any other array of the user's."""
    x, y, kept = leaf([-1, 2, 3]), leaf([1, -2, 3]), nd.array([5, 6, 7])
    for given, want in (((None, None), [0, 2, 2]), ((kept, None), [0, 12, 14])):
        head = nd.ones(3)
        with autograd.record():
            z = handed(*given)(nd.relu(x * 2), nd.relu(y * 2))
        z.backward(head)
        same(x.grad, want)
        same(y.grad, [2, 0, 2])
        same(head, [1, 1, 1])
        same(kept, [5, 6, 7])


def test_a_backward_pass_that_was_broken_off_cannot_be_taken_up_again():
    """What the operators behind the failure had kept is gone, and nothing counts as zeros instead."""

    class Interrupt(BaseException):
        pass

    class breaking(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            raise Interrupt

    x = leaf([1, 2])
    for retain in (False, True):
        with autograd.record():
            y = breaking()(x)
            z = y * y
        with pytest.raises(Interrupt):
            z.backward(retain_graph=retain)
        with pytest.raises(Interrupt if retain else StateError):
            z.backward()
    assert not autograd.is_recording()


def test_a_gradient_that_a_function_gives_is_not_given_away():
    x, y, kept = leaf([1, 2]), leaf([3, 4]), nd.array([5, 6])
    with autograd.record():
        z = handed(kept, kept)(x, y)
    for g in autograd.grad(z, [x, y]):
        g += 1
        same(g, [6, 7])
    same(kept, [5, 6])


@pytest.mark.parametrize("dtype", ["float16", "int32", "float64"])
def test_a_gradient_that_a_function_gives_is_converted_to_its_input(dtype):
    """A fast kernel reads memory as the type that it was chosen for."""
    x, y = leaf(np.arange(32).reshape(1, 2, 4, 4)), leaf(np.zeros((1, 2, 4, 4)))
    weight = nd.ones((2, 2, 3, 3))
    given = nd.ones((1, 2, 4, 4), dtype=dtype)
    with autograd.record():
        made = nd.Convolution(x, weight, num_filter=2, kernel=(3, 3), pad=(1, 1), no_bias=True)
        z = handed(given, None)(made, y)
    z.backward()
    same(x.grad[0, 0, :2], [[8, 12, 12, 8], [12, 18, 18, 12]])


def test_a_missing_gradient_of_a_function_is_zeros_of_the_input_s_type():
    class left_out(autograd.Function):
        def forward(self, a, b):
            self.dtypes = a.dtype, b.dtype
            return a.astype("float32") + b

        def backward(self, dy):
            return None, dy

    x, y = leaf([1, 2], dtype="float16"), leaf([3, 4])
    f = left_out()
    with autograd.record():
        z = f(x * 2, y)
    g = f.differentiate([nd.ones(2)], (True, True), (None, None))
    assert [a.dtype for a in g] == list(f.dtypes)
    z.backward()
    same(x.grad, [0, 0])


# -- checkpoint --------------------------------------------------------------------------------------


def block(x, w, b, mean, var):
    y = nd.FullyConnected(x, w, b, num_hidden=16)
    y = nd.BatchNorm(y, nd.ones(16), nd.zeros(16), mean, var)
    y = nd.Dropout(nd.tanh(y), p=0.5)
    return y * y, y + 1


def run_blocks(through):
    mx.random.seed(5)
    x, mean, var = leaf(normal(8, 16)), nd.zeros(16), nd.ones(16)
    weights = [(leaf(normal(16, 16, seed=i)), leaf(normal(16, seed=i + 9))) for i in range(3)]
    with autograd.record():
        h = x
        for w, b in weights:
            a, c = through(lambda h, w=w, b=b: block(h, w, b, mean, var), h)
            h = a - c
        h = h + nd.Dropout(h)
    kept = kept_bytes(h)
    h.backward()
    arrays = [x.grad, mean, var, *(p.grad for pair in weights for p in pair)]
    return [a.asnumpy() for a in arrays], kept


def test_checkpoint_gives_the_same_bits_and_keeps_less():
    plain, most = run_blocks(lambda f, *args: f(*args))
    again, kept = run_blocks(autograd.checkpoint)
    for a, b in zip(plain, again):
        np.testing.assert_array_equal(a, b)
    assert kept < most / 2, (kept, most)


def test_checkpoints_may_be_nested_and_differentiated_twice():
    def inner(h):
        return nd.Dropout(nd.exp(h), p=0.5)

    def outer(h):
        return autograd.checkpoint(inner, h) * autograd.checkpoint(inner, h * h)

    grads = []
    for through in (lambda f, h: f(h), autograd.checkpoint):
        mx.random.seed(3)
        x = leaf(normal(40))
        with autograd.record():
            y = through(outer, x) * nd.Dropout(x, p=0.5)
        y.backward()
        grads.append(x.grad.asnumpy())
    np.testing.assert_array_equal(*grads)
    x = leaf([1, 2])
    with autograd.record():
        y = autograd.checkpoint(lambda h: h * h * h, x)
        (g,) = autograd.grad(y, x, create_graph=True)
    g.backward()
    same(g, [3, 12])
    same(x.grad, [6, 12])


def test_checkpointed_function_finds_its_arrays_as_they_were():
    x, w = leaf([1, 2]), nd.array([3, 4])
    with autograd.record():
        y = autograd.checkpoint(lambda h, k: h * w * k, x, 2)
    y.backward()
    same(x.grad, [6, 8])
    with autograd.record():
        y = autograd.checkpoint(lambda h: nd.exp(h), x)
    x += 1
    with pytest.raises(StateError, match="cannot run again"):
        y.backward()
    same(autograd.checkpoint(lambda h: h + 1, x), [3, 4])  # not recording: a plain call


# -- with the rest -----------------------------------------------------------------------------------


def test_tape_and_bound_program_agree(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")  # a bound program lays channels last, a call does not
    data, label = normal(6, 1, 8, 8), np.arange(6) % 3
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.Pooling(
        mx.sym.Activation(net, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max"
    )
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), name="softmax")
    exe = net.simple_bind(mx.cpu(), data=data.shape, softmax_label=label.shape)
    p = {}
    for i, (name, a) in enumerate(exe.arg_dict.items()):
        value = {"data": data, "softmax_label": label}.get(name)
        a[:] = normal(*a.shape, seed=i) if value is None else value
        p[name] = leaf(a.asnumpy())
    exe.aux_dict["bn_moving_var"][:] = 1
    mean, var = nd.zeros(4), nd.ones(4)
    exe.forward(is_train=True)
    exe.backward()
    with autograd.record():
        y = nd.Convolution(p["data"], p["conv_weight"], p["conv_bias"], num_filter=4, kernel=(3, 3))
        y = nd.BatchNorm(y, p["bn_gamma"], p["bn_beta"], mean, var, fix_gamma=False)
        y = nd.Pooling(nd.Activation(y, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max")
        y = nd.FullyConnected(y, p["fc_weight"], p["fc_bias"], num_hidden=3)
        y = nd.SoftmaxOutput(y, p["softmax_label"])
    y.backward()
    same(y, exe.outputs[0].asnumpy())
    for name, grad in exe.grad_dict.items():
        if grad is not None and name != "softmax_label":
            same(p[name].grad, grad.asnumpy())
    same(mean, exe.aux_dict["bn_moving_mean"].asnumpy())


def test_get_symbol_is_what_was_recorded():
    x, w = leaf([1, 2, 3]), nd.array([4, 5, 6])
    with autograd.record():
        y = nd.exp(x * w * 0.1) + x
    symbol = autograd.get_symbol(y)
    assert len(symbol.list_arguments()) == 2
    again = mx.sym.load_json(symbol.tojson())
    args = dict(zip(again.list_arguments(), (x, w)))
    same(again.bind(mx.cpu(), args).forward()[0], y.asnumpy())
    with pytest.raises(StateError):
        autograd.get_symbol(w)


def test_threads_record_apart():
    errors = []

    def work(seed):
        try:
            x = leaf(normal(50, seed=seed))
            for _ in range(20):
                with autograd.record():
                    y = nd.tanh(x * x)
                y.backward()
            v = x.asnumpy()
            np.testing.assert_allclose(
                x.grad.asnumpy(), (1 - np.tanh(v * v) ** 2) * 2 * v, rtol=1e-4, atol=1e-5
            )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


@pytest.mark.parametrize("name", ["relu", "abs", "identity", "sum"])
def test_a_gradient_that_does_not_depend_on_its_variable_has_the_derivative_0(name):
    x = nd.array([0.5, -1.0, float("inf")])
    x.attach_grad()
    with autograd.record():
        (g,) = autograd.grad(getattr(nd, name)(x), [x], create_graph=True)
        total = (g * g).sum()
    total.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [0, 0, 0])
    with autograd.pause():
        x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    (same,) = autograd.grad(y, [x])
    np.testing.assert_array_equal(same.asnumpy(), g.asnumpy())
