"""Rows of `conformance.py` for normalizations, softmax, losses and attention. See `cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite import ops
from tests.conformance.case import apart, Case, integers, normal, positive, unit

Arrays = dict[str, np.ndarray]


def _torch() -> Any:
    import torch

    return torch.nn.functional


def _layer(shape, axis=-1, large=None, **attrs):
    def torch(a, data, gamma, beta):
        x = data.movedim(a.axis, -1)
        return _torch().layer_norm(x, x.shape[-1:], gamma, beta, a.eps).movedim(-1, a.axis)

    k = shape[axis]
    if attrs.get("output_mean_var"):
        torch = None
    return Case(
        ops.LayerNorm,
        {"axis": axis} | attrs,
        [shape, (k,), (k,)],
        tolerance=1e-5,
        torch=torch,
        mxnet="its mean and std have no gradient" if attrs.get("output_mean_var") else True,
        large=large and [large, (k,), (k,)],
    )


def _rms(shape, axis=-1, large=None, **attrs):
    def torch(a, data, gamma):
        x = data.movedim(a.axis, -1)
        return _torch().rms_norm(x, x.shape[-1:], gamma, a.eps).movedim(-1, a.axis)

    k = shape[axis]
    return Case(
        ops.RMSNorm,
        {"axis": axis} | attrs,
        [shape, (k,)],
        tolerance=1e-5,
        torch=torch,
        large=large and [large, (k,)],
    )


def _group(shape, groups, large=None, **attrs):
    def torch(a, data, gamma, beta):
        each = data.shape[1] // len(gamma)
        gamma, beta = gamma.repeat_interleave(each), beta.repeat_interleave(each)
        return _torch().group_norm(data, a.num_groups, gamma, beta, a.eps)

    gamma = (groups,)
    return Case(
        ops.GroupNorm,
        {"num_groups": groups} | attrs,
        [shape, gamma, gamma],
        tolerance=1e-5,
        torch=None if attrs.get("output_mean_var") else torch,
        mxnet="its mean and std have no gradient" if attrs.get("output_mean_var") else True,
        large=large and [large, gamma, gamma],
    )


def _instance(shape, large=None, **attrs):
    return Case(
        ops.InstanceNorm,
        attrs,
        [shape, shape[1:2], shape[1:2]],
        tolerance=1e-5,
        torch=lambda a, data, gamma, beta: _torch().instance_norm(
            data, None, None, gamma, beta, True, 0.1, a.eps
        ),
        large=large and [large, shape[1:2], shape[1:2]],
    )


def _l2(mode, shape, large=None):
    def torch(a, data):
        axes = {
            "instance": tuple(range(1, data.ndim)),
            "channel": (1,),
            "spatial": tuple(range(2, data.ndim)),
        }
        return data / (data.square().sum(axes[a.mode], keepdim=True) + a.eps).sqrt()

    return Case(ops.L2Normalization, {"mode": mode, "eps": 1e-3}, [shape], torch=torch, large=large)


NORMALIZATIONS = {
    "layer-norm": _layer((3, 2, 5), large=(400_000, 2, 5)),
    "layer-norm-rows": _layer((7, 6)),
    "layer-norm-axis": _layer((3, 4, 2), axis=1),
    "layer-norm-first": _layer((4, 3), axis=0, large=(4, 100_000)),
    "layer-norm-vector": _layer((5,), large=(300_000,)),
    "layer-norm-long": _layer((2, 70_000), large=(4, 70_000)),
    "layer-norm-wide": _layer((1, 2, 70_000), axis=1, large=(3, 2, 70_000)),
    "layer-norm-mean-var": _layer((3, 2, 5), output_mean_var=True, eps=0.1),
    "rms-norm": _rms((3, 2, 5)),
    "rms-norm-axis": _rms((3, 4, 2), axis=1, eps=0.1),
    "group-norm": _group((3, 6, 2, 2), 3),
    "group-norm-one": _group((3, 4, 5), 1),
    "group-norm-each": _group((3, 4, 5), 4),
    "group-norm-matrix": _group((3, 4), 2),
    "group-norm-large": _group((1, 4, 3, 50, 60), 2, large=(3, 4, 3, 150, 60)),
    "group-norm-mean-var": _group((3, 4, 5), 2, output_mean_var=True),
    "instance-norm": _instance((3, 4, 5)),
    "instance-norm-2d": _instance((2, 3, 4, 5), eps=0.1),
    "instance-norm-large": _instance((1, 2, 40_000), large=(2, 2, 80_000)),
    "l2-instance": _l2("instance", (3, 4, 5)),
    "l2-channel": _l2("channel", (3, 4, 5)),
    "l2-channel-2d": _l2("channel", (2, 3, 4, 5)),
    "l2-spatial": _l2("spatial", (2, 3, 4, 5)),
}


def _softmax(op, shape, axis=-1, large=None, torch=None, length=None, **attrs):
    def by_torch(a, data, length=None):
        x = data / (a.temperature or 1)
        if length is not None:
            k = data.shape[a.axis]
            beyond = torch_arange(k) >= length.unsqueeze(-1)
            beyond = beyond.movedim(-1, a.axis)
            x = x.masked_fill(beyond, -1e30)
        if op is ops.log_softmax:
            y = _torch().log_softmax(x, a.axis)
        else:
            y = _torch().softmax(-x if op is ops.softmin else x, a.axis)
        if length is not None:
            y = y.masked_fill(beyond, 0)
        return y

    shapes = [shape]
    if attrs.get("use_length"):
        shapes.append(tuple(np.delete(shape, axis)))
    return Case(
        op,
        {"axis": axis} | attrs,
        shapes,
        dtypes={"length": "int32"} if len(shapes) > 1 else {},
        make={"length": integers(1, shape[axis] + 1)} if len(shapes) > 1 else {},
        grad_inputs=("data",),
        torch=None if op is ops.softmin and attrs.get("use_length") else by_torch,
        large=large,
        mxnet=op is ops.softmax or not attrs.get("use_length") or "takes no length",
    )


def torch_arange(n):
    import torch

    return torch.arange(n)


def _softmaxes(op):
    name = op.op_name
    return {
        name: _softmax(op, (3, 4, 2)),
        f"{name}-rows": _softmax(op, (5, 7)),
        f"{name}-vector": _softmax(op, (6,), large=[(300_000,)]),
        f"{name}-axis-temperature": _softmax(op, (3, 4, 2), axis=1, temperature=2.0),
        f"{name}-first": _softmax(op, (3, 4), axis=0, large=[(3, 100_000)]),
        f"{name}-long": _softmax(op, (2, 70_000)),
        f"{name}-length": _softmax(
            op, (3, 4, 2), axis=1, use_length=True, large=[(80_000, 4, 2), (80_000, 2)]
        ),
        f"{name}-length-last": _softmax(
            op, (4, 5), use_length=True, temperature=0.5, large=[(80_000, 5), (80_000,)]
        ),
        f"{name}-length-long": _softmax(op, (2, 70_000), use_length=True),
    }


SOFTMAXES = {
    **_softmaxes(ops.softmax),
    **_softmaxes(ops.log_softmax),
    **_softmaxes(ops.softmin),
    "softmax-activation": Case(
        ops.SoftmaxActivation,
        shapes=[(3, 4, 2)],
        torch=lambda a, x: _torch().softmax(x, -1),
        mxnet="MXNet's gradient is not that of its own output for more than two axes",
    ),
    "softmax-activation-channel": Case(
        ops.SoftmaxActivation, {"mode": "channel"}, [(3, 4, 2, 2)], torch=lambda a, x: _torch().softmax(x, 1)
    ),
}


def _activation(op, torch, make=normal, **attrs):
    return {
        f"{op.op_name}{''.join(f'-{v}' for v in attrs.values())}": Case(
            op, attrs, make={"data": make}, torch=torch
        ),
        f"{op.op_name}{''.join(f'-{v}' for v in attrs.values())}-many": Case(
            op, attrs, [(2, 3, 7_000)], make={"data": lambda rng, s: 4 * make(rng, s)}, torch=torch
        ),
    }


ACTIVATIONS = {
    **_activation(ops.gelu, lambda a, x: _torch().gelu(x)),
    **_activation(ops.gelu, lambda a, x: _torch().gelu(x, approximate="tanh"), approximate="tanh"),
    **_activation(ops.silu, lambda a, x: _torch().silu(x)),
    **_activation(ops.mish, lambda a, x: _torch().mish(x)),
    **_activation(ops.hard_swish, lambda a, x: _torch().hardswish(x), make=apart),
    **_activation(ops.softplus, lambda a, x: _torch().softplus(x, a.beta, 1000)),
    **_activation(ops.softplus, lambda a, x: _torch().softplus(x, a.beta, 1000), beta=2.5),
    **_activation(ops.log_sigmoid, lambda a, x: _torch().logsigmoid(x)),
}


def _attention(b, h, n, s, e, v=None, g=None, mask=None, kind="", large=None, **attrs):
    """A row; kind: dtype of the mask."""
    shapes = [(b, h, n, e), (b, g or h, s, e), (b, g or h, s, v or e)]
    dtypes, make = {}, {}
    if mask is not None:
        shapes.append(mask)
        if kind:
            dtypes["mask"], make["mask"] = kind, first_and_others
    if attrs.get("use_length"):
        shapes.append((b,))
        dtypes["length"], make["length"] = "int32", integers(1, s + 1)

    def torch(a, query, key, value, *more):
        import torch

        more = list(more)
        mask = torch.zeros(b, h, n, s, dtype=query.dtype)
        if a.use_mask:
            given = more.pop(0)
            mask = mask + (
                given
                if given.is_floating_point()
                else torch.zeros_like(given, dtype=query.dtype).masked_fill(~given, -torch.inf)
            )
        if a.use_length:
            mask = mask.masked_fill(torch.arange(s) >= more[0][:, None, None, None], -torch.inf)
        if a.causal:
            mask = mask.masked_fill(torch.ones(n, s, dtype=torch.bool).tril().logical_not(), -torch.inf)
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=a.scale, enable_gqa=True
        )

    return Case(
        ops.scaled_dot_product_attention,
        attrs | ({"use_mask": True} if mask is not None else {}),
        shapes,
        dtypes=dtypes,
        make=make,
        tolerance=1e-6,
        torch=None if attrs.get("p") else torch,
        grad_inputs=("query", "key", "value") if kind else None,
        large=large or _large_attention(h, g or h, mask, attrs),
    )


def _large_attention(h, g, mask, attrs):
    shapes = [(8, h, 120, 200), (8, g, 70, 200), (8, g, 70, 200)]
    if mask is not None:
        shapes.append(tuple(i if i == 1 else m for i, m in zip(mask, (8, h, 120, 70)[-len(mask) :])))
    return [*shapes, (8,)] if attrs.get("use_length") else shapes


def first_and_others(rng, shape):
    """A bool mask that lets the first key through, so that no query is left with none."""
    mask = rng.uniform(size=shape) < 0.6
    mask[..., 0] = True
    return mask


ATTENTION = {
    "attention": _attention(2, 3, 4, 5, 6),
    "attention-values": _attention(1, 2, 3, 4, 5, v=7, scale=0.3),
    "attention-causal": _attention(2, 2, 5, 5, 3, causal=True),
    "attention-causal-long": _attention(
        1, 1, 300, 600, 2, causal=True, large=[(1, 1, 300, 200), (1, 1, 900, 200), (1, 1, 900, 200)]
    ),
    "attention-causal-fewer-keys": _attention(1, 2, 300, 140, 2, causal=True),
    "attention-shared": _attention(2, 6, 4, 5, 3, g=2),
    "attention-mask": _attention(2, 2, 4, 5, 3, mask=(2, 2, 4, 5)),
    "attention-mask-broadcast": _attention(2, 4, 3, 5, 3, g=2, mask=(1, 4, 1, 5), causal=True),
    "attention-mask-matrix": _attention(2, 2, 3, 5, 3, mask=(3, 5)),
    "attention-mask-column": _attention(2, 2, 3, 5, 3, mask=(2, 1, 3, 1)),
    "attention-mask-bool": _attention(2, 2, 4, 5, 3, mask=(2, 1, 4, 5), kind="bool"),
    "attention-length": _attention(3, 2, 4, 6, 3, use_length=True),
    "attention-everything": _attention(
        3, 4, 140, 530, 3, v=2, g=2, mask=(4, 140, 530), use_length=True, causal=True, scale=0.7
    ),
    "attention-dropout": _attention(2, 4, 5, 6, 3, g=2, p=0.4),
    "attention-dropout-long": _attention(1, 1, 200, 530, 3, p=0.4, causal=True),
    "attention-no-width": _attention(
        2, 2, 3, 4, 0, v=3, scale=1.0, large=[(10, 2, 400, 0), (10, 2, 300, 0), (10, 2, 300, 20)]
    ),
}


def _lrn(shape, large=None, torch=True, **attrs):
    def by_torch(a, data):
        return _torch().local_response_norm(data, a.nsize, a.alpha, a.beta, a.knorm)

    return Case(ops.LRN, attrs, [shape], torch=by_torch if torch else None, large=large, tolerance32=2e-4)


LRNS = {
    "lrn": _lrn((2, 6, 3, 2), nsize=3, alpha=0.5, beta=0.6, knorm=1.5),
    "lrn-wide": _lrn((3, 4, 5), nsize=9, alpha=0.8),
    "lrn-one": _lrn((3, 4, 2), nsize=1, alpha=0.8),
    "lrn-even": _lrn((3, 5, 2), nsize=4, alpha=0.8, torch=False),
    "lrn-large-planes": _lrn((1, 2, 70_000), nsize=3, alpha=0.8),
}


def _split_heads(x, heads, parts):
    n, b, _ = x.shape
    return x.reshape(n, b, heads, parts, -1).permute(3, 1, 2, 0, 4).flatten(1, 2)


def _torch_scores(query, key):
    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5


def _torch_valued(weights, value, heads):
    out = weights @ value
    return out.unflatten(0, (-1, heads)).permute(2, 0, 1, 3).flatten(2)


_INTERLEAVED = {
    ops.ContribInterleavedMatmulSelfattQk: lambda a, x: _torch_scores(*_split_heads(x, a.heads, 3)[:2]),
    ops.ContribInterleavedMatmulSelfattValatt: lambda a, x, w: _torch_valued(
        w, _split_heads(x, a.heads, 3)[2], a.heads
    ),
    ops.ContribInterleavedMatmulEncdecQk: lambda a, q, x: _torch_scores(
        _split_heads(q, a.heads, 1)[0], _split_heads(x, a.heads, 2)[0]
    ),
    ops.ContribInterleavedMatmulEncdecValatt: lambda a, x, w: _torch_valued(
        w, _split_heads(x, a.heads, 2)[1], a.heads
    ),
}


def _interleaved(op, *shapes, heads=2, large):
    return Case(op, {"heads": heads}, shapes, torch=_INTERLEAVED[op], large=large)


INTERLEAVED = {
    "selfatt-qk": _interleaved(ops.ContribInterleavedMatmulSelfattQk, (5, 2, 24), large=[(100, 20, 120)]),
    "selfatt-valatt": _interleaved(
        ops.ContribInterleavedMatmulSelfattValatt,
        (5, 2, 24),
        (4, 5, 5),
        large=[(100, 20, 120), (40, 100, 100)],
    ),
    "encdec-qk": _interleaved(
        ops.ContribInterleavedMatmulEncdecQk, (5, 2, 8), (3, 2, 16), large=[(100, 20, 40), (90, 20, 80)]
    ),
    "encdec-valatt": _interleaved(
        ops.ContribInterleavedMatmulEncdecValatt,
        (3, 2, 16),
        (4, 5, 3),
        large=[(90, 20, 80), (40, 100, 90)],
    ),
    "div-sqrt-dim": Case(
        ops._contrib_div_sqrt_dim, shapes=[(3, 4, 5)], torch=lambda a, x: x / x.shape[-1] ** 0.5
    ),
}


def _class_loss(op, shape, ignored=False, large=None, **attrs):
    def torch(a, data, label, weight=None):
        function = _torch().cross_entropy if op is ops.cross_entropy else _torch().nll_loss
        weight = None if weight is None else weight.detach()
        loss = function(data, label.long(), weight, ignore_index=a.ignore_index, reduction=a.reduction)
        return loss if a.reduction == "none" else loss[None]

    label = (shape[0], *shape[2:])
    shapes = [shape, label] + [shape[1:2]] * attrs.get("use_weight", False)
    large = large or (1 + 300_000 // int(np.prod(shape[1:])), *shape[1:])
    return Case(
        op,
        attrs | ({"ignore_index": 1} if ignored else {}),
        shapes,
        dtypes={"label": "int64"},
        make={"label": integers(0, shape[1]), "weight": positive},
        grad_inputs=("data",),
        torch=torch,
        large=[large, (large[0], *large[2:])] + [large[1:2]] * attrs.get("use_weight", False),
    )


def _torch_entropy_with_gradient(a, x, label, head):
    powers = _torch().softmax(x, 1)
    truth = _torch().one_hot(label.long(), x.shape[1])
    return _torch().cross_entropy(x, label.long(), reduction="sum")[None], head * (powers - truth)


def _class_losses(op):
    name = op.op_name
    return {
        name: _class_loss(op, (5, 4)),
        f"{name}-sum": _class_loss(op, (5, 4), reduction="sum"),
        f"{name}-none": _class_loss(op, (5, 4), reduction="none"),
        f"{name}-positions": _class_loss(op, (3, 4, 2, 5), reduction="none", ignored=True),
        f"{name}-weight": _class_loss(op, (5, 4, 2), use_weight=True, ignored=True),
        f"{name}-weight-sum": _class_loss(op, (5, 4, 2), use_weight=True, reduction="sum"),
        f"{name}-weight-none": _class_loss(op, (5, 4), use_weight=True, ignored=True, reduction="none"),
        f"{name}-many": _class_loss(op, (3, 2, 3_000), use_weight=True, ignored=True, large=(100, 2, 3_000)),
        f"{name}-one": _class_loss(op, (5, 1)),
    }


def _hinge(a, inputs, outputs):
    """What SVMOutput's gradients are the derivatives of."""
    x, label = outputs["out"].reshape(-1, outputs["out"].shape[-1]), inputs["label"].astype(int).ravel()
    sign = np.ones(x.shape)
    sign[np.arange(len(label)), label] = -1
    some = np.maximum(0, a.margin + sign * x)
    return a.regularization_coefficient * float((some if a.use_linear else some**2).sum())


def _svm(shape, **attrs):
    return Case(
        ops.SVMOutput,
        attrs,
        [shape, shape[:-1]],
        make={"data": apart, "label": integers(0, shape[-1])},
        grad_inputs=("data",),
        objective=_hinge,
        mxnet=len(shape) == 2 or "reads labels of such data wrongly",
    )


def _sparse(shape, large, **attrs):
    return Case(
        ops.IdentityAttachKLSparseReg,
        {"penalty": 0.3, "sparseness_target": 0.2} | attrs,
        [shape, shape[1:2]],
        make={"data": unit, "moving_avg": unit},
        grad_inputs=(),
        large=[large, shape[1:2]],
        mxnet=len(shape) == 2 or "averages the wrong elements",
    )


LOSSES = {
    **_class_losses(ops.cross_entropy),
    **_class_losses(ops.nll_loss),
    "softmax-cross-entropy": Case(
        ops.softmax_cross_entropy,
        shapes=[(6, 5), (6,)],
        make={"label": integers(0, 5)},
        grad_inputs=("data",),
        torch=lambda a, x, label: _torch().cross_entropy(x, label.long(), reduction="sum")[None],
        large=[(120_000, 3), (120_000,)],
    ),
    "cross-entropy-with-gradient": Case(
        ops.CrossEntropyWithGradient,
        shapes=[(6, 5), (6,), (1,)],
        make={"label": integers(0, 5)},
        grad_inputs=(),
        torch=_torch_entropy_with_gradient,
        large=[(120_000, 3), (120_000,), (1,)],
    ),
    "svm-output": _svm((6, 5), margin=0.8, regularization_coefficient=0.5),
    "svm-output-linear": _svm((6, 5), use_linear=True, margin=0.3),
    "svm-output-cube": _svm((3, 2, 4)),
    "sparse-reg": _sparse((6, 4), (200_000, 4)),
    "sparse-reg-positions": _sparse((3, 4, 2), (200_000, 4, 2), momentum=0.5),
    "bn-v1": Case(
        ops.BatchNorm_v1,
        {"fix_gamma": False},
        [(6, 3, 2, 2), *[(3,)] * 4],
        make={"moving_var": positive},
        tolerance=1e-5,
        large=[(60_000, 3, 2, 2), *[(3,)] * 4],
        mxnet="computes a batch's variance in one pass: fewer digits",
    ),
    "sync-bn-variance": Case(
        ops.ContribSyncBatchNorm,
        {"fix_gamma": False, "key": "bn0", "output_mean_var": True},
        [(6, 3, 2, 2), *[(3,)] * 4],
        make={"moving_var": positive},
        grad_inputs=(),  # the statistics take no part in it, as in MXNet; see test_layers.py
        tolerance=1e-5,
        large=[(60_000, 3, 2, 2), *[(3,)] * 4],
        mxnet="waits for other devices",
    ),
    "sync-bn": Case(
        ops.ContribSyncBatchNorm,
        {"fix_gamma": False, "key": "bn0"},
        [(6, 3, 2, 2), *[(3,)] * 4],
        make={"moving_var": positive},
        tolerance=1e-5,
        large=[(60_000, 3, 2, 2), *[(3,)] * 4],
        mxnet="waits for other devices",
    ),
}

ROWS: dict[str, Case] = {
    **NORMALIZATIONS,
    **SOFTMAXES,
    **ACTIVATIONS,
    **ATTENTION,
    **LRNS,
    **INTERLEAVED,
    **LOSSES,
}
