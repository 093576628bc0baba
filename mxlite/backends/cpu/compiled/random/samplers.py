"""Random numbers of many distributions: the samplers of mxlite/ops/random/distributions.py, traced.

A vector holds neighbouring elements. If some of them reject, all lanes try again, with the next tag, and
those that have accepted keep their values: so each element's number is the one that it has in isolation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any

from .....core.machine_code import native
from ...onednn.primitive import address_of
from ..calls.team import call, LEAST_NBYTES, load
from ..codegen.doubles import Doubles
from ..codegen.emitter import Function, Module, storable
from ..codegen.ir import Operand as Int, type_of, Value
from ..codegen.traced import Traced, Tracer
from .parameters import arguments, Blocks, Parameters, parameters_of, SLOTS
from .philox import Halves, Philox

LEAST = 512  # numbers from which on compiling code pays


def draw(state: Any, stream: int, threads: int, law: Any, out: Any, parameters: Sequence[Any]) -> bool:
    """Fill `out` with numbers of `law`, a sampler, if that is possible; see `distributions.draw`."""
    if not can_draw(out.size, {x.dtype.name for x in (out, *parameters) if hasattr(x, "dtype")}):
        return False
    given = [x.reshape(-1) if hasattr(x, "reshape") else x for x in parameters]
    p = parameters_of(given, out.size)
    args = [*arguments(p, given, out.size), address_of(out), address_of(state), stream]
    call(code(law, out.dtype.name, p), "draw", args, threads if out.nbytes >= LEAST_NBYTES else 1)()
    return True


def can_draw(count: int, dtypes: Set[str]) -> bool:
    """True if `draw` can fill an array of `count` numbers, all arrays being of these types."""
    return count >= LEAST and dtypes <= (storable() & {"float32", "float16", "bfloat16"}) | {"float64"}


@functools.lru_cache(maxsize=256)
def code(law: Any, dtype: str, p: Parameters) -> native.Code:
    """The code with one function, `draw`. Arguments: those of `parameters.py`, the array, [seed, step], the
    stream.
    """
    module = Module()
    f = module.function("draw")
    d = Doubles(f)
    xp = Tracer(d)
    blocks = Blocks(f, xp, p)
    after = SLOTS + len(p.kinds)
    out = f.pointer(after)
    philox = Philox(f, f.pointer(after + 1), f.integer(after + 2))

    def put(index: Value, mask: Value | None, parameters: Sequence[Traced]) -> None:
        found = law(TracedSource(f, xp, philox), Elements(xp, philox.spread(index, 1)), *parameters)
        d.store_as(xp.value(found), out, index, dtype, mask)

    blocks.sweep(put)
    f.done()
    f.prune()
    return load(module)


class Elements:
    """The numbers of neighbouring elements."""

    def __init__(self, xp: Tracer, numbers: Halves) -> None:
        self.xp, self.numbers = xp, numbers

    def __len__(self) -> int:
        return self.xp.d.f.width


class Uniforms:
    """Four uniform numbers for each element: [:, k] is the k-th."""

    def __init__(self, xp: Tracer, words: Sequence[Value]) -> None:
        self.xp, self.words = xp, words

    def __getitem__(self, at: tuple[slice, int]) -> Traced:
        d = self.xp.d
        wide = d.f.cast("uitofp", self.words[at[1]], d.vector)
        return (self.xp.real(wide) + 0.5) * 2.0**-32


class TracedSource:
    """Counterpart of `distributions.Source`, with generated code for what depends on values."""

    def __init__(self, f: Function, xp: Tracer, philox: Philox) -> None:
        self.f, self.xp, self.philox = f, xp, philox

    def uniform(self, elements: Elements, tag: Int) -> Uniforms:
        return Uniforms(self.xp, self.philox.element(elements.numbers, tag))

    def accepted(
        self, attempt: Callable[..., Any], elements: Elements, tag: int, where: Traced, *parameters: Traced
    ) -> Traced:
        f, xp = self.f, self.xp
        first = [f.value(tag), where.value, xp.d.const(xp.nan)]
        with f.repeat(self._any(where), first) as round:
            now, left, value = round.values
            found, is_accepted = attempt(xp, self.uniform(elements, now), *self._held(parameters))
            new = xp.mask(left) & is_accepted
            left = xp.mask(left) & ~is_accepted
            value = xp.d.select(new.value, xp.value(found), value)
            round.again(f.plus(now, 1), left.value, value, condition=self._any(left))
        return xp.real(round.results[2])

    def changed(
        self,
        f: Callable[..., Any],
        value: Traced,
        elements: Elements,
        tag: int,
        where: Traced,
        *parameters: Traced,
    ) -> Traced:
        xp = self.xp
        with self.f.repeat(self._any(where), [value.value]) as once:
            u = self.uniform(elements, tag)
            found = f(self, u, xp.real(value.value), *self._held(parameters))
            once.again(xp.where(where, found, xp.real(value.value)).value)
        return xp.real(once.results[0])

    def repeated(
        self, step: Callable[..., Any], going: Traced, most: int, *state: Traced
    ) -> Sequence[Traced]:
        f, xp = self.f, self.xp
        first = [
            xp.d.const(0.0),
            going.value,
            *(x.value for x in state),
        ]
        with f.repeat(self._any(going), first) as round:
            k = xp.real(round.values[0])
            on, *new = step(k, xp.mask(round.values[1]), *(xp.real(x) for x in round.values[2:]))
            k = k + 1.0
            more = self._any(on & (k < float(most)))
            round.again(k.value, on.value, *(x.value for x in new), condition=more)
        return [xp.real(x) for x in round.results[2:]]

    def _held(self, parameters: Sequence[Traced]) -> list[Traced]:
        """Copies, which no other code changes."""
        return [self.xp.real(p.value) for p in parameters]

    def _any(self, mask: Traced) -> Value:
        f = self.f
        return f.is_("ne", f.cast("bitcast", mask.value, type_of(f"i{f.width}")), 0)
