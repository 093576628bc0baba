"""What networks end in."""

from __future__ import annotations

from math import prod

from .draft import Draft
from .motifs_rows import dense
from .network import Value


def loss(d: Draft) -> Value:
    """A loss of one of the values there."""
    return d.one_of((_softmax_output, _softmax_output, _regression, _made, _cross_entropy, _cross_entropy))(d)


def _softmax_output(d: Draft) -> Value:
    """SoftmaxOutput in one of its forms, with its options."""
    x = d.pick(lambda s: len(s) >= 2)
    shape = d.shape(x)
    many = len(shape) > 2 and d.chance(0.5)
    if not many:
        classes = d.width() + 1
        x = dense(d, x, hidden=classes, flatten=True)
        label, options = d.shape(x)[:-1], {}
    elif d.chance(0.6):
        classes = shape[1]
        label, options = (shape[0], *shape[2:]), dict(multi_output=True)
        if d.chance(0.4):
            label = (shape[0], prod(shape[2:]))
    else:
        classes = shape[-1]
        label, options = shape[:-1], dict(preserve_shape=True)
    kind = f"class {classes}"
    if d.chance(0.3):
        options |= dict(use_ignore=True, ignore_label=d.one_of((-1, 0)))
        kind = f"class {classes} from -1"
    options |= dict(normalization=d.one_of(("null", "batch", "valid"))) if d.chance(0.5) else {}
    options |= dict(grad_scale=0.5) if d.chance(0.2) else {}
    options |= dict(smooth_alpha=0.1) if d.chance(0.2) and classes > 1 else {}
    options |= dict(out_grad=True) if d.heads and d.chance(0.1) else {}
    return d.call("SoftmaxOutput", x, d.input(label, kind, "label"), **options)


def _regression(d: Draft) -> Value:
    x = d.pick()
    op = d.one_of(("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"))
    return d.call(op, x, d.input(d.shape(x), "data", "label"), grad_scale=d.one_of((1.0, 0.3)))


def _made(d: Draft) -> Value:
    """MakeLoss of something small."""
    x = d.pick()
    if d.chance(0.5):
        x = d.call("square", d.call("broadcast_sub", x, d.input(d.shape(x), "data", "label")))
        if d.chance(0.5):
            x = d.call("mean", x)
        return d.call("make_loss", x)
    x = d.call("_mul_scalar", d.call("square", x), scalar=0.5)
    return d.call("MakeLoss", x, grad_scale=0.5, normalization=d.one_of(("null", "batch")))


def _cross_entropy(d: Draft) -> Value:
    """A classifier and its cross-entropy, as chunks take it."""
    x = d.pick(lambda s: len(s) >= 2)
    flatten = d.chance(0.5)
    if not flatten and len(d.shape(x)) > 2:
        x = d.call("reshape", x, shape=(-1, d.shape(x)[-1]))
    classes = d.width() + 2
    scores = dense(d, x, hidden=classes, flatten=True)
    n = d.shape(scores)[0]
    x = d.call("softmax_cross_entropy", scores, d.input((n,), f"class {classes}", "label"))
    if d.chance(0.5):
        x = d.call("_mul_scalar", x, scalar=1 / n)
    return d.call("MakeLoss", x, **(dict(grad_scale=0.25) if d.chance(0.5) else {}))
