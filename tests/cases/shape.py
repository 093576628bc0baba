"""Rows of the operators that reshape, move, repeat, cut, join and pad (`cases/index.py`: that look up)."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from mxlite import ops
from mxlite.ops.shape import cut
from tests.conformance.case import Case, fractions, integers

try:
    import torch
    import torch.nn.functional as F
except ImportError:  # the rows do without
    torch = F = None


def _like(shape_from=1):
    """PyTorch's reshape to the shape of an input."""
    return lambda a, *xs: xs[0].reshape(xs[shape_from].shape)


def _slices(a):
    numbers = [cut._limits(t, "row") for t in (a.begin, a.end, a.step)]
    begin, end, step = numbers
    return tuple(slice(b, e, s) for b, e, s in zip(begin, end, step or (None,) * len(begin)))


def _slice(a, x):
    """PyTorch has no negative steps: numpy's answer, by way of indices."""
    for axis, part in enumerate(_slices(a)):
        x = x.index_select(axis, torch.tensor(list(range(x.shape[axis])[part]), dtype=torch.int64))
    return x


def _assigned(a, x, y):
    x = x.clone()
    index = torch.meshgrid(
        *(torch.tensor(list(range(n)[s])) for n, s in zip(x.shape, _slices(a))), indexing="ij"
    )
    x[index] = y
    return x


def _filled(a, x):
    shape = tuple(len(range(n)[s]) for n, s in zip(x.shape, _slices(a)))
    return _assigned(a, x, torch.full(shape + x.shape[len(shape) :], a.scalar, dtype=x.dtype))


def _split(a, x):
    length = x.shape[a.axis]
    at = [*a.indices, length] if not a.sections else [i * length // a.sections for i in range(a.sections + 1)]
    parts = [x.narrow(a.axis, min(i, length), min(j, length) - min(i, length)) for i, j in pairwise(at)]
    return tuple(p.squeeze(a.axis) if a.squeeze_axis else p for p in parts)


def _channels(a, x):
    parts = x.chunk(a.num_outputs, a.axis)
    return tuple(
        p.squeeze(a.axis).reshape(p.squeeze(a.axis).shape or (1,)) if a.squeeze_axis else p for p in parts
    )


def _pad(a, x):
    """Axis by axis, since PyTorch pads no first axes but with constants."""
    if a.mode == "constant":
        pairs = list(zip(a.pad_width[::2], a.pad_width[1::2]))[::-1]
        return F.pad(x, [n for pair in pairs for n in pair], value=a.constant_value)
    for axis, (i, j) in enumerate(zip(a.pad_width[::2], a.pad_width[1::2])):
        n = x.shape[axis]
        where = torch.arange(-i, n + j)
        where = where.clamp(0, n - 1) if a.mode == "edge" else (n - 1) - ((n - 1) - where.abs()).abs()
        x = x.index_select(axis, where)
    return x


def _depth(a, x):
    n, c, h, w = x.shape
    b = a.block_size
    return x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, -1, h * b, w * b)


def _space(a, x):
    n, c, h, w = x.shape
    b = a.block_size
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, -1, h // b, w // b)


def _diag(a, x):
    return torch.diag(x, a.k) if x.ndim == 1 else torch.diagonal(x, a.k, a.axis1, a.axis2)


def _crop(a, x, like=None):
    h, w = like.shape[2:] if like is not None else a.h_w
    i, j = ((x.shape[2] - h) // 2, (x.shape[3] - w) // 2) if a.center_crop else a.offset
    return x[:, :, i : i + h, j : j + w]


def _tiled(a, x):
    return x.repeat((1,) * (x.ndim - len(a.reps)) + a.reps)


def _repeated(a, x):
    return x.repeat_interleave(a.repeats, a.axis)


def _adjoint(op, attrs, like, name="", **more):
    """A row of the adjoint of `op` for an input of shape `like`."""
    case = Case(op, attrs, [like])
    made = op.infer_shape(case.parsed, like)[1][0]
    adjoint = getattr(ops, f"_adjoint_{op.op_name}")
    row = Case(adjoint, attrs, [made, like], grad_inputs=("data",), mxnet="MXNet has no such name", **more)
    return {f"_adjoint_{op.op_name}{name}": row}


_VIEWS = {
    "Flatten": Case(ops.Flatten, {}, [(3, 2, 4)], torch=lambda a, x: x.flatten(1)),
    "Flatten-vector": Case(ops.Flatten, {}, [(3,)], torch=lambda a, x: x.reshape(3, 1)),
    "Reshape": Case(ops.Reshape, {"shape": (-1, 6)}, [(3, 4)], torch=lambda a, x: x.reshape(-1, 6)),
    "Reshape-codes": Case(
        ops.Reshape,
        {"shape": (0, -3, -4, -1, 2, -2)},
        [(2, 3, 4, 6, 5)],
        torch=lambda a, x: x.reshape(2, 12, 3, 2, 5),
    ),
    "Reshape-reverse": Case(
        ops.Reshape, {"shape": (-1, 0), "reverse": True}, [(2, 3, 4)], torch=lambda a, x: x.reshape(6, 4)
    ),
    "Reshape-old": Case(
        ops.Reshape, {"target_shape": (0, 4)}, [(3, 2, 4)], torch=lambda a, x: x.reshape(6, 4)
    ),
    "_reshape_to": Case(
        ops._reshape_to,
        {"shape": (1000, 300)},
        [(300, 1000)],
        torch=lambda a, x: x.reshape(a.shape),
        empty=False,
        large=[(300, 1000)],
    ),
    "expand_dims": Case(ops.expand_dims, {"axis": 1}, [(3, 4)], torch=lambda a, x: x.unsqueeze(1)),
    "expand_dims-end": Case(ops.expand_dims, {"axis": -1}, [(3, 4)], torch=lambda a, x: x.unsqueeze(-1)),
    "expand_dims-several": Case(
        ops.expand_dims,
        {"axis": (0, -2)},
        [(3, 4)],
        torch=lambda a, x: x.reshape(1, 3, 1, 4),
        mxnet="MXNet takes one axis",
    ),
    "squeeze": Case(ops.squeeze, {"axis": 1}, [(3, 1, 4, 1)], torch=lambda a, x: x.squeeze(1)),
    "squeeze-two": Case(ops.squeeze, {"axis": (-1, 1)}, [(3, 1, 4, 1)], torch=lambda a, x: x.reshape(3, 4)),
    "squeeze-all": Case(ops.squeeze, {}, [(3, 1, 4, 1)], torch=lambda a, x: x.squeeze()),
    "reshape_like": Case(
        ops.reshape_like, {}, [(3, 4), (2, 6)], torch=_like(), empty=False, large=[(300, 1000), (1000, 300)]
    ),
    "reshape_like-part": Case(
        ops.reshape_like,
        {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": None, "rhs_end": -1},
        [(6, 5), (2, 3, 4)],
        torch=lambda a, x, y: x.reshape(2, 3, 5),
        empty=False,
        large=[(600, 500), (20, 30, 4)],
    ),
    "reshape_like-end": Case(
        ops.reshape_like,
        {"lhs_begin": -1, "rhs_begin": 1},
        [(3, 6), (5, 2, 3)],
        torch=lambda a, x, y: x.reshape(3, 2, 3),
        large=[(50_000, 6), (5, 2, 3)],
    ),
    "_identity_with_attr_like_rhs": Case(
        ops._identity_with_attr_like_rhs, {}, [(3, 4), (3, 4)], torch=lambda a, x, y: x * 1
    ),
}

_ORDER = {
    "transpose": Case(ops.transpose, {}, [(3, 4, 5)], torch=lambda a, x: x.permute(2, 1, 0)),
    "transpose-axes": Case(
        ops.transpose, {"axes": (1, 2, 0)}, [(3, 4, 5)], torch=lambda a, x: x.permute(1, 2, 0)
    ),
    "transpose-negative": Case(
        ops.transpose,
        {"axes": (-1, 0, 1)},
        [(3, 4, 5)],
        torch=lambda a, x: x.permute(2, 0, 1),
        mxnet="MXNet takes no negative axes here",
    ),
    "SwapAxis": Case(ops.SwapAxis, {"dim1": 0, "dim2": 2}, [(3, 4, 5)], torch=lambda a, x: x.transpose(0, 2)),
    "SwapAxis-negative": Case(
        ops.SwapAxis, {"dim1": -1, "dim2": 1}, [(3, 4, 5)], torch=lambda a, x: x.transpose(-1, 1)
    ),
    "tile": Case(ops.tile, {"reps": (2, 3)}, [(2, 3)], torch=_tiled),
    "tile-more": Case(ops.tile, {"reps": (2, 1, 2)}, [(3,)], torch=_tiled),
    "tile-less": Case(ops.tile, {"reps": (2,)}, [(3, 2)], torch=_tiled),
    "tile-none": Case(ops.tile, {"reps": ()}, [(3, 2)], torch=lambda a, x: x * 1),
    "repeat": Case(ops.repeat, {"repeats": 2, "axis": 1}, [(2, 3, 2)], torch=_repeated),
    "repeat-last": Case(ops.repeat, {"repeats": 3, "axis": -1}, [(2, 3)], torch=_repeated),
    "repeat-flat": Case(ops.repeat, {"repeats": 3}, [(2, 3)], torch=_repeated),
    "reverse": Case(ops.reverse, {"axis": 1}, [(2, 3, 2)], torch=lambda a, x: x.flip(1)),
    "reverse-two": Case(ops.reverse, {"axis": (0, 2)}, [(2, 3, 2)], torch=lambda a, x: x.flip(0, 2)),
    "roll": Case(ops.roll, {"shift": 5}, [(3, 4)], torch=lambda a, x: x.roll(5)),
    "roll-axes": Case(
        ops.roll, {"shift": (1, -5), "axis": (0, 1)}, [(3, 4, 2)], torch=lambda a, x: x.roll((1, -5), (0, 1))
    ),
    "roll-same": Case(
        ops.roll, {"shift": (2,), "axis": (1, -1)}, [(3, 4, 5)], torch=lambda a, x: x.roll((2, 2), (1, -1))
    ),
    "depth_to_space": Case(ops.depth_to_space, {"block_size": 2}, [(2, 8, 3, 2)], torch=_depth),
    "space_to_depth": Case(ops.space_to_depth, {"block_size": 3}, [(2, 2, 6, 3)], torch=_space),
    "Cast": Case(ops.Cast, {"dtype": "float32"}, [(3, 4)], grad_inputs=()),
    "Cast-same": Case(
        ops.Cast, {"dtype": "float64"}, [(3, 4)], grad_inputs=("data",), torch=lambda a, x: x.double()
    ),
    "Cast-int": Case(
        ops.Cast, {"dtype": "int32"}, [(3, 4)], dtype="float32", make={"data": fractions}, grad_inputs=()
    ),
    "amp_cast": Case(ops.amp_cast, {"dtype": "float32"}, [(3, 4)], grad_inputs=()),
    "amp_cast-same": Case(ops.amp_cast, {"dtype": "float64"}, [(3, 4)], torch=lambda a, x: x * 1),
    "amp_cast-int": Case(
        ops.amp_cast, {"dtype": "float32"}, [(3, 4)], dtype="int32", make={"data": integers(-5, 6)}
    ),
    "_cast_like": Case(
        ops.CastLike, {}, [(3, 4), (2,)], torch=lambda a, x, y: x * 1, mxnet="MXNet has no such name"
    ),
    "amp_multicast": Case(
        ops.amp_multicast,
        {"num_outputs": 2},
        [(3, 4), (2,)],
        torch=lambda a, x, y: (x * 1, y * 1),
        mxnet="MXNet 1.9.1 fails on it without the right oneDNN",
    ),
    "amp_multicast-types": Case(
        ops.amp_multicast,
        {"num_outputs": 3, "cast_narrow": True},
        [(3, 4), (2,), (3,)],
        dtype="float32",
        dtypes={"arg1": "float64", "arg2": "int32"},
        make={"arg2": integers(0, 5)},
        grad_inputs=(),
        mxnet="MXNet 1.9.1 fails on it without the right oneDNN",
    ),
}

_PARTS = {
    "slice": Case(ops.slice, {"begin": (None, 1), "end": (None, 3)}, [(3, 4, 2)], torch=_slice),
    "slice-step": Case(
        ops.slice,
        {"begin": (0, -1), "end": (3, None), "step": (2, -1)},
        [(3, 4)],
        large=[(600, 600)],
        torch=_slice,
    ),
    "slice-nothing": Case(
        ops.slice, {"begin": (0, 2), "end": (3, 2)}, [(3, 4)], torch=_slice, large=[(600, 600)]
    ),
    "slice_axis": Case(
        ops.slice_axis, {"axis": 1, "begin": 1, "end": 3}, [(3, 4, 2)], torch=lambda a, x: x[:, 1:3]
    ),
    "slice_axis-end": Case(
        ops.slice_axis, {"axis": -1, "begin": -2, "end": None}, [(3, 4)], torch=lambda a, x: x[:, -2:]
    ),
    "slice_axis-nothing": Case(
        ops.slice_axis,
        {"axis": 1, "begin": 1, "end": 1},
        [(3, 4)],
        torch=lambda a, x: x[:, 1:1],
        mxnet="MXNet refuses an empty part",
    ),
    "slice_like": Case(
        ops.slice_like, {}, [(3, 4), (2, 3)], torch=lambda a, x, y: x[:2, :3], large=[(600, 600), (500, 2)]
    ),
    "slice_like-axes": Case(
        ops.slice_like,
        {"axes": (-1,)},
        [(3, 4), (5, 2)],
        torch=lambda a, x, y: x[:, :2],
        large=[(90_000, 4), (5, 2)],
    ),
    "_grow_like": Case(
        ops._grow_like,
        {},
        [(2, 3), (3, 4)],
        torch=lambda a, x, y: F.pad(x, (0, 1, 0, 1)),
        mxnet="MXNet has no such name",
        large=[(500, 600), (600, 600)],
    ),
    "_slice_assign": Case(
        ops._slice_assign,
        {"begin": (1, None), "end": (3, 2)},
        [(3, 4, 2), (2, 2, 2)],
        torch=_assigned,
        large=[(90_000, 4, 2), (2, 2, 2)],
        empty=False,
    ),
    "_slice_assign-step": Case(
        ops._slice_assign,
        {"begin": (0, -1), "end": (3, None), "step": (2, -2)},
        [(3, 4), (2, 2)],
        torch=_assigned,
        empty=False,
        large=[(90_000, 4), (2, 2)],
    ),
    "_slice_assign_scalar": Case(
        ops._slice_assign_scalar, {"begin": (0, 1), "end": (2, 3), "scalar": 2.5}, [(3, 4)], torch=_filled
    ),
    "SliceChannel": Case(ops.SliceChannel, {"num_outputs": 3}, [(2, 6, 2)], torch=_channels),
    "SliceChannel-squeeze": Case(
        ops.SliceChannel, {"num_outputs": 3, "axis": -1, "squeeze_axis": True}, [(2, 3)], torch=_channels
    ),
    "SliceChannel-one": Case(ops.SliceChannel, {"num_outputs": 1, "axis": 0}, [(2, 3)], torch=_channels),
    "_split_v2": Case(ops.SplitV2, {"indices": (0, 1, 3), "axis": 1}, [(2, 4, 3)], torch=_split),
    "_split_v2-sections": Case(
        ops.SplitV2,
        {"indices": (), "axis": -1, "sections": 2},
        [(2, 4)],
        torch=_split,
        mxnet="MXNet's sections cannot be given without indices that say the same",
    ),
    "_split_v2-squeeze": Case(
        ops.SplitV2, {"indices": (0, 1), "axis": 1, "squeeze_axis": True}, [(3, 2)], torch=_split
    ),
    "_split_v2-empty": Case(
        ops.SplitV2,
        {"indices": (1, 1, 9), "axis": 1},
        [(3, 4)],
        torch=_split,
        mxnet="MXNet wants the first place to be 0",
    ),
    "_unconcat": Case(
        ops.Unconcat,
        {"num_args": 3},
        [(2, 6), (2, 4), (2, 2)],
        grad_inputs=("arg0",),
        torch=lambda a, x, y, z: (x[:, :4], x[:, 4:]),
        mxnet="MXNet has no such name",
    ),
    "Concat": Case(
        ops.Concat, {"num_args": 3}, [(2, 1, 3), (2, 2, 3), (2, 3, 3)], torch=lambda a, *x: torch.cat(x, 1)
    ),
    "Concat-first": Case(
        ops.Concat, {"num_args": 2, "dim": 0}, [(2, 3), (4, 3)], torch=lambda a, *x: torch.cat(x, 0)
    ),
    "Concat-one": Case(ops.Concat, {"num_args": 1, "dim": -1}, [(2, 3)], torch=lambda a, x: x * 1),
    "stack": Case(ops.stack, {"num_args": 3, "axis": 1}, [(2, 3)] * 3, torch=lambda a, *x: torch.stack(x, 1)),
    "stack-end": Case(
        ops.stack, {"num_args": 2, "axis": -1}, [(2, 3)] * 2, torch=lambda a, *x: torch.stack(x, -1)
    ),
    **{
        f"Crop-{name}": Case(
            ops.Crop,
            attrs,
            shapes,
            grad_inputs=("arg0",),
            torch=_crop,
            large=[(9000, *shapes[0][1:]), *shapes[1:]],
        )
        for name, attrs, shapes in (
            ("size", {"num_args": 1, "h_w": (2, 3), "offset": (1, 2)}, [(2, 3, 4, 5)]),
            ("middle", {"num_args": 1, "h_w": (2, 2), "center_crop": True}, [(2, 3, 5, 4)]),
            ("like", {"num_args": 2, "offset": (1, 0)}, [(2, 3, 4, 5), (2, 1, 3, 3)]),
            ("like-middle", {"num_args": 2, "center_crop": True}, [(2, 3, 4, 5), (2, 1, 2, 2)]),
        )
    },
    "_uncrop": Case(
        ops._uncrop,
        {"offset": (1, 2)},
        [(2, 3, 2, 3), (2, 3, 4, 5)],
        grad_inputs=("data",),
        mxnet="MXNet has no such name",
    ),
    "_uncrop-middle": Case(
        ops._uncrop,
        {"center_crop": True},
        [(2, 3, 2, 3), (2, 3, 5, 5)],
        grad_inputs=("data",),
        mxnet="MXNet has no such name",
    ),
}

_BORDERS = {
    "Pad": Case(
        ops.Pad,
        {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 2, 1), "constant_value": 1.5},
        [(2, 1, 2, 3)],
        torch=_pad,
    ),
    "Pad-edge": Case(
        ops.Pad, {"mode": "edge", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0)}, [(2, 1, 2, 3)], torch=_pad
    ),
    "Pad-reflect": Case(
        ops.Pad, {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 1, 2, 1)}, [(2, 1, 2, 3)], torch=_pad
    ),
    "Pad-5d": Case(
        ops.Pad,
        {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 1, 0, 1, 2, 0)},
        [(2, 1, 2, 3, 3)],
        torch=_pad,
    ),
    **{
        f"Pad-{mode}-vector": Case(
            ops.Pad,
            {"mode": mode, "pad_width": (2, 1)},
            [(4,)],
            torch=_pad,
            mxnet="MXNet pads 4 and 5 axes",
        )
        for mode in ("constant", "edge", "reflect")
    },
    "Pad-all": Case(
        ops.Pad,
        {"mode": "edge", "pad_width": (1, 1, 0, 2, 1, 0)},
        [(2, 3, 2)],
        torch=_pad,
        mxnet="MXNet pads 4 and 5 axes",
    ),
    **{
        f"_unpad-{mode}": Case(
            ops._unpad,
            {"mode": mode, "pad_width": (0, 0, 1, 2, 2, 1)},
            [(2, 6, 7)],
            mxnet="MXNet has no such name",
        )
        for mode in ("constant", "edge", "reflect")
    },
    **{
        f"diag-{name}": Case(
            ops.diag,
            {"k": k, "axis1": i, "axis2": j},
            [shape],
            torch=_diag,
            empty=len(shape) > 2,
            mxnet=mxnet,
            large=large,
        )
        for name, k, i, j, shape, mxnet, large in (
            ("matrix", 0, 0, 1, (3, 4), True, [(600, 600)]),
            ("above", 1, 0, 1, (3, 4), True, [(600, 600)]),
            ("below", -2, 0, 1, (3, 4), True, [(600, 600)]),
            ("outside", -3, 0, 1, (3, 4), True, [(600, 600)]),
            ("batch", 1, -2, -1, (2, 3, 4), True, None),
            ("swapped", -1, 2, 0, (2, 3, 4), True, [(2, 300_000, 4)]),
            ("vector", 0, 0, 1, (3,), True, [(600,)]),
            ("vector-above", 2, 0, 1, (3,), True, [(600,)]),
            ("vector-below", -1, 0, 1, (3,), True, [(600,)]),
        )
    },
    **{
        f"{op.op_name}{k:+d}-{len(shape)}d": Case(
            op,
            {"k": k},
            [shape],
            torch=lambda a, x, f=name: getattr(torch, f)(x, a.k),
            mxnet="MXNet has it for mx.np only",
            large=[(90_000, *shape[1:])] if len(shape) == 3 else [(600, 600)],
        )
        for name, op in (("tril", ops.tril), ("triu", ops.triu))
        for k, shape in ((0, (3, 4)), (1, (4, 3)), (-1, (2, 4, 3)), (-9, (3, 3)), (9, (3, 3)))
    },
}

_ADJOINTS = {
    **_adjoint(ops.tile, {"reps": (2, 1, 2)}, (3, 2), large=[(2, 90_000, 4), (90_000, 2)]),
    **_adjoint(ops.repeat, {"repeats": 2, "axis": 1}, (2, 3, 2)),
    **_adjoint(ops.repeat, {"repeats": 2}, (2, 3), "-flat", large=[(600_000,), (100, 3000)], empty=False),
    **_adjoint(
        ops.slice,
        {"begin": (0, -1), "end": (3, None), "step": (2, -2)},
        (3, 4),
        large=[(2, 45_000), (6, 90_000)],
        empty=False,
    ),
    **_adjoint(ops.slice_axis, {"axis": 1, "begin": 1, "end": 3}, (3, 4)),
    **_adjoint(ops.diag, {"k": 1}, (3, 4), empty=False, large=[(599,), (600, 600)]),
    **_adjoint(ops.diag, {"k": -1}, (3,), "-vector", empty=False, large=[(600, 600), (599,)]),
}

_CONSTANTS = {
    "_zeros": Case(ops._zeros, {"shape": (500, 601)}, []),
    "_ones": Case(ops._ones, {"shape": (500, 601), "dtype": "int32"}, []),
    "_full": Case(ops._full, {"value": -2.5, "shape": (500, 601), "dtype": "float64"}, []),
    "_full-whole": Case(ops._full, {"value": -2.5, "shape": (500, 601), "dtype": "int32"}, []),
    "_zeros_without_dtype": Case(ops._zeros_without_dtype, {"shape": (500, 601)}, []),
    "_arange": Case(ops.Arange, {"start": 300_001}, []),
    "_arange-steps": Case(
        ops.Arange, {"start": 50_000, "stop": -1, "step": -0.5, "repeat": 3, "dtype": "float64"}, []
    ),
    "_linspace": Case(ops.Linspace, {"start": -2, "stop": 3, "num": 300_001, "dtype": "float64"}, []),
    "_linspace-open": Case(ops.Linspace, {"start": 1, "stop": 0, "num": 300_001, "endpoint": False}, []),
    "_linspace-whole": Case(ops.Linspace, {"start": 5.5, "stop": -4, "num": 300_001, "dtype": "int32"}, []),
    "_eye": Case(ops._eye, {"N": 601, "M": 500, "k": -3, "dtype": "int32"}, []),
    "_eye-square": Case(ops._eye, {"N": 601, "k": 600}, []),
    "_arange-whole": Case(
        ops.Arange,
        {"start": 0.5, "stop": 10, "step": 1.6, "repeat": 2, "dtype": "int32"},
        [],
        large_attrs={"stop": 480_000},
    ),
    "_contrib_arange_like": Case(
        ops.ContribArangeLike,
        {"start": 0.5, "step": 1.5, "repeat": 2},
        [(3, 4)],
        torch=lambda a, x: (torch.arange(prod(x.shape)) // 2 * 1.5 + 0.5).reshape(x.shape).double(),
    ),
    "_contrib_arange_like-axis": Case(
        ops.ContribArangeLike,
        {"axis": -1},
        [(3, 4)],
        torch=lambda a, x: torch.arange(4.0).double(),
    ),
    "shape_array": Case(ops.shape_array, {}, [(3, 4)], torch=lambda a, x: torch.tensor(x.shape)),
    "size_array": Case(ops.size_array, {}, [(3, 4)], torch=lambda a, x: torch.tensor([x.numel()])),
    "_contrib_index_array": Case(
        ops.ContribIndexArray, {}, [(3, 4)], torch=lambda a, x: torch.ones(3, 4).nonzero().reshape(3, 4, 2)
    ),
    "_contrib_index_array-axes": Case(
        ops.ContribIndexArray,
        {"axes": (-1, 0)},
        [(3, 4)],
        torch=lambda a, x: torch.ones(3, 4).nonzero().reshape(3, 4, 2).flip(2),
    ),
}

ROWS: dict[str, Case] = {**_VIEWS, **_ORDER, **_PARTS, **_BORDERS, **_ADJOINTS, **_CONSTANTS}
