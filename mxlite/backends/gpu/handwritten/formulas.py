"""C++ statements of elementwise operators that are no expressions, with those of their gradients.

`x`, `y` and `z` are the inputs in their order (for a gradient: what it needs, `d` being the first), `k` is
the number in the attributes; C is the compute type. Formulas are those of mxlite/ops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_ONE_IF = "({}) ? C(1) : C(0)"


def _if(condition: str) -> str:
    return _ONE_IF.format(condition)


_LOGIC = {"and": "&&", "or": "||"}
_BOTH = {
    **{f"logical_{n}": _if(f"x != C(0) {how} y != C(0)") for n, how in _LOGIC.items()},
    "logical_xor": _if("(x != C(0)) != (y != C(0))"),
}

FLOAT: Mapping[str, str] = {
    **{n: f"mx_{n}(x)" for n in "sin cos tan sinh cosh log2 log10 cbrt gamma round rint".split()},
    **{f"arc{n}": f"mx_a{n}(x)" for n in "sin cos tan sinh cosh tanh".split()},
    "rcbrt": "C(1) / mx_cbrt(x)",
    "degrees": f"x * C({180 / math.pi!r})",
    "radians": f"x * C({math.pi / 180!r})",
    "gammaln": "mx_lgamma(x)",
    "digamma": "(C)mx_polygamma(0, (double)x)",
    "polygamma": "(C)mx_polygamma((int)k, (double)x)",
    "erfinv": "(C)mx_erfinv((double)x)",
    "isnan": _if("x != x"),
    "isinf": _if("x == x && x - x != C(0)"),
    "isfinite": _if("x - x == C(0)"),
    "logical_not": _if("x == C(0)"),
    **{f"broadcast_{n}": text for n, text in _BOTH.items()},
    **{f"_{n}_scalar": text.replace("y", "k") for n, text in _BOTH.items()},
    "broadcast_hypot": "mx_hypot(x, y)",
    "_hypot_scalar": "mx_hypot(x, k)",
    "arctan2": "mx_atan2(x, y)",
    "broadcast_mod": "mx_mod(x, y)",
    "fmod": "mx_fmod(x, y)",
    "_mod_scalar": "mx_mod(x, k)",
    "_rmod_scalar": "mx_mod(k, x)",
    "broadcast_power": "mx_pow(x, y)",
    "_power_scalar": "mx_pow(x, k)",
    "_rpower_scalar": "mx_pow(k, x)",
    "element_mask": "x * y",
    "_contrib_div_sqrt_dim": "x * k",
}
"""Formulas for floats, by the operator's name."""

_NAMES = "equal not_equal greater greater_equal lesser lesser_equal"
_COMPARED = dict(zip(_NAMES.split(), "== != > >= < <=".split()))
_PLAIN = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "maximum": "x > y ? x : y",
    "minimum": "x < y ? x : y",
    **{n: _if(f"x {how} y") for n, how in _COMPARED.items()},
    **_BOTH,
    "mod": "mx_mod(x, y)",
}

WHOLE: Mapping[str, str] = {
    **{f"broadcast_{n}": text for n, text in _PLAIN.items()},
    **{f"elemwise_{n}": _PLAIN[n] for n in ("add", "sub", "mul")},
    **{f"_{n}_scalar": _PLAIN[n].replace("y", "k") for n in (*_COMPARED, *_BOTH, "maximum", "minimum")},
    "_plus_scalar": "x + k",
    "_minus_scalar": "x - k",
    "_rminus_scalar": "k - x",
    "_mul_scalar": "x * k",
    "_mod_scalar": "mx_mod(x, k)",
    "_rmod_scalar": "mx_mod(k, x)",
    "bitwise_and": "x & y",
    "bitwise_or": "x | y",
    "bitwise_xor": "x ^ y",
    "bitwise_not": "~x",
    "left_shift": "shifted_left(x, y)",
    "right_shift": "shifted_right(x, y)",
    "logical_not": _if("x == C(0)"),
    "abs": "x < 0 ? -x : x",
    "negative": "-x",
    "sign": "(x > 0) - (x < 0)",
    "square": "x * x",
    **dict.fromkeys("floor ceil trunc fix round rint".split(), "x"),
    "isnan": "0",
    "isinf": "0",
    "isfinite": "1",
    "where": "x ? y : z",
    "element_mask": "x * y",
}
"""Formulas for integers, computed in 64 bits and truncated to the type."""

GRADIENTS: Mapping[str, Mapping[str, str]] = {
    "sin": {"d_data": "d * mx_cos(x)"},
    "cos": {"d_data": "d * -mx_sin(x)"},
    "tan": {"d_data": "d * (x * x + C(1))"},
    "arcsin": {"d_data": "d / mx_sqrt((C(1) - x) * (C(1) + x))"},
    "arccos": {"d_data": "d / -mx_sqrt((C(1) - x) * (C(1) + x))"},
    "arctan": {"d_data": "d / (x * x + C(1))"},
    "sinh": {"d_data": "d * mx_cosh(x)"},
    "cosh": {"d_data": "d * mx_sinh(x)"},
    "arcsinh": {"d_data": "d / mx_hypot(x, C(1))"},
    "arccosh": {"d_data": "d / mx_sqrt((x - C(1)) * (x + C(1)))"},
    "arctanh": {"d_data": "d / ((C(1) - x) * (C(1) + x))"},
    "degrees": {"d_data": f"d * C({180 / math.pi!r})"},
    "radians": {"d_data": f"d * C({math.pi / 180!r})"},
    "log2": {"d_data": f"d / (x * C({math.log(2)!r}))"},
    "log10": {"d_data": f"d / (x * C({math.log(10)!r}))"},
    "cbrt": {"d_data": "d / (x * x * C(3))"},
    "rcbrt": {"d_data": "d * (x * x * (x * x) / C(-3))"},
    "gamma": {"d_data": "(C)(d * (y * mx_polygamma(0, (double)x)))"},
    "gammaln": {"d_data": "(C)(d * mx_polygamma(0, (double)x))"},
    "digamma": {"d_data": "(C)(d * mx_polygamma(1, (double)x))"},
    "polygamma": {"d_data": "(C)(d * mx_polygamma((int)k + 1, (double)x))"},
    "erfinv": {"d_data": f"d * (mx_exp(x * x) * C({math.sqrt(math.pi) / 2!r}))"},
    "_hypot_scalar": {"d_data": "d * (x / y)"},
    "_mod_scalar": {"d_data": "d"},
    "_rmod_scalar": {"d_data": "d * -mx_floor_divide(k, x)"},
    "_power_scalar": {"d_data": "mx_pow(x, k - C(1)) * d * k"},
    "_rpower_scalar": {"d_data": "d * x * (k > C(0) ? mx_log(k) : k == C(0) ? -C(1) / C(0) : C(0) / C(0))"},
    "element_mask": {"d_lhs": "d * x"},
    "_contrib_div_sqrt_dim": {"d_data": "d * k"},
    "broadcast_hypot": {"d_lhs": "x / z * d", "d_rhs": "y / z * d"},
    "arctan2": {
        "d_lhs": "y / (mx_hypot(x, y) * mx_hypot(x, y)) * d",
        "d_rhs": "-(x / (mx_hypot(x, y) * mx_hypot(x, y)) * d)",
    },
    "broadcast_mod": {"d_lhs": "d", "d_rhs": "-(mx_floor_divide(x, y) * d)"},
    "fmod": {"d_lhs": "d", "d_rhs": "-(mx_trunc(x / y) * d)"},
    "broadcast_power": {"d_lhs": "mx_pow(x, y - C(1)) * y * d", "d_rhs": "mx_log(x) * z * d"},
}
"""Formulas of gradients, by the forward operator's name and the output."""
