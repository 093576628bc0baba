"""Operators as expressions: the computation of one element for each.

`RULES[op]` is a function (w, attributes, **values of the inputs by name) that writes steps with Writer `w`
and gives the value of the output, or a dict of values by output name; None where these attributes have no
expression. The rule of a gradient operator follows its forward one. Formulas are those of the reference
kernels; a number from the attributes is `w.constant`, so that the code does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...graph.gradient import GradAdd, OnesLike
from ...graph.ir import Shape
from ...graph.opdef import DType, Op
from ...ops import find_op, TABLE
from ...ops.elementwise.leaky import slopes_shape
from ...ops.elementwise.scalar import log_of
from ...te.expression import ExpressionValue, Writer

Rule = Callable[..., "ExpressionValue | Mapping[str, ExpressionValue] | None"]

RULES: dict[type[Op], Rule] = {}


def write(
    w: Any, op: type[Op], attrs: Any, inputs: Mapping[str, Any], dtype: DType
) -> Mapping[str, Any] | None:
    """Write one call of `op` with a Writer or a Computation: values by output name, for possible outputs;
    None: no rule.

    `dtype` is that of the forward call's first input. Inputs of which only the shape matters are left out.
    """
    rule = RULES.get(op)
    if rule is None:
        return None
    w.dtype = dtype
    made = rule(w, attrs, **inputs)
    if made is None or isinstance(made, Mapping):
        return made
    return {op.output_names(attrs)[0]: made}


def view_of(op: type[Op], attrs: Any, name: str, shape: Shape, whole: Shape) -> Shape:
    """The shape under which an input broadcasts to `whole`: its own except for the few that align at the
    front.
    """
    if name == "gamma":
        slopes = slopes_shape(shape, whole)
        assert slopes is not None, (shape, whole)
        return slopes
    if name == "condition" and len(shape) < len(whole):
        return (*shape, *(1,) * (len(whole) - len(shape)))  # where: one for each row
    return shape


def _add(names: str | Iterable[str], forward: Rule | None = None, backward: Rule | None = None) -> None:
    for name in names.split() if isinstance(names, str) else names:
        op = find_op(name)
        if forward is not None:
            RULES[op] = forward
        if backward is not None:
            assert op.grad_op is not None
            RULES[op.grad_op] = backward


def _to_data(slope: Callable[..., ExpressionValue]) -> Rule:
    """The gradient of one input `data` from `slope(w, a, known)`, known being `out` or `data`."""

    def rule(
        w: Writer, a: Any, d_out: ExpressionValue, data: Any = None, out: Any = None
    ) -> Mapping[str, ExpressionValue]:
        return {"d_data": d_out * slope(w, a, data if out is None else out)}

    return rule


def _unary(step: str) -> Rule:
    return lambda w, a, data: w(step, data)


def _where(how: str) -> Callable[[Writer, Any, Any], ExpressionValue]:
    return lambda w, x, y: w.one_where(how, x, y)


# -- unary functions

_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715
_LAMBDA = 1.0507009873554804934193349852946
_ALPHA = 1.6732632423543772848170429916717


def _silu_slope(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue:
    s = w("sigmoid", x)
    return ((1 - s) * x + 1) * s


def _mish_slope(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue:
    t = w("tanh", w("softplus", x))
    return t + (1 - t * t) * x * w("sigmoid", x)


def _hard_swish_slope(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue:
    inside = w("select", w("le", x, -3.0), 0.0, x * (1 / 3) + 0.5)
    return w("select", w("ge", x, 3.0), 1.0, inside)


def _gelu_tanh_slope(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue:
    s = _gelu_tanh_share(w, x)
    return ((x * x * (6 * _CUBE * _ROOT) + 2 * _ROOT) * x * (1 - s) + 1) * s


def _gelu_tanh_share(w: Writer, x: ExpressionValue) -> ExpressionValue:
    """(1 + tanh(y)) / 2 as sigmoid(2 y), which is accurate where tanh is near -1."""
    return w("sigmoid", (x * x * _CUBE + 1) * x * (2 * _ROOT))


def _gelu_slope(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue:
    return w("normal", x) + w("bell", x) * (1 / math.sqrt(2 * math.pi)) * x


_Function = Callable[[Writer, Any, ExpressionValue], ExpressionValue]
_ACTIVATIONS: Mapping[str, tuple[_Function, _Function]] = {
    "relu": (lambda w, a, x: w("max", x, 0.0), lambda w, a, y: w("sign", y)),
    "sigmoid": (lambda w, a, x: w("sigmoid", x), lambda w, a, y: (1 - y) * y),
    "tanh": (lambda w, a, x: w("tanh", x), lambda w, a, y: 1 - y * y),
    "softrelu": (lambda w, a, x: w("softplus", x), lambda w, a, y: -w("expm1", -y)),
    "softsign": (lambda w, a, x: x / (w("abs", x) + 1), lambda w, a, y: _squared(1 - w("abs", y))),
    "log_sigmoid": (lambda w, a, x: -w("softplus", -x), lambda w, a, y: -w("expm1", y)),
    "silu": (lambda w, a, x: x * w("sigmoid", x), _silu_slope),
    "mish": (lambda w, a, x: x * w("tanh", w("softplus", x)), _mish_slope),
    "hard_swish": (
        lambda w, a, x: x * (w("min", w("max", x + 3, 0.0), 6.0) * (1 / 6)),
        _hard_swish_slope,
    ),
    "gelu": (lambda w, a, x: x * w("normal", x), _gelu_slope),
    "gelu_tanh": (
        lambda w, a, x: x * _gelu_tanh_share(w, x),
        _gelu_tanh_slope,
    ),
}


def _squared(x: ExpressionValue) -> ExpressionValue:
    return x * x


for _name in ("relu", "sigmoid", "tanh", "log_sigmoid", "silu", "mish", "hard_swish", "softsign"):
    _f, _slope = _ACTIVATIONS[_name]
    _add(_name, lambda w, a, data, f=_f: f(w, a, data), _to_data(_slope))
_add(
    "Activation",
    lambda w, a, data: _ACTIVATIONS[a.act_type][0](w, a, data),
    _to_data(lambda w, a, x: _ACTIVATIONS[a.act_type][1](w, a, x)),
)
_add(
    "gelu",
    lambda w, a, data: _ACTIVATIONS[_gelu(a)][0](w, a, data),
    _to_data(lambda w, a, x: _ACTIVATIONS[_gelu(a)][1](w, a, x)),
)
_add(
    "softplus",
    lambda w, a, data: w("softplus", data * w.constant(a.beta)) / w.constant(a.beta),
    _to_data(lambda w, a, y: -w("expm1", y * w.constant(-a.beta))),
)


def _gelu(a: Any) -> str:
    return "gelu" if a.approximate == "none" else "gelu_tanh"


def _leaky(w: Writer, a: Any, data: ExpressionValue, gamma: ExpressionValue | None = None) -> ExpressionValue:
    if a.act_type == "gelu":
        return data * w("normal", data)
    if a.act_type in ("elu", "selu"):
        below = w("expm1", data)
        if a.act_type == "selu":
            return w("select", w("gt", data, 0.0), data, below * _ALPHA) * _LAMBDA
        below = below * w.constant(a.slope)
    else:
        below = data * (w.constant(a.slope) if gamma is None else gamma)
    return w("select", w("gt", data, 0.0), data, below)


def _leaky_gradient(
    w: Writer, a: Any, d_out: ExpressionValue, data: Any = None, out: Any = None, gamma: Any = None
) -> Mapping[str, ExpressionValue] | None:
    if a.act_type == "gelu":
        return {"d_data": d_out * _gelu_slope(w, a, data)}
    above: ExpressionValue | float = 1.0
    if a.act_type == "prelu":
        below = gamma
    elif a.act_type == "selu":
        above, below = _LAMBDA, out + _LAMBDA * _ALPHA
    elif a.act_type == "elu":
        below = out + w.constant(a.slope)
    else:
        below = w.constant(a.slope)
    known = out if data is None else data
    if a.act_type in ("elu", "selu"):
        slope = w("select", w("gt", known, 0.0), above, below)
    else:  # nan counts as above: its gradient is not masked where the slope is 0
        slope = w("select", w("le", known, 0.0), below, above)
    made = {"d_data": d_out * slope}
    if a.act_type == "prelu":
        made["d_gamma"] = d_out * w("min", data, 0.0)  # only where gamma is as large as data
    return made


_add("LeakyReLU", _leaky, _leaky_gradient)

_add(
    "hard_sigmoid",
    lambda w, a, data: w("min", w("max", data * w.constant(a.alpha) + w.constant(a.beta), 0.0), 1.0),
    lambda w, a, d_out, out: {
        "d_data": d_out * w.zero_where("le", out, 0.0) * w.zero_where("ge", out, 1.0) * w.constant(a.alpha)
    },
)
_add(
    "clip",
    lambda w, a, data: w("min", w("max", data, w.constant(a.a_min)), w.constant(a.a_max)),
    lambda w, a, d_out, data: {
        "d_data": d_out
        * (w.zero_where("lt", data, w.constant(a.a_min)) * w.zero_where("gt", data, w.constant(a.a_max)))
    },
)

_add("exp", _unary("exp"), _to_data(lambda w, a, y: y))
_add("expm1", _unary("expm1"), _to_data(lambda w, a, y: y + 1))
_add("log", _unary("log"), lambda w, a, d_out, data: {"d_data": d_out / data})
_add("log1p", _unary("log1p"), lambda w, a, d_out, data: {"d_data": d_out / (data + 1)})
_add("sqrt", _unary("sqrt"), lambda w, a, d_out, out: {"d_data": d_out / out * 0.5})
_add("rsqrt", _unary("rsqrt"), lambda w, a, d_out, out: {"d_data": d_out * out * out * w("abs", out) * -0.5})
for _name in ("sin", "cos", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh"):
    _add(_name, _unary(_name))
_add("sin", None, _to_data(lambda w, a, x: w("cos", x)))
_add("cos", None, _to_data(lambda w, a, x: -w("sin", x)))
_add("tan", _unary("tan"), lambda w, a, d_out, out: {"d_data": d_out * (out * out + 1)})
_add("arcsin", None, lambda w, a, d_out, data: {"d_data": d_out / w("sqrt", (1 - data) * (data + 1))})
_add("arccos", None, lambda w, a, d_out, data: {"d_data": d_out / -w("sqrt", (1 - data) * (data + 1))})
_add("arctan", None, lambda w, a, d_out, data: {"d_data": d_out / (data * data + 1)})
_add("sinh", None, _to_data(lambda w, a, x: w("cosh", x)))
_add("cosh", None, _to_data(lambda w, a, x: w("sinh", x)))
_add("arcsinh", None, lambda w, a, d_out, data: {"d_data": d_out / w("hypot", data, 1.0)})
_add("arccosh", None, lambda w, a, d_out, data: {"d_data": d_out / w("sqrt", (data - 1) * (data + 1))})
_add("arctanh", None, lambda w, a, d_out, data: {"d_data": d_out / ((1 - data) * (data + 1))})
_add("log2", _unary("log2"), lambda w, a, d_out, data: {"d_data": d_out / (data * math.log(2))})
_add("log10", _unary("log10"), lambda w, a, d_out, data: {"d_data": d_out / (data * math.log(10))})
_add("cbrt", _unary("cbrt"), lambda w, a, d_out, out: {"d_data": d_out / (out * out * 3)})
_add(
    "rcbrt",
    lambda w, a, data: 1 / w("cbrt", data),
    lambda w, a, d_out, out: {"d_data": d_out * (_squared(out * out) * (-1 / 3))},
)
_add(
    "degrees",
    lambda w, a, data: data * (180 / math.pi),
    lambda w, a, d_out: {"d_data": d_out * (180 / math.pi)},
)
_add(
    "radians",
    lambda w, a, data: data * (math.pi / 180),
    lambda w, a, d_out: {"d_data": d_out * (math.pi / 180)},
)
_add("reciprocal", lambda w, a, data: 1 / data, lambda w, a, d_out, out: {"d_data": -(d_out * out * out)})
_add("square", lambda w, a, data: data * data, lambda w, a, d_out, data: {"d_data": d_out * data * 2})
_add(
    "_contrib_quadratic",
    lambda w, a, data: (data * w.constant(a.a) + w.constant(a.b)) * data + w.constant(a.c),
    lambda w, a, d_out, data: {"d_data": d_out * (data * w.constant(2 * a.a) + w.constant(a.b))},
)
_add("abs", _unary("abs"), _to_data(lambda w, a, x: w("sign", x)))
_add("negative", _unary("neg"), lambda w, a, d_out: {"d_data": -d_out})
_add("sign", _unary("sign"))
for _name in ("floor", "ceil", "trunc"):
    _add(_name, _unary(_name))
_add("fix", _unary("trunc"))
_add("round", lambda w, a, data: _rounded(w, data))
_add("rint", lambda w, a, data: _nearest(w, data, w("floor", data), w("ceil", data)))
_add("erf", _unary("erf"), _to_data(lambda w, a, x: w("exp", -(x * x)) * (2 / math.sqrt(math.pi))))
_add("_copy BlockGrad broadcast_to broadcast_axis", lambda w, a, data: data)
_add("broadcast_like _identity_with_attr_like_rhs", lambda w, a, lhs: lhs)
_add("make_loss", lambda w, a, data: {"loss": data})
_add("ones_like", lambda w, a: w.number(1.0))
_add("zeros_like", lambda w, a: w.number(0.0))
RULES[OnesLike] = lambda w, a: w.number(1.0)


def _rounded(w: Writer, x: ExpressionValue) -> ExpressionValue:
    """The nearest whole number, halves away from zero; the part cut off is exact, unlike x + 0.5."""
    whole = w("trunc", x)
    return w("select", w("ge", w("abs", x - whole), 0.5), whole + w("sign", x), whole)


def _nearest(
    w: Writer, x: ExpressionValue, below: ExpressionValue, above: ExpressionValue
) -> ExpressionValue:
    return w("select", w("le", x - below, above - x), below, above)


_add("isnan", lambda w, a, data: w.one_where("ne", data, data))
_add("isinf", lambda w, a, data: w.one_where("eq", w("abs", data), math.inf))
_add("isfinite", lambda w, a, data: w.one_where("lt", w("abs", data), math.inf))
_add("logical_not", lambda w, a, data: w.one_where("eq", data, 0.0))


# -- an array and a scalar


def _scalar(f: Callable[[Writer, ExpressionValue, ExpressionValue], ExpressionValue]) -> Rule:
    return lambda w, a, data: f(w, data, w.constant(a.scalar))


def _scalar_gradient(f: Callable[..., ExpressionValue]) -> Rule:
    """Rule of a gradient by f(w, d_out, scalar, data or out)."""

    def rule(
        w: Writer, a: Any, d_out: ExpressionValue, data: Any = None, out: Any = None
    ) -> Mapping[str, ExpressionValue]:
        return {"d_data": f(w, d_out, w.constant(a.scalar), data if out is None else out)}

    return rule


_add("_plus_scalar", _scalar(lambda w, x, c: x + c))
_add("_minus_scalar", _scalar(lambda w, x, c: x - c))
_add("_rminus_scalar", _scalar(lambda w, x, c: c - x), lambda w, a, d_out: {"d_data": -d_out})
_add("_mul_scalar", _scalar(lambda w, x, c: x * c), _scalar_gradient(lambda w, d, c, _: d * c))
_add("_div_scalar", _scalar(lambda w, x, c: x / c), _scalar_gradient(lambda w, d, c, _: d / c))
_add(
    "_rdiv_scalar",
    _scalar(lambda w, x, c: c / x),
    _scalar_gradient(lambda w, d, c, x: d * (-c / x / x)),
)
for _name, _how in (("max", "lt"), ("min", "gt")):
    _add(
        f"_{_name}imum_scalar",
        _scalar(lambda w, x, c, n=_name: w(n, x, c)),  # type: ignore[misc]
        _scalar_gradient(lambda w, d, c, x, how=_how: d * w.zero_where(how, x, c)),
    )


def _power_gradient(
    w: Writer, a: Any, d_out: ExpressionValue, data: ExpressionValue
) -> Mapping[str, ExpressionValue]:
    return {"d_data": _to_power(w, data, a.scalar - 1) * d_out * w.constant(a.scalar)}


def _to_power(w: Writer, x: ExpressionValue, n: float) -> ExpressionValue:
    """x to a power, which may be a few products and roots."""
    if -n in (1, 2, 3, 4, 0.5, 1.5):
        return 1 / _to_power(w, x, -n)
    if n in (1, 2, 3, 4):
        return {1: x, 2: x * x, 3: x * x * x, 4: _squared(x * x)}[int(n)]
    if n in (0.5, 1.5):
        # Unlike a root, the power of -0.0 is 0.0 and that of -inf is inf.
        root = w("select", w("eq", x, -math.inf), math.inf, w("sqrt", x + 0.0))
        return root if n == 0.5 else w("abs", x) * root
    return w("pow", x, w.constant(n))


_add("_power_scalar", lambda w, a, data: _to_power(w, data, a.scalar), _power_gradient)
_add(
    "_rpower_scalar",
    _scalar(lambda w, x, c: w("pow", c, x)),
    lambda w, a, d_out, out: {"d_data": d_out * out * w.constant(log_of(a.scalar))},
)
_add(
    "_hypot_scalar",
    _scalar(lambda w, x, c: w("hypot", x, c)),
    lambda w, a, d_out, data, out: {"d_data": d_out * (data / out)},
)
_add("_mod_scalar", _scalar(lambda w, x, c: _remainder(w, x, c)), lambda w, a, d_out: {"d_data": d_out})
_add(
    "_rmod_scalar",
    _scalar(lambda w, x, c: _remainder(w, c, x)),
    _scalar_gradient(lambda w, d, c, x: d * -_floor_divided(w, c, x)),
)


def _has_other_sign(w: Writer, rest: ExpressionValue, y: ExpressionValue) -> ExpressionValue:
    """1 where a rest, which is not 0, lies on the other side of 0 than y."""
    return w.one_where("lt", w("sign", rest) * y, 0.0)


def _remainder(w: Writer, x: ExpressionValue, y: ExpressionValue) -> ExpressionValue:
    """The rest of x / y with the sign of y, also of 0; 0 where y is 0."""
    rest = w("fmod", x, y)
    signed = w("select", w("ne", _has_other_sign(w, rest, y), 0.0), rest + y, rest)
    signed = w("select", w("eq", rest, 0.0), w("sign", y) * 0.0, signed)
    return w("select", w("eq", y, 0.0), 0.0, signed)


def _floor_divided(w: Writer, x: ExpressionValue, y: ExpressionValue) -> ExpressionValue:
    """The whole number below x / y, from the rest, since the quotient may be rounded up to it."""
    rest = w("fmod", x, y)
    quotient = (x - rest) / y - _has_other_sign(w, rest, y)
    whole = w("floor", quotient)
    whole = w("select", w("gt", quotient - whole, 0.5), whole + 1, whole)
    whole = w("select", w("eq", quotient, 0.0), x / y * 0.0, whole)
    return w("select", w("eq", y, 0.0), x / y, whole)


_add(
    "smooth_l1",
    lambda w, a, data: _huber(w, a, data),
    lambda w, a, d_out, data: _huber_gradient(w, a, d_out, data),
)


def _huber(w: Writer, a: Any, x: ExpressionValue) -> ExpressionValue | None:
    if a.scalar == 0:
        return None
    cut = w("min", w("max", x * w.constant(a.scalar**2), -1.0), 1.0)
    return cut * (x - cut * w.constant(0.5 / a.scalar**2))


def _huber_gradient(
    w: Writer, a: Any, d_out: ExpressionValue, x: ExpressionValue
) -> Mapping[str, ExpressionValue]:
    return {"d_data": d_out * w("min", w("max", x * w.constant(a.scalar**2), -1.0), 1.0)}


# -- binary functions


def _add_binary(
    kind: str,
    f: Callable[[Writer, ExpressionValue, ExpressionValue], ExpressionValue],
    gradient: Rule | None = None,
) -> None:
    names = [n for n in (f"elemwise_{kind}", f"broadcast_{kind}") if n in TABLE]
    for name in names:
        _add(name, lambda w, a, lhs, rhs: f(w, lhs, rhs))
        if gradient is not None and find_op(name).grad_op is not None:
            _add(name, None, gradient)


def _div_gradient(
    w: Writer, a: Any, d_out: ExpressionValue, rhs: ExpressionValue, lhs: Any = None, out: Any = None
) -> Mapping[str, ExpressionValue]:
    by_lhs = d_out / rhs
    return {"d_lhs": by_lhs, "d_rhs": -(d_out * (lhs / rhs if out is None else out) / rhs)}


def _kept(other: str) -> Rule:
    """Pass the whole gradient to `lhs` except where `rhs` is `other`: so a nan does not mask it."""
    return lambda w, a, d_out, lhs, rhs: {
        "d_lhs": d_out * w.zero_where(other, lhs, rhs),
        "d_rhs": d_out * w.one_where(other, lhs, rhs),
    }


_add_binary("add", lambda w, x, y: x + y, lambda w, a, d_out: {"d_lhs": d_out, "d_rhs": d_out})
_add_binary("sub", lambda w, x, y: x - y, lambda w, a, d_out: {"d_lhs": d_out, "d_rhs": -d_out})
_add_binary(
    "mul",
    lambda w, x, y: x * y,
    lambda w, a, d_out, lhs, rhs: {"d_lhs": d_out * rhs, "d_rhs": d_out * lhs},
)
_add_binary("div", lambda w, x, y: x / y, _div_gradient)
_add_binary("maximum", lambda w, x, y: w("max", x, y), _kept("lt"))
_add_binary("minimum", lambda w, x, y: w("min", x, y), _kept("gt"))

for _name, _how in (
    ("equal", "eq"),
    ("not_equal", "ne"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("lesser", "lt"),
    ("lesser_equal", "le"),
):
    _add_binary(_name, _where(_how))
    _add(f"_{_name}_scalar", _scalar(_where(_how)))


def _truth(w: Writer, x: ExpressionValue) -> ExpressionValue:
    return w.one_where("ne", x, 0.0)


_LOGIC: Mapping[str, Callable[[Writer, ExpressionValue, ExpressionValue], ExpressionValue]] = {
    "and": lambda w, x, y: w("select", w("ne", x, 0.0), _truth(w, y), 0.0),
    "or": lambda w, x, y: w("select", w("ne", x, 0.0), 1.0, _truth(w, y)),
    "xor": lambda w, x, y: w.one_where("ne", _truth(w, x), _truth(w, y)),
}
for _name, _both in _LOGIC.items():
    _add_binary(f"logical_{_name}", _both)
    _add(f"_logical_{_name}_scalar", _scalar(_both))

_add_binary(
    "hypot",
    lambda w, x, y: w("hypot", x, y),
    lambda w, a, d_out, lhs, rhs, out: {"d_lhs": lhs / out * d_out, "d_rhs": rhs / out * d_out},
)


def _angle_gradient(
    w: Writer, a: Any, d_out: ExpressionValue, lhs: ExpressionValue, rhs: ExpressionValue
) -> Mapping[str, ExpressionValue]:
    square = _squared(w("hypot", lhs, rhs))
    return {"d_lhs": rhs / square * d_out, "d_rhs": -(lhs / square * d_out)}


_add("arctan2", lambda w, a, lhs, rhs: w("arctan2", lhs, rhs), _angle_gradient)
_add_binary(
    "mod",
    _remainder,
    lambda w, a, d_out, lhs, rhs: {"d_lhs": d_out, "d_rhs": -(_floor_divided(w, lhs, rhs) * d_out)},
)
_add(
    "fmod",
    lambda w, a, lhs, rhs: w("fmod", lhs, rhs),
    lambda w, a, d_out, lhs, rhs: {"d_lhs": d_out, "d_rhs": -(w("trunc", lhs / rhs) * d_out)},
)
_add_binary(
    "power",
    lambda w, x, y: w("pow", x, y),
    lambda w, a, d_out, lhs, rhs, out: {
        "d_lhs": w("pow", lhs, rhs - 1) * rhs * d_out,
        "d_rhs": w("log", lhs) * out * d_out,
    },
)


def _sum(w: Writer, a: Any, **args: ExpressionValue) -> ExpressionValue:
    first, *rest = args.values()
    for x in rest:
        first = first + x
    return first


_add("add_n", _sum)
RULES[GradAdd] = lambda w, a, lhs, rhs: lhs + rhs


# -- several types


def _cast(w: Writer, a: Any, data: ExpressionValue) -> ExpressionValue | None:
    return narrowed(w, data, a.dtype)


def narrowed(w: Writer, x: ExpressionValue, dtype: str) -> ExpressionValue | None:
    """x cast to `dtype`; None if that is no floating type."""
    if dtype in ("float16", "bfloat16"):
        return w(f"to_{dtype}", x)
    return x if dtype == "float32" else None


def _cast_gradient(w: Writer, a: Any, d_out: ExpressionValue) -> Mapping[str, ExpressionValue] | None:
    made = narrowed(w, d_out, str(w.dtype))
    return None if made is None else {"d_data": made}


_add("Cast amp_cast", _cast, _cast_gradient)
_add("_shore", _cast)  # backward the scale is an array
_add(
    "where",
    lambda w, a, condition, x, y: w("select", w("ne", condition, 0.0), x, y),
    lambda w, a, d_out, condition: {
        "d_x": w("select", w("ne", condition, 0.0), d_out, 0.0),
        "d_y": w("select", w("ne", condition, 0.0), 0.0, d_out),
    },
)


def _lars(
    w: Writer,
    a: Any,
    lrs: ExpressionValue,
    weights_sum_sq: ExpressionValue,
    grads_sum_sq: ExpressionValue,
    wds: ExpressionValue,
) -> Mapping[str, ExpressionValue]:
    weight = w("sqrt", weights_sum_sq)
    below = w("sqrt", grads_sum_sq) * w.constant(a.rescale_grad) + weight * wds + w.constant(a.eps)
    factor = weight * w.constant(a.eta) / below
    factor = w("select", w("gt", grads_sum_sq, 0.0), factor, 1.0)
    return {"out": lrs * w("select", w("gt", weights_sum_sq, 0.0), factor, 1.0)}


_add("multi_lars", _lars)
