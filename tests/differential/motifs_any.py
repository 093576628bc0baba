"""Motifs for values of any rank: elementwise chains, broadcasts, sums, joins and moves."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Refused
from .network import Shape, Value

BENDS = ("tanh", "sigmoid", "softsign", "sin", "cos", "arctan", "erf", "relu", "silu", "abs", "negative")
MIXES = ("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum", "broadcast_minimum",
         "broadcast_hypot")  # fmt: skip
SAME = ("elemwise_add", "elemwise_sub", "elemwise_mul")


def bend(d: Draft, x: Value) -> Value:
    """One elementwise operator that keeps numbers of a size near 1."""
    kind = d.one_of((*BENDS, "scalar", "scalar", "bell", "log", "share", "clip", "square"))
    if kind == "scalar":
        op, scalar = d.one_of(
            (("_plus_scalar", 0.25), ("_mul_scalar", -0.75), ("_rminus_scalar", 0.5),
             ("_maximum_scalar", -0.3),
             ("_minimum_scalar", 0.8), ("_minus_scalar", 0.1), ("_div_scalar", 1.5))
        )  # fmt: skip
        return d.call(op, x, scalar=scalar)
    if kind == "bell":
        return d.call("exp", d.call("negative", d.call("square", x)))
    if kind == "log":
        return d.call("log1p", d.call("abs", x))
    if kind == "share":
        below = d.call("_plus_scalar", d.call("square", x), scalar=1.0)
        return d.call("broadcast_div", x, below)
    if kind == "clip":
        return d.call("clip", x, a_min=-1.1, a_max=0.9)
    if kind == "square":
        return d.call("tanh", d.call("square", x))
    return d.call(kind, x)


def chain(d: Draft) -> Value:
    """Elementwise operators one behind the other, with some values read twice."""
    x = d.pick()
    like = [x]
    for _ in range(d.one_of((2, 3, 5))):
        if d.chance(0.35):
            x = d.call(d.one_of(SAME), x, d.one_of(like))
        else:
            x = bend(d, x)
        like.append(x)
    return x


def branch(d: Draft) -> Value:
    """Two chains of one value, and a join."""
    x = d.pick()
    y, z = bend(d, x), bend(d, bend(d, x))
    return d.call(d.one_of((*SAME, *MIXES)), y, z)


def lower_rank(shape: Shape, d: Draft) -> Shape:
    """A shape that broadcasts with `shape`: some axes are 1, leading ones gone."""
    made = tuple(1 if d.chance(0.4) else n for n in shape)
    return made[int(d.rng.integers(len(made))) :] if d.chance(0.6) else made


def broadcast(d: Draft) -> Value:
    """A parameter that is broadcast; or a value whose sizes happen to suit."""
    x = d.pick()
    shape = d.shape(x)
    if d.chance(0.4):
        other = d.pick(lambda s: s != shape and _broadcasts(s, shape))
    else:
        other = d.variable(lower_rank(shape, d), "factor", "s")
    y = d.call(d.one_of(MIXES), *((x, other) if d.chance(0.7) else (other, x)))
    return bend(d, y) if d.chance(0.4) else y


def _broadcasts(a: Shape, b: Shape) -> bool:
    try:
        return prod(np.broadcast_shapes(a, b)) <= 4 * max(prod(a), prod(b))
    except ValueError:
        return False


def nothing_left(d: Draft) -> Value:
    """A slice without elements, broadcast, bent, and joined to what it is a slice of."""
    d.require(d.zero)
    x = d.pick()
    axis = int(d.rng.integers(len(d.shape(x))))
    d.require(d.shape(x)[axis] > 1)
    empty = d.call("slice_axis", x, axis=axis, begin=1, end=1)
    d.require(0 in d.shape(empty))
    row = tuple(1 if i == axis else n for i, n in enumerate(d.shape(x)))
    empty = d.call("broadcast_mul", empty, d.variable(row, "factor", "s"))
    return d.call("Concat", bend(d, empty), x, dim=axis)


def join(d: Draft) -> Value:
    """Two values of one shape."""
    x = d.pick()
    shape = d.shape(x)
    others = [v for v in d.there if d.shape(v) == shape and v != x]
    if not others:
        raise Refused
    y = d.one_of(others)
    kind = d.one_of(("elemwise_add", "elemwise_add", "elemwise_mul", "add_n", "Concat", "stack", "where"))
    if kind == "add_n":
        return d.call("add_n", x, y, d.one_of(others))
    if kind == "Concat":
        return d.call("Concat", x, y, dim=int(d.rng.integers(len(shape))))
    if kind == "stack":
        d.require(len(shape) <= 3)
        return d.call("stack", x, y, axis=int(d.rng.integers(len(shape) + 1)))
    if kind == "where":
        return d.call("where", d.call("_greater_scalar", x, scalar=0.1), x, y)
    return d.call(kind, x, y)


def reduce(d: Draft) -> Value:
    """Means and sums over some axes, kept or not, often broadcast back."""
    x = d.pick(lambda s: len(s) >= 2)
    shape = d.shape(x)
    axis = tuple(sorted(map(int, d.rng.permutation(len(shape))[: d.one_of((1, 1, 2))])))
    op = d.one_of(("mean", "mean", "sum", "max", "norm"))
    if op == "norm":
        axis = axis[:1]
    d.require(len(axis) < len(shape))
    y = d.call(op, x, axis=axis, keepdims=True)
    if op == "sum":
        y = d.call("_mul_scalar", y, scalar=1 / 8)
    if d.chance(0.6):
        return d.call(d.one_of(("broadcast_sub", "broadcast_add")), x, y)
    return d.call("reshape", y, shape=tuple(n for i, n in enumerate(shape) if i not in axis))


def sweep(d: Draft) -> Value:
    """A reduction over any axes, all of them too, of what is bent first; often bent afterwards."""
    x = d.pick()
    shape = d.shape(x)
    count = int(d.rng.integers(1, len(shape) + 1))
    axis = tuple(sorted(map(int, d.rng.permutation(len(shape))[:count])))
    op = d.one_of(("mean", "mean", "max", "min", "sum", "norm"))
    if op == "norm":
        d.require(count <= 2)
        x = d.call("_plus_scalar", d.call("square", x), scalar=1.0)
    elif d.chance(0.6):
        x = bend(d, x)
    y = d.call(op, x, axis=axis, keepdims=d.chance(0.6))
    if op in ("sum", "norm"):
        y = d.call("_mul_scalar", y, scalar=1 / 32)
    return bend(d, y) if d.chance(0.5) else y


def softmax(d: Draft) -> Value:
    x = d.pick(lambda s: len(s) >= 2)
    op = d.one_of(("softmax", "log_softmax", "softmin"))
    y = d.call(op, x, axis=d.one_of((-1, -1, 1)))
    return d.call("_mul_scalar", y, scalar=0.5) if op == "log_softmax" else y


def move(d: Draft) -> Value:
    """Rows and axes elsewhere, the same numbers."""
    x = d.pick()
    shape = d.shape(x)
    axis = int(d.rng.integers(len(shape)))
    kind = d.one_of(("transpose", "flatten", "slice", "swap", "expand", "take", "tile", "split", "topk",
                     "reverse", "sort", "squeeze", "pick", "gather", "cast",
                     "identity", "block"))  # fmt: skip
    if kind == "transpose":
        return d.call("transpose", x, axes=tuple(map(int, d.rng.permutation(len(shape)))))
    if kind == "flatten":
        return d.call("Flatten", x) if d.chance(0.5) else d.call("reshape", x, shape=(shape[0], -1))
    if kind == "slice":
        d.require(shape[axis] > 1)
        return d.call("slice_axis", x, axis=axis, begin=1, end=None)
    if kind == "swap":
        d.require(len(shape) > 1)
        return d.call("SwapAxis", x, dim1=0, dim2=len(shape) - 1)
    if kind == "expand":
        d.require(len(shape) <= 3)
        return d.call("expand_dims", x, axis=axis)
    if kind == "take":
        ids = d.input((d.width(),), f"index {shape[axis]}", "ids")
        return d.call("take", x, ids, axis=axis)
    if kind == "tile":
        return d.call("tile", x, reps=tuple(2 if i == axis else 1 for i in range(len(shape))))
    if kind == "split":
        count = d.one_of([n for n in (1, 2, 3, 4) if shape[axis] % n == 0])
        made = d.outputs(
            "SliceChannel", x, num_outputs=count, axis=axis, squeeze_axis=count == shape[axis] > 1
        )
        d.require(all(len(d.shape(m)) > 0 for m in made))
        d.there += made[:-1]
        return made[-1]
    if kind == "topk":
        k = max(1, shape[axis] // 2)
        how = d.one_of(("value", "both"))
        made = d.outputs("topk", x, k=k, axis=axis, ret_typ=how, is_ascend=d.chance(0.5))
        return made[0]
    if kind == "reverse":
        return d.call("reverse", x, axis=axis)
    if kind == "sort":
        return d.call("sort", x, axis=axis)
    if kind == "squeeze":
        d.require(1 in shape and prod(shape) > 1)
        return d.call("squeeze", x)
    if kind == "pick":
        d.require(len(shape) > 1)
        ids = d.input(shape[:-1], f"index {shape[-1]}", "ids")
        return d.call("pick", x, ids, axis=-1)
    if kind == "gather":
        ids = d.input((1, d.width()), f"index {shape[0]}", "ids")
        return d.call("gather_nd", x, ids)
    if kind == "block":
        return d.call("elemwise_add", x, d.call("BlockGrad", bend(d, x)))
    return d.call("identity", x)


def product(d: Draft) -> Value:
    """Matrices multiplied with each other or with themselves."""
    x = d.pick(lambda s: len(s) in (2, 3))
    shape = d.shape(x)
    if len(shape) == 3:
        return d.call("tanh", d.call("batch_dot", x, x, transpose_b=True))
    w = d.variable((shape[1], d.width()), "weight")
    return d.call("tanh", d.call("dot", x, w))


def dropout(d: Draft) -> Value:
    return d.call("Dropout", d.pick(), p=d.one_of((0.2, 0.5)))


SWEEPS = ((chain, 2), (branch, 1), (broadcast, 5), (join, 4), (sweep, 6), (reduce, 3), (softmax, 1))
"""The motifs of networks whose numbers are only computed: what reductions are fused with."""

MOTIFS = (
    (chain, 5), (branch, 2), (broadcast, 4), (nothing_left, 1), (join, 4), (reduce, 2), (softmax, 1),
    (move, 4),
    (product, 1), (dropout, 1),
)  # fmt: skip
