"""SVMOutput."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import require_rank, Shapes
from ..declared import Declared
from .loss import label_types


class SVMOutput(Declared):
    """Identity whose gradient is that of a hinge loss, one class against all others.

    data: (..., K);  label: (...), class numbers  ->  out: as data. With m = `margin` and r =
    `regularization_coefficient`, the gradient is

                           the label's class              any other class
        squared hinge      -2 r max(0, m - x)             2 r max(0, m + x)
        `use_linear`       -r where x < m                 r where x > -m

    Head gradients are ignored. The row of a label that is no class has the gradient 0.
    Y. Tang, 2013, "Deep learning using linear support vector machines".
    """

    inputs = ("data", "label")
    inferred = ("label",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "out"}
    is_loss = True
    backward_reads = ("out", "label")

    @record
    class Attrs:
        margin: float = 1.0
        regularization_coefficient: float = 1.0
        use_linear: bool = False

    @classmethod
    def class_numbers(cls, a: Any, inputs: Shapes) -> dict[str, tuple[int, float | None]]:
        return {"label": (inputs[0][-1], None)}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes
        assert data is not None
        require_rank(data, 2, "data")
        if label is not None and label != data[:-1] and -1 not in label:
            raise ShapeError(f"label must be {data[:-1]} for data {data}, got {label}.")
        return (data, data[:-1]), (data,)

    infer_type = classmethod(label_types)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 3 * prod(inputs[0])

    @staticmethod
    def compute(t: Any, a: Any, data: Any, label: Any) -> Mapping[str, Any]:
        return {"out": data}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        shape, r, m = arrays["out"].shape, a.regularization_coefficient, a.margin
        x = t.view(arrays["out"], (prod(shape[:-1]), shape[-1]))
        number = t.trunc(t.view(arrays["label"], (x.shape[0], 1)))
        if a.use_linear:
            own = t.where("lt", x, t.constant(m), t.constant(-r), 0.0)
            other = t.where("gt", x, t.constant(-m), t.constant(r), 0.0)
        else:
            own = t("max", t.constant(m) - x, 0.0) * t.constant(-2 * r)
            other = t("max", x + t.constant(m), 0.0) * t.constant(2 * r)
        made = t.where("eq", t.index(x, 1), number, own, other)
        known = t.where("ge", number, 0.0, t.one_where("lt", number, float(shape[-1])), 0.0)
        return {"d_data": t.where("ne", known, 0.0, made, 0.0)}
