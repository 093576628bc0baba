"""Random numbers, drawn anew in each step by mxlite's own streams: equal in distribution, not in bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building.value import GraphValue
from ..dtypes import numpy_type
from ..node import OnnxNode


def _drawn(operator: str, **names: str) -> Callable[[OnnxNode], GraphValue]:
    """`names`: of the operator's numbers, those of ONNX's attributes, with a default each in `_DEFAULTS`."""

    def convert(n: OnnxNode) -> GraphValue:
        n.ignore("seed")
        like = n[0] if n.op.endswith("Like") else None
        shape = n.wholes("shape") if like is None else like.shape
        dtype = (
            numpy_type(n.whole("dtype", 1), "the result") if like is None or n.has("dtype") else like.dtype
        )
        given = {ours: n.real(theirs, _DEFAULTS[theirs]) for ours, theirs in names.items()}
        return n.builder.reshape(n.builder.op(operator, shape=shape, dtype=str(dtype), **given), shape)

    return convert


def bernoulli(n: OnnxNode) -> GraphValue:
    """1 with the probability that the input says, else 0."""
    n.ignore("seed")
    drawn: GraphValue = n.builder.op("bernoulli", n[0])
    return n.builder.cast(drawn, numpy_type(n.whole("dtype"), "the result") if n.has("dtype") else n[0].dtype)


_DEFAULTS = {"low": 0.0, "high": 1.0, "mean": 0.0, "scale": 1.0}
_uniform = _drawn("_random_uniform", low="low", high="high")
_normal = _drawn("_random_normal", loc="mean", scale="scale")

CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), _uniform),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), _normal),
    "Bernoulli": bernoulli,
}
