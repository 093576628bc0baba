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


FLOAT: Mapping[str, str] = {
    "gamma": "mx_gamma(x)",
    "gammaln": "mx_lgamma(x)",
    "digamma": "(C)mx_polygamma(0, (double)x)",
    "polygamma": "(C)mx_polygamma((int)k, (double)x)",
    "erfinv": "(C)mx_erfinv((double)x)",
}
"""Formulas for floats, by the operator's name."""

_LOGIC = {"and": "&&", "or": "||"}
_BOTH = {
    **{f"logical_{n}": _if(f"x != C(0) {how} y != C(0)") for n, how in _LOGIC.items()},
    "logical_xor": _if("(x != C(0)) != (y != C(0))"),
}
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
    "gamma": {"d_data": "(C)(d * (y * mx_polygamma(0, (double)x)))"},
    "gammaln": {"d_data": "(C)(d * mx_polygamma(0, (double)x))"},
    "digamma": {"d_data": "(C)(d * mx_polygamma(1, (double)x))"},
    "polygamma": {"d_data": "(C)(d * mx_polygamma((int)k + 1, (double)x))"},
    "erfinv": {"d_data": f"d * (mx_exp(x * x) * C({math.sqrt(math.pi) / 2!r}))"},
}
"""Formulas of gradients, by the forward operator's name and the output."""
