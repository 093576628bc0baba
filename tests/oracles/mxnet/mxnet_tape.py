"""Gradients that MXNet's autograd gives where they are not plain numbers: of whole numbers, of functions that
are constant, of and as sparse arrays. Each program gives types, storage, stored rows and values.

They get the framework as `mx`; `python tests/oracles/mxnet/mxnet_tape.py mxnet FILE` writes what MXNet 1.9.1
gives: that is how `golden/mxnet/tape.json` was made.
"""

import importlib
import json
import operator
import os
import sys
import warnings

import numpy as np

A = [[1, 2, 3], [4, 5, 6]]
B = [[3, 1, 2], [2, 2, 2]]
GAPS = np.array([[0, 0, 0], [1, 2, 0], [0, 0, 0], [0, 3, 4]], "float32")
TABLE = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 0, 2]], "float32")
MATRIX = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [0, 3, 0, 0]], "float32")


def told(array):
    """Storage, type, values, and for row_sparse arrays the rows that are stored."""
    values = np.nan_to_num(array.asnumpy().astype("float64"), nan=-99, posinf=99, neginf=-99)
    found = [array.stype, np.dtype(array.dtype).name, list(array.shape), values.ravel().round(4).tolist()]
    return [*found, array.indices.asnumpy().tolist()] if array.stype == "row_sparse" else found


def gradients(mx, function, *arrays, stypes=None, times=1):
    """The function's result and the gradient of each array."""
    for i, x in enumerate(arrays):
        x.attach_grad(stype=stypes[i] if stypes else None)
    for _ in range(times):
        with mx.autograd.record():
            made = function(*arrays)
        made.backward()
    return [told(made), *(told(x.grad) for x in arrays)]


def whole_numbers(mx):
    """Arithmetic of one and two arrays of whole numbers."""
    nd = mx.nd
    one = (
        lambda x: x * x,
        lambda x: 2 * x + 1,
        lambda x: x * 0.5,
        lambda x: x / 2,
        lambda x: 12 / x,
        lambda x: x**2,
        lambda x: x**3,
        lambda x: x.sum(axis=0),
        lambda x: x.mean(),
        lambda x: x.max(axis=1),
        lambda x: x[0:1],
        lambda x: x[0, 1],
        lambda x: x.reshape((3, 2)),
        lambda x: x.T,
        lambda x: x.astype("int32") * 2,
        lambda x: nd.abs(x),
        lambda x: nd.square(x),
        lambda x: x.clip(2, 4),
        lambda x: nd.topk(x, k=2, ret_typ="value"),
        lambda x: nd.take(x, nd.array([0, 0])),
        lambda x: nd.pick(x, nd.array([0, 2])),
        lambda x: nd.contrib.boolean_mask(x, nd.array([0, 1])),
        lambda x: nd.tile(x, 2),
        lambda x: nd.broadcast_to(x.reshape((1, 2, 3)), (2, 2, 3)),
        lambda x: x + x.floor(),
    )
    two = (
        lambda x, y: x * y + x - y,
        operator.truediv,
        nd.maximum,
        lambda x, y: x + y[0:1],
        lambda x, y: nd.concat(x, y, dim=0),
        nd.stack,
        lambda x, y: nd.where(x > y, x, y),
        lambda x, y: (x == y) * x,
    )
    found = []
    for kind in ("int32", "int64", "int8", "uint8"):
        found += [gradients(mx, f, nd.array(A, dtype=kind)) for f in one]
        found += [gradients(mx, f, nd.array(A, dtype=kind), nd.array(B, dtype=kind)) for f in two]
    x = nd.array(A, dtype="int32")
    found.append(gradients(mx, lambda x: x[[0, 0], [1, 1]], x))
    x.attach_grad()
    with mx.autograd.record():
        y = x * x * x
    return [*found, told(mx.autograd.grad(y, [x])[0])]


def through_whole_numbers(mx):
    """A gradient passes a conversion to whole numbers as if it were none."""
    x = mx.nd.array([1.5, 2.5])
    return gradients(mx, lambda x: (x.astype("int32") * 3).astype("float32") * 2, x) + gradients(
        mx, lambda x: x.astype("int32") * 3, x
    )


def whole_numbers_of_symbols(mx):
    """Executors give gradients of whole numbers, and take them for outputs that are whole numbers."""
    sym, found = mx.sym, []
    functions = (
        lambda x, w: x * x,
        lambda x, w: x * 2 + 1,
        lambda x, w: x / 2,
        lambda x, w: sym.sum(x),
        lambda x, w: sym.mean(x),
        lambda x, w: sym.max(x, axis=1),
        lambda x, w: sym.cast(x, dtype="float32") * 0.7 * w,
        lambda x, w: sym.concat(x, sym.cast(w, dtype="int32"), dim=0),
        lambda x, w: sym.pick(w, sym.slice_axis(x, axis=1, begin=0, end=1), keepdims=True),
        lambda x, w: sym.one_hot(x, 4),
        lambda x, w: sym.BlockGrad(x) + sym.cast(w, dtype="int32"),
        lambda x, w: sym.SequenceMask(
            sym.transpose(w), sym.reshape(sym.max(x, axis=1), (-1,)), use_sequence_length=True
        ),
    )
    for function in functions:
        net = function(sym.Variable("x", dtype="int32"), sym.Variable("w"))
        shapes = dict.fromkeys(net.list_arguments(), (2, 3))
        exe = net.simple_bind(mx.cpu(), grad_req="write", **shapes)
        exe.copy_params_from({"x": mx.nd.array(A, dtype="int32")}, allow_extra_params=True)
        if "w" in shapes:
            exe.arg_dict["w"][:] = mx.nd.array(B)
        (made,) = exe.forward(is_train=True)
        head = 1.5 + np.arange(made.size).reshape(made.shape)
        exe.backward([mx.nd.array(head.astype(made.dtype), dtype=made.dtype)])
        found.append([told(made), *(told(exe.grad_dict[n]) for n in sorted(shapes))])
    return found


def constants(mx):
    """Functions without a slope: the gradient is 0, also where something else was before."""
    nd, found = mx.nd, []
    for function in (
        lambda x: x > 2,
        lambda x: x == x,
        lambda x: x.argmax(axis=1),
        lambda x: x.argsort(),
        lambda x: x.floor() * 2 + 1,
        lambda x: x.sign(),
        lambda x: x.rint(),
        lambda x: nd.zeros_like(x),
        lambda x: nd.ones_like(x),
        lambda x: nd.one_hot(x, 7),
        lambda x: nd.logical_not(x),
        lambda x: nd.BlockGrad(x * 2),
        lambda x: nd.topk(x, k=1),
    ):
        for kind in ("float32", "float64", "int32"):
            x = nd.array(A, dtype=kind)
            found.append(gradients(mx, function, x))
            x.grad[:] = 7
            with mx.autograd.record():
                y = function(x)
            y.backward()
            found.append(told(x.grad))
    x = nd.array(A)
    x.attach_grad()
    with mx.autograd.record():
        y = x.sign()
    return [*found, told(mx.autograd.grad(y, [x])[0])]


def gradients_by_rows(mx):
    """Lookups and products that give a dense or row_sparse table a row_sparse gradient."""
    nd, found = mx.nd, []
    index = nd.array([1, 3, 1])
    left, right = (nd.array(m).tostype("csr") for m in (MATRIX, MATRIX.T))

    def lookup(w, at=index):
        return nd.Embedding(at, w, input_dim=4, output_dim=3, sparse_grad=True)

    def made(x, stype):
        return nd.array(x).tostype(stype)

    for function in (
        lookup,
        lambda w: lookup(w) * 2,
        lambda w: lookup(w) + lookup(w, nd.array([0, 0, 1])),
        lambda w: lookup(w).sum() + w.sum(),
        lambda w: lookup(w) * 0,
        lambda w: nd.take(w, index),
        lambda w: nd.contrib.SparseEmbedding(index, w, input_dim=4, output_dim=3),
        lambda w: nd.dot(left, w),
        lambda w: nd.sparse.dot(left, w) * 2,
        lambda w: nd.dot(right, w, transpose_a=True),
        lambda w: nd.square(w),
        lambda w: w * 2,
    ):
        found.append(gradients(mx, function, nd.array(TABLE), stypes=["row_sparse"]))
    found.append(gradients(mx, lookup, nd.array(TABLE), stypes=["row_sparse"], times=2))
    for function in (lookup, lambda w: nd.dot(left, w), lambda w: nd.dot(right, w, transpose_a=True)):
        found += [gradients(mx, function, made(x, "row_sparse")) for x in (TABLE, GAPS)]
    found.append(gradients(mx, lambda w: nd.dot(left, w), nd.array(TABLE)))
    w = nd.array(TABLE)
    w.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        y = lookup(w)
    found.append(told(mx.autograd.grad(y, [w])[0]))
    grad = nd.zeros((4, 3), stype="row_sparse")
    mx.autograd.mark_variables([w], [grad])
    with mx.autograd.record():
        y = lookup(w)
    y.backward()
    found.append(told(grad))
    update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, wd=0.1))
    w.attach_grad(stype="row_sparse")
    for i in range(3):
        with mx.autograd.record():
            rows = lookup(w, nd.array([i, 1]))
            loss = (rows * rows).sum()
        loss.backward()
        update(0, w.grad, w)
    return [*found, told(w), told(w.grad)]


def sparse_arrays(mx):
    """Functions of sparse arrays: what is stored, and the gradients, dense and sparse."""
    nd, found = mx.nd, []
    one = (
        lambda x: nd.square(x),
        lambda x: nd.sin(x),
        lambda x: nd.exp(x),
        lambda x: nd.abs(x),
        lambda x: nd.relu(x),
        lambda x: nd.norm(x),
        lambda x: nd.sign(x),
        lambda x: x * 2,
        lambda x: x + 1,
        lambda x: x * x,
        lambda x: (x * 2).sum(),
        lambda x: x.tostype("default") * 3,
        lambda x: nd.cast_storage(x, "default"),
    )
    for stype in ("row_sparse", "csr"):
        for function in one:
            found += [
                gradients(mx, function, nd.array(GAPS).tostype(stype), stypes=[kind])
                for kind in (None, "default", "row_sparse")
            ]
        for function in (operator.sub, operator.mul, operator.add):
            x, y = nd.array(GAPS).tostype(stype), nd.array(TABLE)
            found.append(gradients(mx, function, x, y))
            found.append(gradients(mx, function, x, y.tostype("row_sparse")))
        found.append(gradients(mx, lambda x, stype=stype: x.tostype(stype) * 2, nd.array(GAPS)))
    rows = nd.array(GAPS).tostype("row_sparse")
    found.append(gradients(mx, lambda x: nd.sparse.retain(x, nd.array([1, 2])), rows))
    with mx.autograd.record():
        y = rows * 2
    y.backward(nd.array(TABLE).tostype("row_sparse"))
    return [*found, told(rows.grad)]


def updates_in_16_bits(mx):
    """Steps by row_sparse gradients through float32 copies of 16-bit weights."""
    nd, found = mx.nd, []
    draw = np.random.RandomState(3).rand(4, 3)
    step = nd.array([[0, 0, 0], [1, 2, 3], [0, 0, 0], [-1, 0.5, 2]], dtype="float16").tostype("row_sparse")
    for stype in ("default", "row_sparse"):
        for name, options in (
            ("sgd", {"wd": 0.1}),
            ("sgd", {"wd": 0.1, "momentum": 0.9}),
            ("adam", {"wd": 0.1}),
            ("adam", {"wd": 0.1, "lazy_update": False}),
            ("ftrl", {"wd": 0.1}),
            ("adagrad", {}),
            ("rmsprop", {"wd": 0.1}),
            ("signum", {"wd": 0.1}),
        ):
            weight = nd.array(draw, dtype="float16").tostype(stype)
            optimizer = mx.optimizer.create(name, learning_rate=0.1, multi_precision=True, **options)
            state = optimizer.create_state_multi_precision(0, weight)
            for _ in range(3):
                optimizer.update_multi_precision(0, weight, step, state)
            found.append([weight.stype, weight.asnumpy().astype("float64").ravel().round(2).tolist()])
    return found


PROGRAMS = (
    whole_numbers,
    through_whole_numbers,
    whole_numbers_of_symbols,
    constants,
    gradients_by_rows,
    sparse_arrays,
    updates_in_16_bits,
)


def run(mx, program):
    """What a program gives, as plain lists."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(program(mx)))


if __name__ == "__main__":
    framework = importlib.import_module(sys.argv[1])
    with open(sys.argv[2], "w") as file:
        json.dump({p.__name__: run(framework, p) for p in PROGRAMS}, file, separators=(",", ":"))
    os._exit(0)
