"""Gradients of pooling as separate operators, so that they have gradients themselves."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from ...core.errors import OpAttributeError
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from .pool import Pooling
from .pool_kernels import backward_bytes, choose, forward_bytes, index_type, windows


class PoolingDataGradient(Op):
    """Gradient of sum or mean pooling in its data: each window's number goes to its elements.

    grad: (N, C, OH, OW);  like: (N, C, H, W), whose shape counts  ->  out: as `like`.
    """

    op_name = "_pooling_d_data"
    inputs = ("grad", "like")
    shape_only = ("like",)
    accepts = "float"
    Attrs = Pooling.Attrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        if a.pool_type not in ("avg", "sum"):
            raise OpAttributeError(f"pool_type must be 'avg' or 'sum' here, got {a.pool_type!r}.")
        like = shapes[1]
        return (_pooled(a, like), like), (like,)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(windows(a, outputs[0]), dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return forward_bytes(windows(a, outputs[0]), dtype)

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> None:
        Pooling.backward(xp, a, grad, None, None, None, d_data=out, work=work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_grad: Any, work: Any) -> None:
        Pooling.forward(xp, a, d_out, out=d_grad, work=work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"grad": w.Pooling(heads["out"], **asdict(a))}


class MaxPoolingDataGradient(Op):
    """Gradient of max pooling in its data: each window's number goes to the element that `index` selects.

    grad: (N, C, OH, OW);  like: (N, C, H, W), whose shape counts;  index: as `grad`  ->  out: as `like`.
    """

    op_name = "_max_pooling_d_data"
    inputs = ("grad", "like", "index")
    shape_only = ("like",)
    Attrs = Pooling.Attrs

    workspace = PoolingDataGradient.workspace
    backward_workspace = PoolingDataGradient.backward_workspace

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        like, grad = shapes[1], _pooled(a, shapes[1])
        return (grad, like, grad), (like,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        dtype = dtypes[0] if dtypes[0] is not None else dtypes[1]
        require_kind(Pooling, dtype)
        return (dtype, dtype, index_type(a)), (dtype,)

    @staticmethod
    def forward(xp: Any, a: Any, grad: Any, like: Any, index: Any, *, out: Any, work: Any) -> None:
        Pooling.backward(xp, a, grad, None, None, index, d_data=out, work=work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, index: Any, *, d_grad: Any, work: Any) -> None:
        ChosenPooling.forward(xp, a, d_out, index, out=d_grad, work=work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"grad": w._chosen_pooling(heads["out"], ins["index"], **asdict(a))}


class ChosenPooling(Op):
    """The element that `index` selects in each window; 0 if it selects none.

    data: (N, C, H, W);  index: (N, C, OH, OW)  ->  out: (N, C, OH, OW).
    """

    op_name = "_chosen_pooling"
    inputs = ("data", "index")
    Attrs = Pooling.Attrs
    of: ClassVar[type[Pooling]] = Pooling

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.of.workspace(a, inputs, outputs, dtype)

    backward_workspace = Pooling.backward_workspace

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        out = cls.of.infer_shape(a, shapes[0])[1][0]
        return (shapes[0], out), (out,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        require_kind(Pooling, dtypes[0])
        return (dtypes[0], index_type(a)), (dtypes[0],)

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, index: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            choose(xp, windows(a, data.shape, cls.of.last), data, index, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, index: Any, *, d_data: Any, work: Any) -> None:
        if d_data is not None:
            Pooling.backward(xp, a, d_out, None, None, index, d_data=d_data, work=work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._max_pooling_d_data(heads["out"], ins["data"], ins["index"], **asdict(a))}


def _pooled(a: Any, data: Shape) -> Shape:
    """The shape of the result of pooling `data`."""
    out: Shape = Pooling.infer_shape(a, data)[1][0]
    return out
