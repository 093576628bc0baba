"""Functions that declare another gradient than their own.

Straight-through estimators: Y. Bengio, N. Léonard, A. Courville, 2013, "Estimating or propagating gradients
through stochastic neurons for conditional computation". A gradient reversed: Y. Ganin, V. Lempitsky, 2015,
"Unsupervised domain adaptation by backpropagation".
"""

from __future__ import annotations

from ...core.record import record
from .elementwise import Elementwise
from .unary import round, sign


class round_ste(round):
    """The nearest whole number, halves away from zero, with the gradient of identity.

    data: (...)  ->  out: (...), same shape and dtype. The gradient of `data` *is* that of `out`.
    """

    op_name = "_contrib_round_ste"
    gradient_is = {"data": "d_out"}


class sign_ste(sign):
    """-1, 0 or 1, with the gradient of identity.

    data: (...)  ->  out: (...), same shape and dtype. The gradient of `data` *is* that of `out`.
    """

    op_name = "_contrib_sign_ste"
    gradient_is = {"data": "d_out"}


class gradientmultiplier(Elementwise):
    """Identity whose gradient is multiplied, ``d_data = scalar * d_out``; -1 reverses it.

    data: (...)  ->  out: (...), same shape and dtype.
    """

    op_name = "_contrib_gradientmultiplier"
    inputs = ("data",)
    accepts = "float"
    same_shape = True
    in_place = {"out": "data"}
    backward_reads = ("d_out",)
    backward_in_place = {"d_data": "d_out"}
    flops_per_output = 0

    @record
    class Attrs:
        scalar: float = 1.0
        is_int: bool = True

    @staticmethod
    def compute(w, a, data):
        return {"out": data}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] * w.constant(a.scalar)}
