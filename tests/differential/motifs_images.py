"""Motifs of networks for images, (N, C, H, W): convolutions and what passes look for beside them."""

from __future__ import annotations

from typing import Any

from .draft import Draft
from .network import Shape, Value

ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign")


def is_image(shape: Shape) -> bool:
    return len(shape) == 4


def convolution(d: Draft, x: Value, filters: int | None = None, **how: Any) -> Value:
    """A convolution of a drawn kind: 1x1, 3x3, strided, dilated, grouped, depthwise, as wide as its input."""
    _, c, h, w = d.shape(x)
    kind = how.pop("kind", None) or d.one_of(
        ("same", "same", "same", "point", "point", "valid", "strided", "depthwise", "grouped", "wide", "odd",
         "dilated")
    )  # fmt: skip
    filters = filters or d.width()
    groups, kernel, stride, pad, dilate = 1, (3, 3), (1, 1), (1, 1), (1, 1)
    if kind in ("point", "point1"):
        kernel, pad = (1, 1), (0, 0)
        stride = d.one_of(((1, 1), (1, 1), (2, 2))) if kind == "point" else stride
    elif kind == "valid":
        kernel, pad = d.one_of(((2, 2), (3, 3), (5, 5))), (0, 0)
    elif kind == "strided":
        kernel, stride, pad = d.one_of((((3, 3), (2, 2), (1, 1)), ((5, 5), (2, 2), (2, 2))))
    elif kind == "depthwise":
        groups = c
        filters = c * d.one_of((1, 1, 2))
    elif kind == "grouped":
        groups = d.one_of([g for g in (2, 3, 4) if c % g == 0] or [1])
        filters = -(-filters // groups) * groups
    elif kind == "wide":
        kernel, pad = (min(3, h), w), (0, 0)
    elif kind == "odd":
        kernel, stride, pad = d.one_of(
            (((1, 3), (1, 1), (0, 1)), ((3, 1), (1, 2), (1, 0)), ((2, 3), (1, 1), (1, 2)))
        )
    elif kind == "dilated":
        dilate, pad = (2, 2), (2, 2)
    d.require(all(n + 2 * p >= g * (k - 1) + 1 for n, p, k, g in zip((h, w), pad, kernel, dilate)))
    how = dict(no_bias=d.chance(0.5)) | how
    weight = d.variable((filters, c // groups, *kernel), "weight")
    inputs = (x, weight) if how["no_bias"] else (x, weight, d.variable((filters,), "small", "b"))
    attrs = dict(kernel=kernel, num_filter=filters)
    attrs |= dict(stride=stride) if stride != (1, 1) else {}
    attrs |= dict(pad=pad) if pad != (0, 0) else {}
    attrs |= dict(dilate=dilate) if dilate != (1, 1) else {}
    attrs |= dict(num_group=groups) if groups != 1 else {}
    return d.call("Convolution", *inputs, **attrs, **how)


def deconvolution(d: Draft, x: Value) -> Value:
    """A transposed convolution."""
    _, c, _, _ = d.shape(x)
    filters = d.width()
    kernel, stride, pad = d.one_of(
        (
            ((2, 2), (2, 2), (0, 0)),
            ((3, 3), (1, 1), (1, 1)),
            ((4, 4), (2, 2), (1, 1)),
            ((3, 2), (2, 1), (0, 0)),
        )
    )
    weight = d.variable((c, filters, *kernel), "weight")
    how: dict[str, Any] = dict(kernel=kernel, stride=stride, pad=pad, num_filter=filters)
    if d.chance(0.5):
        return d.call("Deconvolution", x, weight, no_bias=True, **how)
    return d.call("Deconvolution", x, weight, d.variable((filters,), "small", "b"), no_bias=False, **how)


def batch_norm(d: Draft, x: Value, **how: Any) -> Value:
    """A norm over the batch; sometimes its mean and variance are read as well."""
    shape = d.shape(x)
    if not how and d.chance(0.3):
        how = d.one_of(
            (dict(fix_gamma=True), dict(use_global_stats=True, fix_gamma=False), dict(eps=0.1, momentum=0.5))
        )
    how = dict(fix_gamma=False) | how
    axis = how.get("axis", 1)
    c = (shape[axis],)
    inputs = (
        d.variable(c, "gamma", "gamma"), d.variable(c, "small", "beta"),
        d.variable(c, "mean", "mean"), d.variable(c, "var", "var"),
    )  # fmt: skip
    if d.chance(0.05):
        made, mean, var = d.outputs("BatchNorm", x, *inputs, output_mean_var=True, **how)
        d.there += [mean, var]
        return made
    return d.call("BatchNorm", x, *inputs, **how)


def relu(d: Draft, x: Value) -> Value:
    if d.chance(0.2):
        return d.call("LeakyReLU", x, act_type="leaky", slope=0.1)
    return d.call("relu", x) if d.chance(0.3) else d.call("Activation", x, act_type="relu")


def activation(d: Draft, x: Value) -> Value:
    return d.call("Activation", x, act_type=d.one_of(ACTIVATIONS))


def pool(d: Draft, x: Value, kind: str | None = None) -> Value:
    """Pooling: halves, overlaps, the whole image."""
    kind = kind or d.one_of(("max", "max", "avg", "lp", "global"))
    if kind == "global":
        return d.call("Pooling", x, kernel=(1, 1), global_pool=True, pool_type=d.one_of(("avg", "max")))
    kernel, stride, pad = d.one_of(
        (
            ((2, 2), (2, 2), (0, 0)),
            ((3, 3), (2, 2), (1, 1)),
            ((3, 3), (1, 1), (1, 1)),
            ((2, 3), (2, 1), (0, 1)),
        )
    )
    _, _, h, w = d.shape(x)
    d.require(h + 2 * pad[0] >= kernel[0] and w + 2 * pad[1] >= kernel[1])
    more: dict[str, Any] = dict(p_value=2) if kind == "lp" else {}
    if kind == "avg" and d.chance(0.5):
        more["count_include_pad"] = False
    if d.chance(0.2):
        more["pooling_convention"] = "full"
    return d.call("Pooling", x, kernel=kernel, stride=stride, pad=pad, pool_type=kind, **more)


# -- motifs ---------------------------------------------------------------------------------


def convolution_motif(d: Draft) -> Value:
    x = d.pick(is_image)
    return convolution(d, x)


def deconvolution_motif(d: Draft) -> Value:
    return deconvolution(d, d.pick(is_image))


def normed_convolution(d: Draft) -> Value:
    """Convolution, norm, activation, and often a convolution that reads it."""
    x = convolution(d, d.pick(is_image))
    x = batch_norm(d, x)
    x = relu(d, x) if d.chance(0.8) else activation(d, x)
    if d.chance(0.6):
        x = convolution(d, x, kind=d.one_of(("same", "point", "strided")))
    return x


def residual(d: Draft) -> Value:
    """Two convolutions and a sum, with norms and rectifiers where one kind of block or the other has them."""
    x = d.pick(is_image)
    c = d.shape(x)[1]
    y = x
    if d.chance(0.5):  # before activation
        y = relu(d, batch_norm(d, y))
        y = convolution(d, y, filters=c, kind=d.one_of(("same", "point1")), no_bias=True)
        y = d.call("elemwise_add", y, x) if d.chance(0.6) else d.call("broadcast_add", x, y)
        return y
    y = convolution(d, y, filters=c, kind="same", no_bias=d.chance(0.8))
    y = relu(d, batch_norm(d, y))
    y = convolution(d, y, filters=c, kind="same", no_bias=True)
    y = batch_norm(d, y)
    if d.chance(0.3):
        return d.call("elemwise_add", relu(d, y), x)
    y = d.call("elemwise_add", y, x)
    return relu(d, y)


def pooled(d: Draft) -> Value:
    """A convolution, perhaps a norm, an activation, and max pooling."""
    x = convolution(d, d.pick(is_image), kind=d.one_of(("same", "same", "valid", "point", "strided")))
    if d.chance(0.3):
        x = batch_norm(d, x)
    if d.chance(0.7):
        x = activation(d, x)
    return pool(d, x, "max")


def stem(d: Draft) -> Value:
    """How a network for images begins: the batch itself, convolution, norm, rectifier, max pooling."""
    x = d.pick(is_image)
    d.require(x.name in d.data)
    x = convolution(d, x, kind=d.one_of(("same", "strided", "valid")), no_bias=True)
    x = d.call("Activation", batch_norm(d, x, fix_gamma=False), act_type="relu")
    x = pool(d, x, "max")
    return convolution(d, x, kind="same") if d.chance(0.7) else x


def dense_block(d: Draft) -> Value:
    """What DenseNet repeats: norm, rectifier, convolution, and both side by side."""
    x = d.pick(is_image)
    y = relu(d, batch_norm(d, x))
    y = convolution(d, y, kind="same", no_bias=True)
    return d.call("Concat", x, y, dim=1)


def excitation(d: Draft) -> Value:
    """Channels weighed by what two small layers make of their means."""
    x = d.pick(is_image)
    c = d.shape(x)[1]
    y = d.call("Pooling", x, kernel=(1, 1), global_pool=True, pool_type="avg")
    if d.chance(0.5):
        y = relu(d, convolution(d, y, kind="point1"))
        y = d.call("sigmoid", convolution(d, y, filters=c, kind="point1"))
    else:
        m = d.width()
        y = d.call("FullyConnected", y, d.variable((m, c), "weight"), num_hidden=m, no_bias=True)
        y = d.call("FullyConnected", relu(d, y), d.variable((c, m), "weight"), num_hidden=c, no_bias=True)
        y = d.call("reshape", d.call("sigmoid", y), shape=(0, 0, 1, 1))
    return d.call("broadcast_mul", x, y)


def between_layers(d: Draft) -> Value:
    """A broadcast operand of lower rank, or whose sizes coincide with others, between two convolutions."""
    x = convolution(d, d.pick(is_image), kind=d.one_of(("same", "point1")))
    if d.chance(0.3):
        x = batch_norm(d, x)
    n, c, h, w = d.shape(x)
    shapes = [(1, c, 1, 1), (c, 1, 1), (c, h, w), (h, w), (w,), (1, w), (h, 1), (1, 1, w), (n, 1, 1, 1),
              (n, c, 1, 1), (1, 1, h, w), (1,), (1, 1, 1, 1), (n, 1, h, w),
              (1, c, h, w), (n, c, h, w)]  # fmt: skip
    operand = d.variable(d.one_of(shapes), "factor", "s")
    op = d.one_of(("broadcast_mul", "broadcast_add", "broadcast_sub", "broadcast_maximum"))
    x = d.call(op, *((x, operand) if d.chance(0.7) else (operand, x)))
    last = d.one_of(("conv", "pool", "norm", "none"))
    if last == "conv":
        return convolution(d, x, kind=d.one_of(("same", "point1")))
    return pool(d, x, "max") if last == "pool" else batch_norm(d, x) if last == "norm" else x


def other_layers(d: Draft) -> Value:
    """Layers that follow a layout, or do not."""
    x = d.pick(is_image)
    _, c, h, w = d.shape(x)
    kind = d.one_of(
        ("lrn", "dropout", "channel dropout", "upsampling", "instance", "l2", "group", "pad", "crop", "prelu",
         "slice", "transpose", "resize", "flip", "space")
    )  # fmt: skip
    if kind == "lrn":
        return d.call("LRN", x, nsize=d.one_of((3, 5)))
    if kind == "dropout":
        return d.call("Dropout", x, p=0.3)
    if kind == "channel dropout":
        return d.call("Dropout", x, p=0.3, axes=(2, 3))
    if kind == "upsampling":
        d.require(h * w <= 100)
        return d.call("UpSampling", x, scale=2, sample_type="nearest")
    if kind == "instance":
        return d.call("InstanceNorm", x, d.variable((c,), "gamma"), d.variable((c,), "small"), eps=0.1)
    if kind == "l2":
        return d.call("L2Normalization", x, mode=d.one_of(("instance", "channel", "spatial")), eps=0.1)
    if kind == "group":
        groups = d.one_of([g for g in (1, 2, 4) if c % g == 0])
        return d.call(
            "GroupNorm", x, d.variable((c,), "gamma"), d.variable((c,), "small"), num_groups=groups, eps=0.1
        )
    if kind == "pad":
        return d.call("Pad", x, mode=d.one_of(("constant", "edge")), pad_width=(0, 0, 0, 0, 1, 1, 0, 2))
    if kind == "crop":
        d.require(h > 2 and w > 1)
        return d.call("slice", x, begin=(None, None, 1, None), end=(None, None, None, w - 1))
    if kind == "prelu":
        return d.call("LeakyReLU", x, d.variable((c,), "gamma"), act_type="prelu")
    if kind == "slice":
        d.require(c % 2 == 0)
        a, b = d.outputs("SliceChannel", x, num_outputs=2, axis=1)
        d.there.append(a)
        return d.call("elemwise_mul", d.call("sigmoid", a), b) if d.chance(0.5) else b
    if kind == "transpose":
        return d.call("transpose", x, axes=d.one_of(((0, 2, 3, 1), (0, 1, 3, 2), (1, 0, 2, 3))))
    if kind == "resize":
        d.require(h * w <= 100)
        return d.call("contrib.BilinearResize2D", x, height=h + 1, width=w + 2)
    if kind == "flip":
        return d.call("reverse", x, axis=d.one_of((1, 2, 3)))
    d.require(h % 2 == 0 and w % 2 == 0)
    return d.call("space_to_depth", x, block_size=2)


MOTIFS = (
    (convolution_motif, 2), (deconvolution_motif, 1), (normed_convolution, 4), (residual, 4), (pooled, 4),
    (stem, 5), (dense_block, 2), (excitation, 2), (between_layers, 4), (other_layers, 4),
)  # fmt: skip
