"""First values of a network's parameters and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import mxlite as mx

MOMENTUM = 0.9
Shape = tuple[int, ...]


def first_values(
    net: Any,
    known: Mapping[str, Shape],
    rng: np.random.Generator | None = None,
    last: str | tuple[str, ...] = "_last_gamma",
) -> dict[str, np.ndarray]:
    """Initial arrays by name, prefixed with `arg:` or `aux:`, of all but the `known` inputs.

    Weights come from mxlite's initializers. Biases, scales and statistics, which these would set to 0 and
    1, are random as well, so that misplaced values are detected. The last scale of a residual branch, whose
    name ends with `last`, is small: without batch statistics (inference) values would double from block to
    block, and after 1001 layers rounding differences would be large.
    """
    mx.random.seed(1)
    rng = rng or np.random.default_rng(1)
    shapes, _, states = net.infer_shape(**known)
    attrs = net.attr_dict()
    xavier = mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
    arrays = {}
    for name, shape in zip(net.list_arguments(), shapes):
        if name in known:
            continue
        if attrs.get(name.removesuffix("_gamma"), {}).get("fix_gamma") == "True":
            value = np.ones(shape)  # its effective value, for frameworks without that switch
        elif name.endswith("gamma"):
            low, high = (0.1, 0.3) if name.endswith(last) else (0.8, 1.2)
            value = rng.uniform(low, high, shape)
        elif name.endswith(("beta", "bias")):
            value = rng.normal(0, 0.05, shape)
        elif name.endswith("parameters"):
            value = rng.uniform(-0.05, 0.05, shape)
        elif name.endswith(("embed_weight", "position")):
            value = rng.normal(0, 0.1, shape)
        else:
            array = mx.nd.zeros(shape)
            xavier(mx.init.InitDesc(name, attrs.get(name, {})), array)
            value = array.asnumpy()
        arrays[f"arg:{name}"] = value.astype(np.float32)
    for name, shape in zip(net.list_auxiliary_states(), states):
        value = rng.uniform(0.8, 1.2, shape) if name.endswith("var") else rng.normal(0, 0.1, shape)
        arrays[f"aux:{name}"] = value.astype(np.float32)
    return arrays
