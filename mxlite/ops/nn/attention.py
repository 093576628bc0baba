"""Scaled dot-product attention in memory linear in the sequence length."""

from __future__ import annotations

from typing import Any

from ...core.dtype import as_dtype, is_floating
from ...core.errors import DTypeError, OpAttributeError, ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes, Types
from ..scratch import accumulator
from .attention_kernels import attend, attend_gradient, AttentionArrays, AttentionGradients, AttentionPlan

_BOOL = as_dtype("bool")
_INT = as_dtype("int32")


class scaled_dot_product_attention(Op):
    """Attention, ``out = softmax(query @ key.T * scale + mask) @ value``, softmax over the keys.

    query: (B, H, L, E);  key: (B, G, S, E);  value: (B, G, S, V);  mask: broadcast to (B, H, L, S);  length:
    (B,)  ->  out: (B, H, L, V), where G divides H: query head h reads key head h // (H / G), as in
    grouped-query attention.

    `scale` is 1 / sqrt(E) unless given. A key takes part where

        causal       its position is at most the query's, both counted from 0
        use_mask     the mask is True, if it is bool; a floating mask is added
        use_length   its position is below `length` of the sample: padding

    A query for which no key takes part gives 0, and gradients 0 (PyTorch: nan for additive masks). With `p`
    each weight is dropped with that probability in training, the others are multiplied by 1 / (1 - p);
    backward draws the same numbers. A floating mask has a gradient.

    Neither the (L, S) scores nor the weights ever exist as a whole: blocks of queries meet blocks of keys (M.
    Milakov, N. Gimelshein, 2018, "Online normalizer calculation for softmax"; T. Dao et al., 2022,
    "FlashAttention"). Kept for backward are the inputs, `out`, and for each query the logarithm of its
    softmax's denominator; backward recomputes the blocks.
    """

    inputs = ("query", "key", "value", "mask", "length")
    outputs = ("out", "log_sum")
    hidden = 1
    inferred = ("length",)
    random = True
    optional = {"mask": "use_mask", "length": "use_length"}

    @record
    class Attrs:
        causal: bool = False
        scale: float | None = None
        p: float = 0.0
        use_mask: bool = False
        use_length: bool = False

        def __post_init__(self) -> None:
            if not 0 <= self.p < 1:
                raise OpAttributeError(f"p must be in [0, 1), got {self.p}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        query, key, value, *more = shapes
        for name, shape in (("query", query), ("key", key), ("value", value)):
            if len(shape) != 4:
                raise ShapeError(f"{name} must be (batch, heads, positions, width), got {shape}.")
        b, h, n, e = query
        g, s = key[1:3]
        if key[0] != b or key[3] != e:
            raise ShapeError(f"key must be ({b}, heads, positions, {e}) for query {query}, got {key}.")
        if value[:3] != key[:3]:
            raise ShapeError(f"value must be ({b}, {g}, {s}, width) for key {key}, got {value}.")
        if h and (not g or h % g):
            raise ShapeError(f"the {g} heads of key must divide the {h} heads of query.")
        names: dict[str, Shape] = {}
        if a.use_mask:
            mask = more.pop(0)
            assert mask is not None
            full = (b, h, n, s)
            ends = zip(mask[::-1], full[::-1])
            if len(mask) > 4 or any(i not in (1, j) for i, j in ends):
                raise ShapeError(f"mask must broadcast to {full}, got {mask}.")
            names["mask"] = mask
        if a.use_length:
            names["length"] = (b,)
            if more[0] is not None and -1 not in more[0] and more[0] != (b,):
                raise ShapeError(f"length must be ({b},), one for each sample, got {more[0]}.")
        return (query, key, value, *names.values()), ((b, h, n, value[3]), (b, h, n))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        known = [d for d in dtypes[:3] if d is not None]
        if any(d != known[0] for d in known):
            raise DTypeError(f"query, key and value must have one dtype, got {[str(d) for d in dtypes[:3]]}.")
        if not known:
            return dtypes, (None, None)
        if not is_floating(known[0]):
            raise DTypeError(f"query must be of a floating type, got {known[0]}.")
        more = list(dtypes[3:])
        types: list[DType] = [known[0]] * 3
        if a.use_mask:
            mask = more.pop(0) or known[0]
            if mask not in (_BOOL, known[0]):
                raise DTypeError(f"mask must be bool or {known[0]} as query, got {mask}.")
            types.append(mask)
        if a.use_length:
            length = more.pop(0) or _INT
            if length == _BOOL:
                raise DTypeError("length must be of numbers, got bool.")
            types.append(length)
        return tuple(types), (known[0], accumulator(known[0]))

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        b, h, n, e = inputs[0]
        s, v = inputs[2][2:]
        return 2 * b * h * n * s * (e + v + 3) // (2 if a.causal else 1)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        b, h, n, e = inputs[0]
        s, v = inputs[2][2:]
        return 2 * b * h * n * s * (3 * e + 2 * v + 4) // (2 if a.causal else 1)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return AttentionPlan.of(a, inputs).nbytes(dtype, backward=False)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return AttentionPlan.of(a, inputs).nbytes(dtype, backward=True)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, x: AttentionArrays, *, out: Any, log_sum: Any, work: Any, rng: Any, train: bool
    ) -> None:
        plan = AttentionPlan.of(a, (x.query.shape, x.key.shape, x.value.shape))
        attend(xp, plan, x, out, log_sum, work, rng, a.p if train else 0.0)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        d_out: Any,
        x: AttentionArrays,
        out: Any,
        log_sum: Any,
        *,
        made: AttentionGradients,
        work: Any,
        rng: Any,
        train: bool,
    ) -> None:
        plan = AttentionPlan.of(a, (x.query.shape, x.key.shape, x.value.shape))
        attend_gradient(xp, plan, d_out, x, out, log_sum, made, work, rng, a.p if train else 0.0)
