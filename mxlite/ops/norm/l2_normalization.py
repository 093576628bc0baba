"""L2Normalization."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import require_rank, Shapes
from ..declared import Declared
from .layer_norm import require_eps
from .normalize import Rule, TensorNorm


class L2Normalization(Declared):
    """Divide by the Euclidean norm, ``out = data / sqrt(sum(data^2) + eps)``.

    data: (N, ...); (N, C, ...) for the last two modes  ->  out: as data. The sum goes over

        instance   all but axis 0
        channel    axis 1
        spatial    all but axes 0 and 1
    """

    inputs = ("data",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": ("d_out", "data")}
    cheap = True
    flops_per_input = 3
    backward_reads = ("d_out", "data")

    @record
    class Attrs:
        eps: float = 1e-10
        mode: Literal["channel", "instance", "spatial"] = "instance"

        def __post_init__(self) -> None:
            require_eps(self.eps)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 1 if a.mode == "instance" else 3, f"data in mode {a.mode!r}")
        return (data,), (data,)

    @staticmethod
    def compute(t: Any, a: Any, data: Any) -> Mapping[str, Any]:
        return {"out": TensorNorm(t, _rule(a, data.shape), data).out}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return TensorNorm(t, _rule(a, arrays["data"].shape), arrays["data"]).gradients(heads)


def _rule(a: Any, shape: Shape) -> Rule:
    n, *rest = shape
    if a.mode == "instance":
        view = (n, 1, 1, prod(rest), 1)
    elif a.mode == "channel":
        view = (n, 1, rest[0], 1, prod(rest[1:]))
    else:
        view = (n, rest[0], 1, prod(rest[1:]), 1)
    return Rule(view, a.eps, centre=False, average=False)
