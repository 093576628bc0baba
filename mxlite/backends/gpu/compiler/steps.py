"""The C++ text of the steps of expressions and loop nests (te/steps.py)."""

from __future__ import annotations

from typing import Any

from ....te.expression import Expression

_COMPARED = dict(zip("eq ne gt ge lt le".split(), "== != > >= < <=".split()))
STEPS = {
    **{name: f"{{}} {sign} {{}}" for name, sign in zip("add sub mul div".split(), "+-*/")},
    **{name: f"{{}} {sign} {{}}" for name, sign in _COMPARED.items()},
    "neg": "-{}",
    "max": "mx_max({}, {})",
    "min": "mx_min({}, {})",
    "rsqrt": "C(1) / mx_sqrt({})",
    "select": "{} ? {} : {}",
    "to_float16": "mx_through_float16({})",
    "to_bfloat16": "mx_through_bfloat16({})",
    **{n: f"mx_{n}({{}})" for n in "abs sqrt exp expm1 log log1p tanh sigmoid softplus erf".split()},
    **{n: f"mx_{n}({{}})" for n in "normal bell sign floor ceil trunc rint".split()},
    **{n: f"mx_{n}({{}})" for n in "sin cos tan sinh cosh log2 log10 cbrt".split()},
    **{f"arc{n}": f"mx_a{n}({{}})" for n in "sin cos tan sinh cosh tanh".split()},
    **{n: f"mx_{n}({{}}, {{}})" for n in "pow hypot fmod copysign".split()},
    "arctan2": "mx_atan2({}, {})",
    "number": "",
}
"""The text of each step of an expression; see `te.steps.NUMPY`."""
_BITS = {name: f"{{}} {sign} {{}}" for name, sign in zip("and or xor".split(), "&|^")}
_SHIFTS = {f"{side}_shift": f"shifted_{side}({{}}, {{}})" for side in ("left", "right")}
FUNCTIONS = {
    **{f"bitwise_{name}": text for name, text in _BITS.items()},
    **_SHIFTS,
    "bitwise_not": "~{}",
    **{n: f"mx_{n}({{}})" for n in "gamma gammaln".split()},
    "erfinv": "(C)mx_erfinv((double){})",
    "polygamma": "(C)mx_polygamma((int){}, (double){})",
}
"""Steps that only this backend has: of numbers of 64 bits, and those of functions.cuh."""
CALLED = frozenset({"polygamma"})
"""Steps that are calls, during which a thread keeps what it has of other elements."""


def step_lines(expression: Expression) -> list[str]:
    """A declaration for every step: number i of the expression is `v<i>`, of type C or bool."""
    return [step_line(at, *step) for at, step in enumerate(expression.steps, expression.first_step)]


def step_line(at: int, name: str, *operands: Any) -> str:
    """The declaration of `v<at>`, a step on other values, whose numbers are the operands."""
    if name == "number":
        return f"C v{at} = (C){literal(operands[0])};"
    kind = "bool" if name in _COMPARED else "C"
    text = STEPS.get(name) or FUNCTIONS[name]
    return f"{kind} v{at} = {text.format(*(f'v{x}' for x in operands))};"


def literal(x: float) -> str:
    """A number as text, of type double."""
    if x != x:
        return "(0.0 / 0.0)"
    if x in (float("inf"), float("-inf")):
        return f"({'-' if x < 0 else ''}1.0 / 0.0)"
    return f"({x.hex()})"
