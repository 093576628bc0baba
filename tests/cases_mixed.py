"""Rows of mixed precision: float32 parameters beside 16-bit data, and the casts of loss scaling."""

from case import Case, constant, normal, positive

from mxlite import ops

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
        ops._shore,
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
