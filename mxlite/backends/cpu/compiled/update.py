"""An optimizer's step as generated code, traced from its formula.

`Update.step` says a step once, as calls of numpy's functions on arrays. Called with the stand-ins of this
file it writes instructions instead: an array is the vector in hand, `out=` says which of them changes. So
the code does the same arithmetic in the same order, and gives the same bits, in one pass over weight,
gradient and states.
"""

from __future__ import annotations

import functools
from typing import Any

from ....core import native
from ....core.dtype import float32
from ....ops.update import Rates
from .emitter import Function, Module
from .team import load

_HYPER, _SIZE, _ARRAYS = 0, 1, 2  # slots: the row of rates, the number of elements, then every array


class _Vector:
    """An array, of which one vector is in hand."""

    dtype = float32

    def __init__(self, value: str = "") -> None:
        self.value = value


class _Scalar:
    """A rate: a number that is known when the code runs."""

    def __init__(self, f: Function, value: str, there: bool) -> None:
        self.f, self.value, self.there = f, value, there

    def __bool__(self) -> bool:
        return self.there

    def __mul__(self, other: Any) -> _Scalar:
        return _Scalar(self.f, self.f.mul(self.value, _value(self.f, other)), True)

    def __rmul__(self, other: Any) -> _Scalar:
        return _Scalar(self.f, self.f.mul(_value(self.f, other), self.value), True)

    def __rsub__(self, other: Any) -> _Scalar:
        return _Scalar(self.f, self.f.sub(_value(self.f, other), self.value), True)

    def __rtruediv__(self, other: Any) -> _Scalar:
        return _Scalar(self.f, self.f.div(_value(self.f, other), self.value), True)


class _Writer:
    """Stands for numpy: the functions that steps are made of."""

    def __init__(self, f: Function) -> None:
        self.f = f

    def _put(self, out: _Vector, value: str) -> _Vector:
        out.value = value
        return out

    def add(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.add(_value(self.f, a), _value(self.f, b)))

    def subtract(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.sub(_value(self.f, a), _value(self.f, b)))

    def multiply(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.mul(_value(self.f, a), _value(self.f, b)))

    def divide(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.div(_value(self.f, a), _value(self.f, b)))

    def maximum(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.maximum(_value(self.f, a), _value(self.f, b)))

    def minimum(self, a: Any, b: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.minimum(_value(self.f, a), _value(self.f, b)))

    def sqrt(self, a: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.sqrt(_value(self.f, a)))

    def negative(self, a: Any, out: _Vector) -> _Vector:
        return self._put(out, self.f.neg(_value(self.f, a)))

    def sign(self, a: Any, out: _Vector) -> _Vector:
        f, x, zero = self.f, _value(self.f, a), self.f.const(0.0)
        up = f.select(f.compare("ogt", x, zero), f.const(1.0), zero)
        signed = f.select(f.compare("olt", x, zero), f.const(-1.0), up)
        return self._put(out, f.select(f.compare("uno", x, x), x, signed))

    def copyto(self, out: _Vector, a: Any) -> None:
        self._put(out, _value(self.f, a))


def _value(f: Function, x: Any) -> str:
    return x.value if isinstance(x, (_Vector, _Scalar)) else f.const(float(x))


@functools.lru_cache(maxsize=256)
def code(step: Any, a: Any, dtypes: tuple[str, ...], master: bool) -> native.Code:
    """The function "update" of a step with these attributes (whose `row` is 0).

    dtypes: of weight, gradient and states; with `master` the last state is the weight in float32, and the
    weight only gets its rounded value. Slots: the address of the rates (float64, lr and wd), the number of
    elements, the addresses of the arrays.
    """
    module = Module()
    f = module.function("update")
    hyper, size = f.pointer(_HYPER), f.integer(_SIZE)
    arrays = [f.pointer(_ARRAYS + i) for i in range(len(dtypes))]
    lr, wd = (_rate(f, hyper, i) for i in range(2))
    first, last = f.share(size, f.width)
    any_decay = f.emit(f"fcmp une double {wd[0]}, 0.0")
    no_decay = f.emit(f"xor i1 {any_decay}, true")
    for condition, decays in ((any_decay, True), (no_decay, False)):
        with f.when(condition):

            def body(i: str, mask: str | None, decays: bool = decays) -> None:
                values = [_Vector(f.load(p, i, d, mask=mask)) for p, d in zip(arrays, dtypes)]
                weight, grad, *states = values
                if master:
                    weight = states.pop()
                rates = Rates(_Scalar(f, lr[1], True), _Scalar(f, wd[1], decays))
                scratch = [_Vector() for _ in range(step.scratch)]
                step.step(_Writer(f), a, rates, scratch, weight, grad, *states, out=weight)
                f.store(weight.value, arrays[0], i, dtypes[0], mask=mask)
                for state, p in zip([*states, *([weight] if master else [])], arrays[2:]):
                    f.store(state.value, p, i, mask=mask)

            f.sweep(first, last, body)
    f.done()
    return load(module)


def _rate(f: Function, hyper: str, column: int) -> tuple[str, str]:
    """A rate as a double, and in all lanes rounded to float32."""
    exact = f.emit(f"load double, ptr {f.offset(hyper, str(column), 8)}, align 8")
    return exact, f.every(f.emit(f"fptrunc double {exact} to float"), "float")
