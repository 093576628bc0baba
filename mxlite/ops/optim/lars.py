"""LARS: a learning rate for each layer, from the norms of its weight and of its gradient.

Y. You, I. Gitman, B. Ginsburg, 2017, "Large batch training of convolutional networks". Sums of squares of
many arrays in one call, the rates of all layers in another; then `preloaded_multi_sgd_update` and its kin.
"""

from __future__ import annotations

import numpy as np

from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..elementwise.elementwise import Elementwise
from ..elementwise.finite import checked_types, counted_names

CHUNK = 16384  # elements that are squared at a time


class multi_sum_sq(Op):
    """The sum of squares of each array.

    args: `num_arrays` arrays (...) of floating types  ->  out: (num_arrays,) float32. Summed in float64.
    """

    variadic = "args"
    recomputable = False

    @record
    class Attrs:
        num_arrays: int = 0
        num_args: int = 0

        def __post_init__(self) -> None:
            if not (self.num_args or self.num_arrays) > 0:
                raise OpAttributeError(f"num_arrays must be above 0, got {self.num_arrays}.")

    input_names = classmethod(counted_names)

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, ((len(shapes),),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        checked_types(cls.op_name, dtypes)
        return dtypes, (float32,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * CHUNK

    @staticmethod
    def forward(xp, a, *args, out, work):
        wide = work[: 8 * CHUNK].view(np.float64)
        for i, x in enumerate(args):
            flat, total = x.reshape(-1), 0.0
            for begin in range(0, flat.size, CHUNK):
                part = flat[begin : begin + CHUNK]
                here = wide[: part.size]
                xp.copyto(here, part)
                total += float(xp.dot(here, here))
            out[i] = total


class multi_lars(Elementwise):
    """The learning rate of every layer, ``out = lrs * eta*|w| / (rescale_grad*|g| + wds*|w| + eps)``.

    lrs, weights_sum_sq, grads_sum_sq, wds: (N,)  ->  out: (N,). |w| and |g| are the roots of the sums of
    squares; if one of them is 0, the rate stays as it is.
    """

    inputs = ("lrs", "weights_sum_sq", "grads_sum_sq", "wds")
    accepts = "float"
    same_shape = True
    recomputable = False

    @record
    class Attrs:
        eta: float
        eps: float
        rescale_grad: float = 1.0

    @staticmethod
    def infer_shape(a, *shapes):
        known = next((s for s in shapes if s is not None), None)
        if known is not None and (len(known) != 1 or any(s not in (None, known) for s in shapes)):
            raise ShapeError(f"lrs, both sums and wds must be (N,), got {shapes}.")
        return (known,) * 4, (known,)

    @staticmethod
    def compute(w, a, lrs, weights_sum_sq, grads_sum_sq, wds):
        weight = w("sqrt", weights_sum_sq)
        below = w("sqrt", grads_sum_sq) * w.constant(a.rescale_grad) + weight * wds + w.constant(a.eps)
        factor = weight * w.constant(a.eta) / below
        factor = w("select", w("gt", grads_sum_sq, 0.0), factor, 1.0)
        return {"out": lrs * w("select", w("gt", weights_sum_sq, 0.0), factor, 1.0)}
