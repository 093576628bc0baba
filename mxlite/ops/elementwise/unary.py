"""Functions of each element of one array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.record import record
from ..blocks import copy, require_finite
from .activation import FORMULAS
from .elementwise import Elementwise


class Unary(Elementwise):
    """Base: one array to another of its shape and dtype."""

    abstract = True
    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True

    @classmethod
    def called(cls, xp, a, data, *, out):
        getattr(xp, cls.function)(data, out=out)


class Real(Unary):
    """Base: a function of real numbers; the dtype must be floating."""

    abstract = True
    accepts = "float"


class reciprocal(Real):
    """``out = 1 / data``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * out**2``: `data` is not read.
    """

    backward_reads = ("d_out", "out")
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def compute(w, a, data):
        return {"out": 1 / data}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": -(heads["out"] * arrays["out"] * arrays["out"])}


class square(Unary):
    """``out = data**2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``2 * d_out * data``.
    """

    accepts = "number"
    backward_reads = ("d_out", "data")

    @staticmethod
    def compute(w, a, data):
        return {"out": data * data}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] * arrays["data"] * 2}


class abs(Unary):
    """Absolute value.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sign(data)``, 0 at 0.
    """

    function = "absolute"
    backward_reads = ("d_out", "data")


class negative(Unary):
    """``out = -data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    accepts = "number"
    aliases = ("_np_negative",)
    function = "negative"
    backward_reads = ("d_out",)


class sign(Unary):
    """-1, 0 or 1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"
    function = "sign"


class _Rounded(Unary):
    """Base: a whole number near each element; whole numbers stay as they are."""

    abstract = True

    @classmethod
    def called(cls, xp, a, data, *, out):
        getattr(xp, cls.function)(data, out=out, casting="unsafe")


class floor(_Rounded):
    """The largest whole number not above each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    function = "floor"


class ceil(_Rounded):
    """The smallest whole number not below each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    function = "ceil"


class trunc(_Rounded):
    """The whole part: the nearest whole number towards 0.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    function = "trunc"


class fix(_Rounded):
    """The nearest whole number towards 0, as `trunc`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    function = "trunc"


class round(Unary):
    """The nearest whole number, halves away from zero: 0.5 gives 1, -0.5 gives -1, 2.5 gives 3.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"

    @staticmethod
    def compute(w, a, data):
        # What is cut off is exact, unlike data + 0.5. An infinite number is whole, where inf - inf is nan.
        whole = w("trunc", data)
        return {"out": w("select", w("ge", w("abs", data - whole), 0.5), whole + w("sign", data), whole)}


class rint(Unary):
    """The nearest whole number, halves down: 0.5 gives 0, 1.5 gives 1, -0.5 gives -1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"

    @staticmethod
    def compute(w, a, data):
        # Near 0 one of the distances is rounded to 0.5, never both.
        below, above = w("floor", data), w("ceil", data)
        return {"out": w("select", w("le", data - below, above - data), below, above)}


class Copy(Unary):
    """The same array: ``out = data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient of `data` *is* that of `out`.
    """

    op_name = "_copy"
    aliases = ("identity", "_copyto")
    gradient_is = {"data": "d_out"}
    flops_per_output = 0

    @staticmethod
    def compute(w, a, data):
        return {"out": data}

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)


class zeros_like(Unary):
    """Zeros in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    shape_only = ("data",)

    @staticmethod
    def compute(w, a, data):
        return {"out": w.number(0.0)}

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(0)


class ones_like(Unary):
    """Ones in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    shape_only = ("data",)

    @staticmethod
    def compute(w, a, data):
        return {"out": w.number(1.0)}

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(1)


def _bound_in(dtype, value):
    """`value` as a number of `dtype`: for whole numbers cut, and clipped to the type's range."""
    if dtype.kind not in "iu":
        return dtype.type(value)
    limits = np.iinfo(dtype)
    return dtype.type(
        limits.min if value <= limits.min else limits.max if value >= limits.max else int(value)
    )


class clip(Unary):
    """Each element moved into [`a_min`, `a_max`].

    data: (...)  ->  out: (...), same shape and dtype. The gradient is `d_out` where
    ``a_min <= data <= a_max`` or data is nan, 0 elsewhere.
    """

    backward_reads = ("d_out", "data")

    @record
    class Attrs:
        a_min: float
        a_max: float

    @classmethod
    def infer_type(cls, a, *dtypes):
        for name, bound in (("a_min", a.a_min), ("a_max", a.a_max)):
            if bound != bound:  # nan; infinity is an ordinary bound
                require_finite(bound, dtypes[0], name)
        return super().infer_type(a, *dtypes)

    @staticmethod
    def compute(w, a, data):
        return {"out": w("min", w("max", data, w.constant(a.a_min)), w.constant(a.a_max))}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.maximum(data, _bound_in(data.dtype, a.a_min), out=out)
        xp.minimum(out, _bound_in(data.dtype, a.a_max), out=out)

    @staticmethod
    def slope(w, a, x):
        return w.zero_where("lt", x, w.constant(a.a_min)) * w.zero_where("gt", x, w.constant(a.a_max))


class softsign(Real):
    """``out = data / (1 + |data|)``, between -1 and 1.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (1 - |out|)**2``.
    """

    backward_reads = ("d_out", "out")

    @staticmethod
    def compute(w, a, data):
        return {"out": FORMULAS["softsign"].function(w, data)}

    @staticmethod
    def slope(w, a, y):
        return FORMULAS["softsign"].slope(w, y)


class hard_sigmoid(Real):
    """``out = max(0, min(1, alpha * data + beta))``: a sigmoid of three straight lines.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * alpha`` where
    ``0 < out < 1`` or out is nan, else 0: `data` is not read.
    """

    backward_reads = ("d_out", "out")

    @record
    class Attrs:
        alpha: float = 0.2
        beta: float = 0.5

    @staticmethod
    def compute(w, a, data):
        return {"out": w("min", w("max", data * w.constant(a.alpha) + w.constant(a.beta), 0.0), 1.0)}

    @staticmethod
    def slope(w, a, y):
        return w.zero_where("le", y, 0.0) * w.zero_where("ge", y, 1.0) * w.constant(a.alpha)


class _contrib_quadratic(Unary):
    """``out = a * data**2 + b * data + c``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (2 * a * data + b)``.
    """

    accepts = "number"
    backward_reads = ("d_out", "data")

    @record
    class Attrs:
        a: float = 0.0
        b: float = 0.0
        c: float = 0.0

    @staticmethod
    def compute(w, a: Any, data):
        return {"out": (data * w.constant(a.a) + w.constant(a.b)) * data + w.constant(a.c)}

    @staticmethod
    def slope(w, a, x):
        return x * w.constant(2 * a.a) + w.constant(a.b)
