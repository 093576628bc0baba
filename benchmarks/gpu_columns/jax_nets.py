"""The networks of benchmarks/gpu.py as functions for JAX; imported only if JAX is installed.

A network is `net(v, x, dtype, again, **options) -> (logits, statistics)`. `v` maps names of our symbol to
weights and moving statistics, as `arranged` makes them; `dtype` is that of products (norms, sums over a batch
and the cell state of an LSTM are float32); with `again` only the input of each block is kept, and backward
recomputes the rest. Images are (N, H, W, C), filters (F, KH, KW, C).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Values = Mapping[str, Array]
Found = dict[str, Array]
Block = Callable[[Values, Array], tuple[Array, Found]]


def under(v: Values, prefix: str) -> Found:
    """Values whose names start with `prefix`, without the prefix."""
    return {n[len(prefix) :]: a for n, a in v.items() if n.startswith(prefix)}


def maybe(again: bool, block: Any) -> Any:
    return jax.checkpoint(block) if again else block


def through(v: Values, x: Array, again: bool, blocks: Sequence[tuple[str, Block]]) -> tuple[Array, Found]:
    """Apply named blocks one after the other, and collect their statistics."""
    found: Found = {}
    for name, block in blocks:
        x, own = maybe(again, block)(under(v, f"{name}_"), x)
        found |= {f"{name}_{n}": a for n, a in own.items()}
    return x, found


def dense(v: Values, name: str, x: Array) -> Array:
    return x @ v[f"{name}_weight"].astype(x.dtype).T + v[f"{name}_bias"].astype(x.dtype)


def convolution(v: Values, name: str, x: Array, stride: int = 1, pad: int | None = None) -> Array:
    """Convolution, by default padded so that stride 1 keeps the size."""
    weight = v[f"{name}_weight"].astype(x.dtype)
    p = weight.shape[1] // 2 if pad is None else pad
    out = lax.conv_general_dilated(
        x, weight, (stride, stride), ((p, p), (p, p)), dimension_numbers=("NHWC", "OHWI", "NHWC")
    )
    bias = v.get(f"{name}_bias")
    return out if bias is None else out + bias.astype(x.dtype)


def batch_norm(v: Values, name: str, x: Array, found: Found, eps: float = 1e-5) -> Array:
    """Batch norm in one pass over `x`, variance as E[x^2] - E[x]^2. Updates the moving statistics."""
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    var = jnp.maximum(jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean), 0)
    for n, a in (("mean", mean), ("var", var)):
        found[f"{name}_moving_{n}"] = 0.9 * v[f"{name}_moving_{n}"] + 0.1 * lax.stop_gradient(a)
    scale = lax.rsqrt(var + eps) * v.get(f"{name}_gamma", 1.0)
    return ((wide - mean) * scale + v[f"{name}_beta"]).astype(x.dtype)


def layer_norm(v: Values, name: str, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return (centred * scale * v[f"{name}_gamma"] + v[f"{name}_beta"]).astype(x.dtype)


def max_pool(x: Array, kernel: int, stride: int, pad: int = 0) -> Array:
    sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), sides)


# -- networks ----------------------------------------------------------------------------------


def resnet(
    v: Values,
    x: Array,
    dtype: Any,
    again: bool,
    stages: Sequence[int],
    width: int,
    classes: int,
    bottleneck: bool = False,
    small: bool = False,
) -> tuple[Array, Found]:
    """`mx.models.resnet` and `resnet_cifar`, version 1."""
    count, middle = (3, 2) if bottleneck else (2, 1)

    def block(stride: int) -> Block:
        def run(v: Values, x: Array) -> tuple[Array, Found]:
            found: Found = {}
            out = x
            for i in range(1, count + 1):
                out = convolution(v, f"conv{i}", out, stride if i == middle else 1)
                out = batch_norm(v, f"bn{i}", out, found)
                out = jax.nn.relu(out) if i < count else out
            if "skip_conv_weight" in v:
                x = batch_norm(v, "skip_bn", convolution(v, "skip_conv", x, stride), found)
            return jax.nn.relu(out + x), found

        return run

    first: Found = {}
    x = convolution(v, "stem_conv", x.astype(dtype), 1 if small else 2)
    x = jax.nn.relu(batch_norm(v, "stem_bn", x, first))
    x = x if small else max_pool(x, 3, 2, 1)
    blocks = [
        (f"stage{s}_block{i}", block(2 if s > 1 and i == 1 else 1))
        for s, n in enumerate(stages, 1) for i in range(1, n + 1)
    ]  # fmt: skip
    x, found = through(v, x, again, blocks)
    return dense(v, "fc", x.mean((1, 2))), first | found


def memonger(
    v: Values, x: Array, dtype: Any, again: bool, stages: Sequence[int], classes: int
) -> tuple[Array, Found]:
    """`mx.models.resnet(version="memonger")`. All blocks of a stage but the first are one `lax.scan`:
    XLA would need many minutes to compile a thousand unrolled layers."""

    def module(v: Values, name: str, x: Array, found: Found, stride: int = 1) -> Array:
        x = convolution(v, f"{name}_conv", x, stride)
        return jax.nn.leaky_relu(batch_norm(v, f"{name}_bn", x, found, 1e-3), 0.25)

    def block(stride: int) -> Block:
        def run(v: Values, x: Array) -> tuple[Array, Found]:
            found: Found = {}
            out = module(v, "b", module(v, "a", x, found), found, stride)
            out = module(v, "c", out, found)
            x = module(v, "skip", x, found, stride) if "skip_conv_weight" in v else x
            return x + out, found

        return run

    found: Found = {}
    x = max_pool(module(v, "stem", x.astype(dtype), found, 2), 3, 2)
    for s in range(1, len(stages) + 1):
        x, own = through(v, x, again, [(f"stage{s}_block1", block(1 if s == 1 else 2))])
        found |= own
        rest = under(v, f"stage{s}_rest_")
        if rest:
            same = maybe(again, block(1))
            x, own = lax.scan(lambda x, v, same=same: same(v, x), x, rest)
            found |= {f"stage{s}_rest_{n}": a for n, a in own.items()}
    return dense(v, "fc1", x.mean((1, 2))), found


def lenet(v: Values, x: Array, dtype: Any, again: bool, classes: int) -> tuple[Array, Found]:
    """`mx.models.lenet`."""

    def block(v: Values, x: Array) -> tuple[Array, Found]:
        bare = {f"conv_{n}": a for n, a in v.items()}
        return max_pool(jnp.tanh(convolution(bare, "conv", x, pad=0)), 2, 2), {}

    x, found = through(v, x.astype(dtype), again, [("conv1", block), ("conv2", block)])
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return dense(v, "fc2", jnp.tanh(dense(v, "fc1", x))), found


def mlp(v: Values, x: Array, dtype: Any, again: bool, widths: Sequence[int]) -> tuple[Array, Found]:
    """`mx.models.mlp`."""

    def block(v: Values, x: Array) -> tuple[Array, Found]:
        return jax.nn.relu(x @ v["weight"].astype(dtype).T + v["bias"].astype(dtype)), {}

    count = len(widths) - 1
    x, found = through(v, x.astype(dtype), again, [(f"fc{i}", block) for i in range(1, count)])
    return dense(v, f"fc{count}", x), found


def lstm(
    v: Values, x: Array, dtype: Any, again: bool, layers: int, hidden: int, vocabulary: int
) -> tuple[Array, Found]:
    """`mx.models.lstm` from zero initial states. (T, N) tokens -> (T * N, vocabulary). A block is a layer."""

    def block(v: Values, x: Array) -> tuple[Array, Found]:
        rows = dense(v, "ih", x) + v["hh_bias"].astype(dtype)
        weight = v["hh_weight"].astype(dtype).T

        def cell(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], Array]:
            h, c = state
            write, keep, new, show = jnp.split((row + h @ weight).astype(jnp.float32), 4, -1)
            c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
            h = (jax.nn.sigmoid(show) * jnp.tanh(c)).astype(dtype)
            return (h, c), h

        shape = (x.shape[1], hidden)
        return lax.scan(cell, (jnp.zeros(shape, dtype), jnp.zeros(shape, jnp.float32)), rows)[1], {}

    x = v["embed_weight"][x].astype(dtype)
    x, found = through(v, x, again, [(f"lstm{i}", block) for i in range(layers)])
    return dense(v, "score", x.reshape(-1, hidden)), found


def decoder(
    v: Values,
    x: Array,
    dtype: Any,
    again: bool,
    layers: int,
    width: int,
    heads: int,
    hidden: int,
    vocabulary: int,
    length: int,
) -> tuple[Array, Found]:
    """`mx.models.transformer_decoder` without dropout. (N, L) tokens -> (N * L, vocabulary)."""
    flash = dtype == jnp.bfloat16 and jax.default_backend() == "gpu"

    def block(v: Values, x: Array) -> tuple[Array, Found]:
        normal = layer_norm(v, "self_norm", x)
        split = (*x.shape[:2], heads, width // heads)
        parts = (dense(v, f"self_{p}", normal).reshape(split) for p in ("query", "key", "value"))
        out = jax.nn.dot_product_attention(*parts, is_causal=True, implementation="cudnn" if flash else "xla")
        x = x + dense(v, "self_out", out.reshape(x.shape))
        wide = jax.nn.gelu(dense(v, "ffn_in", layer_norm(v, "ffn_norm", x)), approximate=True)
        return x + dense(v, "ffn_out", wide), {}

    x = (v["embed_weight"][x] + v["position_weight"]).astype(dtype)
    x, found = through(v, x, again, [(f"layer{i}", block) for i in range(layers)])
    x = layer_norm(v, "norm", x).reshape(-1, width)
    return x @ v["embed_weight"].astype(dtype).T, found


NETS: dict[str, Any] = {
    "ResNet": resnet,
    "Memonger": memonger,
    "LeNet": lenet,
    "MLP": mlp,
    "LSTM": lstm,
    "Decoder": decoder,
}
"""Networks by the names of PyTorch's counterparts."""


def arranged(
    kind: str, options: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Our arrays in the layout of the functions above: filters with channels last, the LSTM's parameter
    vector split, memonger's blocks of a stage stacked and without the scales that stay 1."""
    v = {n: np.asarray(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a, order="C") for n, a in arrays.items()}
    if kind == "LSTM" and "lstm_parameters" in v:
        vector, hidden = v.pop("lstm_parameters"), options["hidden"]
        shapes = {"weight": (4 * hidden, hidden), "bias": (4 * hidden,)}
        at = 0
        for part, shape in shapes.items():  # all weights, then all biases
            for layer in range(options["layers"]):
                for source in ("ih", "hh"):
                    size = int(np.prod(shape))
                    v[f"lstm{layer}_{source}_{part}"] = vector[at : at + size].reshape(shape)
                    at += size
        assert at == vector.size, (at, vector.size)
    if kind == "Memonger":
        v = {n: a for n, a in v.items() if not n.endswith("_gamma")}
        for s, count in enumerate(options["stages"], 1):
            names = [n.removeprefix(f"stage{s}_block2_") for n in v if n.startswith(f"stage{s}_block2_")]
            for n in names:
                parts = [v.pop(f"stage{s}_block{i}_{n}") for i in range(2, count + 1)]
                v[f"stage{s}_rest_{n}"] = np.stack(parts)
    return v
