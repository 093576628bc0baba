"""Rows of mixed precision: float32 parameters beside 16-bit data, and the casts of loss scaling."""

from mxlite import ops
from tests.cases.nn import _cross_entropy as softmax_objective
from tests.conformance.case import Case, constant, integers, normal, positive

_MXNET = "takes one type for all inputs"


def _beside(op, data, channel, large=None, names=("gamma", "beta"), kinds=("bfloat16", "float16"), **attrs):
    """`op` on 16-bit data, with its other inputs, (channel,) each, in float32."""
    return {
        f"{op.op_name}-{kind}-{'x'.join(map(str, data))}": Case(
            op,
            attrs,
            [data, *[(channel,)] * len(names)],
            dtype=kind,
            dtypes=dict.fromkeys(names, "float32"),
            make={"moving_var": positive},
            large=large and [large, *[(channel,)] * len(names)],
            mxnet=_MXNET,
        )
        for kind in kinds
    }


_MOVING = ("gamma", "beta", "moving_mean", "moving_var")


def _shore(enters, kind, **kinds):
    return Case(
        ops.Shore,
        {"dtype": kind, "enters": enters},
        [(3, 4), (2,)],
        make={"data": normal, "scale": constant([1.0, 1.0])},
        dtypes={"scale": "float32"},
        mxnet="casts without a scale",
        **kinds,
    )


ROWS: dict[str, Case] = {
    **_beside(ops.BatchNorm, (6, 3, 2, 2), 3, (60_000, 3, 2, 2), _MOVING, fix_gamma=False),
    **_beside(ops.BatchNorm, (5, 4, 3), 4, (32_768, 4, 3), _MOVING, fix_gamma=False, axis=1),
    **_beside(ops.BatchNorm, (9, 4), 4, (99_999, 4), _MOVING, fix_gamma=True),
    **_beside(
        ops.BatchNorm, (2, 2, 3, 30), 2, (2, 2, 300, 300), _MOVING, fix_gamma=False, use_global_stats=True
    ),
    **_beside(ops.LayerNorm, (3, 2, 5), 5, (90_000, 2, 5)),
    **_beside(ops.LayerNorm, (2, 70_000), 70_000, (4, 70_000)),
    **_beside(ops.LayerNorm, (3, 4, 2), 4, (90_000, 4, 2), axis=1, output_mean_var=True, eps=0.1),
    **_beside(ops.RMSNorm, (3, 2, 5), 5, (90_000, 2, 5), ("gamma",)),
    **_beside(ops.GroupNorm, (3, 6, 2, 2), 3, (30_000, 6, 2, 2), num_groups=3),
    **_beside(ops.GroupNorm, (3, 4, 5), 2, (30_000, 4, 5), num_groups=2, output_mean_var=True),
    **_beside(ops.InstanceNorm, (3, 4, 5), 4, (30_000, 4, 5)),
    "_shore-in": _shore(True, "float64"),
    "_shore-out": _shore(False, "float64"),
    "_shore-rounds": _shore(True, "float32", grad_inputs=()),
    "_shore-to-float32": _shore(True, "float32", dtype="float32"),
    "_shore-to-bfloat16": _shore(True, "bfloat16", dtype="float32"),
    "_shore-from-float16": _shore(False, "float32", dtype="float16"),
}


def _wide_output(shape, label, kind="float64", **attrs):
    return Case(
        ops.WideSoftmaxOutput,
        attrs,
        [shape, label],
        dtype=kind,
        dtypes={"label": "float32"} if kind != "float64" else {},
        make={"label": integers(0, shape[1])},
        grad_inputs=("data",) if shape == (6, 4) else (),
        objective=softmax_objective,
        large=[(100_000, *shape[1:]), (100_000, *label[1:])],
    )


def _wide_loss(op, shape, kind="float64", **attrs):
    label = (shape[0], *shape[2:])
    more = [shape[1:2]] if attrs.get("use_weight") else []
    return Case(
        op,
        attrs,
        [shape, label, *more],
        dtype=kind,
        dtypes={"label": "int64"} | ({"weight": "float32"} if kind != "float64" else {}),
        make={"label": integers(0, shape[1]), "weight": positive},
        grad_inputs=("data",) if kind == "float64" else (),
        large=[(100_000, *shape[1:]), (100_000, *shape[2:]), *more],
    )


_ENTROPY, _SUM = ops.WideCrossEntropy, ops.WideSoftmaxCrossEntropy

ROWS |= {
    f"{name}-{kind}": make(kind)
    for kind in ("float64", "bfloat16", "float16")
    for name, make in {
        "wide-softmax-output": lambda k: _wide_output((6, 4), (6,), k, grad_scale=0.5),
        "wide-softmax-output-valid": lambda k: _wide_output(
            (5, 4), (5,), k, normalization="valid", use_ignore=True, ignore_label=2, smooth_alpha=0.1
        ),
        "wide-softmax-output-positions": lambda k: _wide_output(
            (3, 4, 5), (3, 5), k, multi_output=True, normalization="batch"
        ),
        "wide-cross-entropy": lambda k: _wide_loss(_ENTROPY, (5, 4), k),
        "wide-cross-entropy-weight": lambda k: _wide_loss(
            _ENTROPY, (5, 4, 2), k, use_weight=True, reduction="none"
        ),
        "wide-softmax-cross-entropy": lambda k: _wide_loss(_SUM, (6, 5), k),
    }.items()
}
