"""Steps of an expression as LLVM instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .....te.steps import Step
from . import functions, widened
from .emitter import Function
from .ir import ConstantValue, Value


def _maximum(f: Function, a: Value, b: Value) -> Value:
    return f.above(a, b) if _is_number(b) else f.above(b, a) if _is_number(a) else f.maximum(a, b)


def _minimum(f: Function, a: Value, b: Value) -> Value:
    return f.below(a, b) if _is_number(b) else f.below(b, a) if _is_number(a) else f.minimum(a, b)


def _is_number(a: Value) -> bool:
    return isinstance(a, ConstantValue)


def _rounded(dtype: str) -> Callable[[Function, Value], Value]:
    return lambda f, x: f.widened(f.narrowed(x, dtype), dtype)


_COMPARE = {"eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole"}

_EMIT: Mapping[str, Callable[..., Value]] = {
    **{n: getattr(Function, n) for n in ("add", "sub", "mul", "div", "neg", "abs", "sqrt", "select")},
    **{n: getattr(functions, n) for n in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus")},
    **{n: getattr(functions, n) for n in ("erf", "rsqrt", "sign", "log2", "log10")},
    **widened.CALLS,
    **{n: (lambda f, *x, n=n: f.intrinsic(n, *x)) for n in ("floor", "ceil", "trunc", "rint", "copysign")},
    **{n: (lambda f, a, b, how=how: f.compare(how, a, b)) for n, how in _COMPARE.items()},
    "max": _maximum,
    "min": _minimum,
    "to_float16": _rounded("float16"),
    "to_bfloat16": _rounded("bfloat16"),
}


def emit(f: Function, step: Step, operands: Sequence[Value], made: dict[Value, tuple[Value, Value]]) -> Value:
    """The value of one step. `made` caches values that a later step can reuse."""
    if step[0] == "number":
        return f.const(step[1])
    if step[0] in ("normal", "bell"):
        (x,) = operands
        if x not in made:
            made[x] = functions.gauss(f, x)
        return made[x][step[0] == "bell"]
    return _EMIT[step[0]](f, *operands)
