"""Random and well-known networks for tests of binding, planning and training."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx


def random_network(seed: int, blocks: int = 6) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """A random convolutional net with residuals, batch norm, dropout, pooling, concatenation; and its
    shapes.
    """
    rng = np.random.default_rng(seed)
    data = mx.sym.Variable("data")
    h = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="stem")
    size = 8
    for b in range(blocks):
        kind = rng.integers(0, 7)
        name = f"b{b}"
        if kind == 0:
            r = mx.sym.BatchNorm(h, fix_gamma=bool(rng.integers(2)), name=f"{name}_bn")
            r = mx.sym.Activation(
                r, act_type=str(rng.choice(["relu", "tanh", "sigmoid"])), name=f"{name}_act"
            )
            r = mx.sym.Convolution(
                r, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True, name=f"{name}_conv"
            )
            h = h + r
        elif kind == 1:
            h = mx.sym.Dropout(h, p=0.3, name=f"{name}_drop")
        elif kind == 2:
            a = mx.sym.Convolution(h, kernel=(1, 1), num_filter=4, name=f"{name}_a")
            c = mx.sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=4, name=f"{name}_c")
            h = mx.sym.Concat(a, mx.sym.LeakyReLU(c, name=f"{name}_leaky"), name=f"{name}_cat")
        elif kind == 3 and size > 2:
            h = mx.sym.Pooling(
                h,
                kernel=(2, 2),
                stride=(2, 2),
                pool_type=str(rng.choice(["max", "avg"])),
                name=f"{name}_pool",
            )
            size //= 2
        elif kind == 4:
            h = mx.sym.square(mx.sym.tanh(h), name=f"{name}_sq") * 0.1 + h
        elif kind == 5:
            parts = mx.sym.SliceChannel(h, num_outputs=2, name=f"{name}_split")
            h = mx.sym.Concat(parts[1], mx.sym.tanh(parts[0]), name=f"{name}_join")
        else:
            h = mx.sym.broadcast_mul(h, mx.sym.Activation(
                mx.sym.Pooling(h, global_pool=True, kernel=(1, 1), pool_type="avg", name=f"{name}_gap"),
                act_type="sigmoid", name=f"{name}_gate"), name=f"{name}_scaled")  # fmt: skip
    h = mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(h, name="softmax"), dict(data=(4, 3, 8, 8), softmax_label=(4,))


def fill(executor: Any, seed: int = 0) -> None:
    """The same values for every executor of one symbol."""
    rng = np.random.default_rng(seed)
    for name, array in executor.arg_dict.items():
        if name == "softmax_label":
            array[:] = rng.integers(0, 5, array.shape).astype("float32")
        else:
            array[:] = rng.standard_normal(array.shape).astype("float32") * 0.3
    for name, array in executor.aux_dict.items():
        array[:] = 1.0 if name.endswith("var") else 0.0


def fill_by_kind(executor: Any, small: float, seed: int = 0) -> None:
    """As `fill`, each array as wide as training has it: `small` for norms' factors and biases, variances
    from 1, weights by what they read.
    """
    rng = np.random.default_rng(seed)
    for name, x in {**executor.arg_dict, **executor.aux_dict}.items():
        values = rng.standard_normal(x.shape) * (small if name.endswith(("gamma", "beta", "bias")) else 1)
        if name.endswith(("gamma", "var")):
            values = 1 + np.abs(values)
        elif name.endswith("weight"):
            values /= np.sqrt(np.prod(x.shape[1:]) / 2)
        elif name.endswith("label"):
            values = rng.integers(0, 5, x.shape)
        x[:] = values


def weights(module: Any) -> dict[str, np.ndarray]:
    """Arguments and auxiliary states of a module, by name."""
    args, aux = module.get_params()
    return {k: v.asnumpy() for k, v in {**args, **aux}.items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two such hold the same numbers."""
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def mlp(hidden: int = 16, classes: int = 5) -> Any:
    h = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc1")
    h = mx.sym.Activation(h, act_type="relu", name="relu1")
    h = mx.sym.FullyConnected(h, num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(h, name="softmax")
