"""What lies how where channels are last: told by names, never by sizes that happen to be equal."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.checks.rewrite_check import check
from mxlite.backends.passes.channels_last import _carriers
from mxlite.backends.rewrite import observed
from mxlite.executor.request.infer import infer
from mxlite.ops import find_op, TABLE
from mxlite.ops.elementwise.stretch import Stretch
from mxlite.symbol.functions import apply
from tests.backends.passes.pass_lists import alone, Willing

SIZES = {"all sizes coincide": (3, 3, 3, 3), "channels and rows": (2, 4, 4, 3), "none": (2, 3, 4, 5)}
FRONTS = ("Convolution", "Pooling", "BatchNorm")
BROADCAST = ("add", "sub", "mul", "div", "maximum", "minimum")


def front(kind, channels, data=None):
    """Something that lies with its channels last."""
    data = mx.sym.var("data") if data is None else data
    x = mx.sym.Convolution(data, kernel=(1, 1), num_filter=channels, name="front")
    if kind == "Pooling":
        return mx.sym.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", name="pool")
    return x if kind == "Convolution" else mx.sym.BatchNorm(x, fix_gamma=False, name="norm")


def behind(x, channels):
    return mx.sym.Convolution(x, kernel=(1, 1), num_filter=channels, name="behind")


def laid_out(symbol, shape):
    """The operators that the pass leaves; what they compute has been compared with what was there before."""
    graph = infer(symbol.graph, {"data": shape}, {})
    seen = []
    with observed(seen.append), observed(check):
        made = alone("channels_last", graph, target=Willing()).graph
    assert seen[0].changed
    return [n.op.op_name for n in made.nodes if n.op is not None]


def operands(shape):
    """All shapes of 0 to 4 axes that `shape` takes, where each axis has its length or 1."""
    found = {()}
    for rank in range(1, 5):
        for bits in range(1 << rank):
            found.add(tuple(d if bits >> i & 1 else 1 for i, d in enumerate(shape[-rank:])))
    return sorted(found - {()})


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", FRONTS)
def test_operands_of_every_rank_are_broadcast_from_the_last_axis(kind, sizes):
    """Two at a time, on either side: 27 shapes or fewer, of which 23 were misread."""
    shape = SIZES[sizes]
    for i, operand in enumerate(operands(shape)):
        op = getattr(mx.sym, f"broadcast_{BROADCAST[i % len(BROADCAST)]}")
        other = getattr(mx.sym, f"broadcast_{BROADCAST[(i + 2) % len(BROADCAST)]}")
        x = op(front(kind, shape[1]), mx.sym.var("right", shape=operand))
        x = other(mx.sym.var("left", shape=operand), x + 0.5)
        names = laid_out(behind(x, shape[1]), shape)
        assert names.count("_channels_first") == 1  # at the end: nothing between went back


def scalars(x, channels):
    return [mx.sym.clip(x, a_min=-0.5, a_max=0.5), mx.sym.Cast(x, dtype="float64")]


def axes(name, more=()):
    def made(x, channels):
        for axis in (0, 1, 2, 3, -1):
            if name == "Concat":
                yield mx.sym.Concat(x, x * 2, dim=axis % 4)
            else:
                yield mx.sym.BatchNorm(x, axis=axis, fix_gamma=False, name="other")

    return made


def leaky(x, channels):
    yield from (mx.sym.LeakyReLU(x, act_type=kind) for kind in ("leaky", "elu", "selu", "gelu", "prelu"))
    for shape in ((1,), (1, 1), (1, channels)):
        yield mx.sym.LeakyReLU(x, mx.sym.var("slope", shape=shape), act_type="prelu")


def pooling(x, channels):
    for kind in ("max", "avg", "sum", "lp"):
        more = {"p_value": 2} if kind == "lp" else {}
        yield mx.sym.Pooling(x, kernel=(2, 3), stride=(1, 2), pad=(1, 1), pool_type=kind, **more)
        yield mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type=kind, **more)


def dropout(x, channels):
    return [
        mx.sym.Dropout(x, p=0.5),
        mx.sym.Dropout(x, p=0.5, axes=(2, 3)),
        mx.sym.Dropout(x, p=0.5, axes=(1,)),
    ]


def activation(x, channels):
    return [
        mx.sym.Activation(x, act_type=kind) for kind in ("relu", "tanh", "sigmoid", "softrelu", "softsign")
    ]


def reductions(x, channels):
    for name in ("sum", "mean", "max", "min", "prod", "nansum", "nanprod"):
        reduce = getattr(mx.sym, name)
        yield from (reduce(x, axis=axis, keepdims=True) for axis in (1, 2, (0, 2, 3), (-1, 1)))
        yield from (reduce(x, axis=axis) for axis in (1, 2, (2, 3), (0, 2, 3)))
        yield reduce(x, axis=(0, 1), exclude=True)
        yield reduce(x)


def splits(x, channels):
    yield mx.sym.SliceChannel(x, num_outputs=channels, axis=1)[1]
    yield mx.sym.SliceChannel(x, num_outputs=channels, axis=1, squeeze_axis=True)[1]
    yield mx.sym.add_n(*mx.sym.SliceChannel(mx.sym.Concat(x, x + 1, dim=2), num_outputs=2, axis=-2))


def borders(x, channels):
    for mode in ("constant", "edge", "reflect"):
        yield mx.sym.Pad(x, mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 0), constant_value=0.5)
    yield mx.sym.Pad(x, mode="constant", pad_width=(1, 0, 2, 1, 0, 2, 0, 0))


FOLLOWERS = {
    "sum": reductions, "SliceChannel": splits, "Pad": borders,
    "Activation": activation, "clip": scalars, "Cast": scalars, "Concat": axes("Concat"),
    "BatchNorm": axes("BatchNorm"), "LeakyReLU": leaky, "Pooling": pooling, "Dropout": dropout,
    "LRN": lambda x, channels: [mx.sym.LRN(x, nsize=3)],
    "add_n": lambda x, channels: [mx.sym.add_n(x, mx.sym.exp(x), x)],
    **dict.fromkeys(("mean", "max", "min", "prod", "nansum", "nanprod"), lambda x, channels: []),  # sum's
    "amp_cast": lambda x, channels: [mx.sym.amp_cast(x, dtype="float16")],
}  # fmt: skip


def built(name, x, channels):
    """`name` behind x, in all its kinds."""
    if name in FOLLOWERS:
        return list(FOLLOWERS[name](x, channels))
    op = find_op(name)
    more = {"scalar": 0.75} if name.endswith("_scalar") else {}
    if len(op.inputs) == 1:
        return [_apply(op, x, **more)]
    full = mx.sym.broadcast_add(mx.sym.zeros_like(x), mx.sym.var("line", shape=(1, channels, 1, 1)))
    return [_apply(op, x, full), _apply(op, full, x)]


def _apply(op, *args, **more):
    return apply(op, "", args, more)


def elementwise():
    """The names of the elementwise operators of one or two arrays that take floating numbers."""
    return {
        op.op_name
        for op in TABLE.values()
        if op.elementwise and (op.variadic or 0 < len(op.inputs) <= 2) and not issubclass(op, Stretch)
        if not op.op_name.startswith(("bitwise_", "left_", "right_", "polygamma", "multi_lars", "_shore"))
    }


@pytest.mark.parametrize("sizes", ["all sizes coincide", "none"])
def test_every_operator_that_follows_its_data_computes_the_same(sizes):
    shape = SIZES[sizes]
    names = {op.op_name for op in _carriers()} - {"_norm_act", "_shore"}  # made by passes
    names |= elementwise()
    assert set(FOLLOWERS) <= names
    for name in sorted(names):
        for kind in FRONTS[:2]:
            for y in built(name, front(kind, shape[1]), shape[1]):
                y = mx.sym.Cast(y, dtype="float32")
                _, (made,), _ = y.infer_shape(data=shape)
                laid_out(behind(y, 2) if len(made) == 4 else y, shape)


@pytest.mark.parametrize("sizes", ["all sizes coincide", "none"])
def test_transpositions_from_and_to_channels_last_move_nothing(sizes):
    shape = SIZES[sizes]
    x = mx.sym.transpose(front("BatchNorm", 4), axes=(0, 2, 3, 1))
    x = mx.sym.LayerNorm(x, axis=-1, name="layer")
    names = laid_out(behind(mx.sym.transpose(x, axes=(0, 3, 1, 2)), 2), shape)
    assert names.count("_channels_last") == names.count("_channels_first") == 1
    assert "transpose" not in names
    for axes in ((0, 3, 1, 2), (0, 2, 1, 3), (0, 3, 2, 1), (3, 2, 1, 0), ()):
        y = mx.sym.transpose(front("Pooling", 4), axes=axes)
        laid_out(mx.sym.Group([behind(y, 2), y, mx.sym.transpose(y, axes=(0, 2, 3, 1))]), shape)


def tokens(width):
    """Patches of an image as rows, (N, T, C)."""
    rows = mx.sym.Reshape(front("Convolution", width), shape=(0, 0, -3))
    return mx.sym.transpose(rows, axes=(0, 2, 1))


def mixed(x, width, name):
    """A layer along the first axis of the rows: the user transposes them twice."""
    y = mx.sym.FullyConnected(mx.sym.transpose(x, axes=(0, 2, 1)), num_hidden=9, flatten=False, name=name)
    y = mx.sym.FullyConnected(mx.sym.relu(y), num_hidden=16, flatten=False, name=f"{name}_back")
    return mx.sym.transpose(y, axes=(0, 2, 1))


@pytest.mark.parametrize("axes", [(2, 3), (0, 1, 2, 3)])
def test_reductions_without_the_axes_they_reduce_read_arrays_as_they_lie(axes):
    left = laid_out(mx.sym.max(front("BatchNorm", 3), axis=axes), (2, 3, 4, 5))
    assert left == ["_channels_last", "_convolution_channels_last", "BatchNorm", "max"]


def test_what_the_user_transposes_turns_nothing_else():
    """Sums of rows that were transposed stay rows, where layers read them; a relu between two
    transpositions needs neither.
    """
    x = mx.sym.Concat(mx.sym.var("first", shape=(2, 1, 6)), tokens(6), dim=1)
    for i in range(3):
        x = x + mx.sym.FullyConnected(mx.sym.LayerNorm(x), num_hidden=6, flatten=False, name=f"dense{i}")
    left = laid_out(mx.sym.sum(x, axis=1), (2, 3, 4, 4))
    assert sum("channels" in n and "convolution" not in n for n in left) <= 5 and "transpose" not in left
    x = tokens(6)
    for i in range(3):
        x = x + mixed(mx.sym.LayerNorm(x), 6, f"mixed{i}")
        x = x + mx.sym.FullyConnected(mx.sym.LayerNorm(x), num_hidden=6, flatten=False, name=f"dense{i}")
    left = laid_out(mx.sym.sum(x, axis=1), (2, 3, 4, 4))
    assert sum("channels" in n and "convolution" not in n for n in left) == 3 + 2 * 3
    x = mx.sym.transpose(mx.sym.relu(tokens(6)), axes=(0, 2, 1))
    left = laid_out(x, (2, 3, 4, 4))
    assert sum("channels" in n and "convolution" not in n for n in left) == 2 and "transpose" not in left


def test_axes_are_those_of_the_user_behind_channels_last():
    """A softmax over axis 1, rows that are cut, a mask that selects: whether they follow or not."""
    shape = SIZES["all sizes coincide"]
    for make in (
        lambda x: mx.sym.softmax(x, axis=1),
        lambda x: mx.sym.slice_axis(x, axis=1, begin=0, end=2),
        lambda x: mx.sym.slice_like(x, mx.sym.var("like", shape=(3, 2, 3, 3)), axes=(1,)),
        lambda x: mx.sym.where(mx.sym.var("mask", shape=shape), x, mx.sym.sin(x)),
        lambda x: mx.sym.SliceChannel(x, num_outputs=3, axis=2)[1],
        lambda x: mx.sym.transpose(x, axes=(0, 3, 1, 2)),
        lambda x: mx.sym.InstanceNorm(x),
        lambda x: mx.sym.LayerNorm(x, axis=1),
        lambda x: mx.sym.broadcast_mul(x, mx.sym.mean(x, axis=(0, 2, 3), keepdims=True)),
        lambda x: mx.sym.broadcast_mul(x, mx.sym.mean(x, axis=1)),
        lambda x: mx.sym.broadcast_add(x, mx.sym.var("many", shape=(2, 1, 1, 1, 1))),
        lambda x: mx.sym.broadcast_add(
            x, mx.sym.Convolution(mx.sym.var("line", shape=(3, 2, 3)), kernel=(1,), num_filter=3)
        ),
        lambda x: mx.sym.broadcast_power(mx.sym.exp(x), mx.sym.var("row", shape=(3,))),
    ):
        laid_out(mx.sym.sum(make(front("BatchNorm", 3)), axis=0), shape)


def test_a_network_with_its_norms_spelled_as_broadcasts_trains():
    """As PyTorch exports a ResNet in training mode: statistics and parameters of fewer axes than the data."""

    def norm(x, name):
        mean = mx.sym.mean(x, axis=(0, 2, 3), keepdims=True)
        apart = mx.sym.broadcast_sub(x, mean)
        spread = mx.sym.mean(mx.sym.square(apart), axis=(0, 2, 3), keepdims=True)
        y = mx.sym.broadcast_div(apart, mx.sym.sqrt(spread + 1e-5))
        y = mx.sym.broadcast_mul(y, mx.sym.var(f"{name}_gamma", shape=(6, 1, 1)))
        return mx.sym.broadcast_add(y, mx.sym.var(f"{name}_beta", shape=(6, 1, 1)))

    def conv(x, name):
        return mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=6, no_bias=True, name=name)

    x = mx.sym.Activation(norm(conv(mx.sym.var("data"), "a"), "a"), act_type="relu")
    x = mx.sym.Activation(norm(conv(x, "b"), "b") + x, act_type="relu")
    laid_out(x, (2, 3, 8, 8))
    results = {}
    for spelled in (True, False):
        net = x
        if not spelled:
            y = mx.sym.Activation(_norm(conv(mx.sym.var("data"), "a"), "a"), act_type="relu")
            net = mx.sym.Activation(_norm(conv(y, "b"), "b") + y, act_type="relu")
        exe = net.simple_bind(mx.cpu(), data=(2, 3, 8, 8))
        for i, name in enumerate(sorted(exe.arg_dict)):
            a = exe.arg_dict[name]
            a[:] = np.cos(np.arange(a.size) * (i + 1.3)).reshape(a.shape) + name.endswith("gamma")
        (out,) = exe.forward(is_train=True)
        exe.backward([mx.nd.array(np.cos(np.arange(out.size) * 0.7).reshape(out.shape))])
        results[spelled] = {n: g.asnumpy().reshape(-1) for n, g in exe.grad_dict.items()} | {
            "out": out.asnumpy()
        }
    for name, want in results[False].items():
        scale = np.abs(want).max()
        np.testing.assert_allclose(results[True][name].reshape(want.shape), want, rtol=0, atol=2e-4 * scale)


def _norm(x, name):
    return mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-5, name=name)
