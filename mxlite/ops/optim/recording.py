"""A formula of a step written down once, and run by numpy in scratch that is given to it.

A formula is a function of stand-ins, `formula(xp, attrs, rates, *arrays)`, that gives new values of arrays:

    def step(xp, a, r, weight, grad, mom):
        mom = mom * a.momentum - grad * r.lr
        return weight + mom, mom

Its steps are recorded as terms, in order. A term is of one kind:

    COUNT    a double that the number of updates decides: `r.t`, and what is derived from it
    RATE     a number that the arrays meet: `r.lr`, `r.wd`, and what is derived from them
    ARRAY    an array, by one of its elements; every step on arrays is rounded to their type

`Evaluation` runs the terms by numpy's functions, each into an array that is free at that time: a part of the
arrays that fits the cache needs a few scratch arrays like it and no memory of its own. Backends make
expressions of the same terms: see `backends/elementwise/update.py`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import DefinitionError
from ...graph.opdef import DType
from ...te.steps import Numpy, StandIn, STEPS

COUNT, RATE, ARRAY = 0, 1, 2

Formula = Callable[..., Any]


class Rates(NamedTuple):
    """Learning rate and weight decay as numbers of the weight's type; `t` counts updates from 1."""

    lr: Any
    wd: Any
    t: Any = 1.0


class Term(StandIn):
    """A value of a formula. `operands` are terms and plain numbers; leaves have none."""

    __slots__ = ("kind", "name", "operands", "xp")

    def __init__(self, xp: Recorder, kind: int, name: str, *operands: Any) -> None:
        self.xp, self.kind, self.name, self.operands = xp, kind, name, operands

    @property
    def dtype(self) -> DType:
        """The type of the arrays."""
        return self.xp.dtype

    def step(self, name: str, *operands: Any) -> Term:
        return self.xp.step(name, *operands)

    def __bool__(self) -> bool:
        if self.name == "wd":
            return self.xp.decays
        raise DefinitionError(f"A formula may ask whether there is decay, but not what {self.name!r} is.")


class Recorder(Numpy):
    """The functions of numpy that formulas call, for terms."""

    def __init__(self, dtype: DType, decays: bool) -> None:
        self.dtype, self.decays = dtype, decays
        self.terms: list[Term] = []

    def step(self, name: str, *operands: Any) -> Term:
        kind = max(x.kind for x in operands if isinstance(x, Term))
        self.terms.append(Term(self, kind, name, *operands))
        return self.terms[-1]


class Recording(NamedTuple):
    """The terms of a formula: leaves, then the steps in order, as far as the outputs need them."""

    inputs: tuple[Term, ...]
    rates: Rates
    steps: tuple[Term, ...]
    outputs: tuple[Term, ...]


@functools.lru_cache(maxsize=2048)
def recorded(formula: Formula, attrs: Any, arrays: int, dtype: DType, decays: bool) -> Recording:
    """The terms of a formula of so many arrays of a type. decays: True if the weight decay is not 0."""
    xp = Recorder(dtype, decays)
    inputs = tuple(Term(xp, ARRAY, "input") for _ in range(arrays))
    rates = Rates(Term(xp, RATE, "lr"), Term(xp, RATE, "wd"), Term(xp, COUNT, "t"))
    made = formula(xp, attrs, rates, *inputs)
    outputs = made if isinstance(made, tuple) else (made,)
    needed = set(outputs)
    for term in reversed(xp.terms):
        if term in needed:
            needed.update(x for x in term.operands if isinstance(x, Term))
    return Recording(inputs, rates, tuple(t for t in xp.terms if t in needed), outputs)


class Evaluation:
    """A formula as calls of numpy's functions. `scratch`: number of arrays that it needs beside its own.

    The first output of the formula is written to one more array, which may be the first input itself; the
    others replace the last inputs. apart: True if that array is none of the inputs.
    """

    def __init__(self, recording: Recording, apart: bool = False) -> None:
        inputs, self._rates, steps, outputs = recording
        self._known = [t for t in steps if t.kind != ARRAY]
        steps = tuple(t for t in steps if t.kind == ARRAY)
        self._numbers = [x for t in steps for x in t.operands if not _is_array(x)]
        # Registers are numbers, inputs, the output, then scratch.
        first = len(self._numbers)
        out = first + len(inputs)
        homes = (out, *range(out - len(outputs) + 1, out))
        home = dict(zip(reversed(outputs), reversed(homes)))
        last = {x: i for i, t in enumerate(steps) for x in t.operands if _is_array(x)}
        last |= dict.fromkeys(outputs, len(steps))

        place: dict[Any, int] = {t: first + i for i, t in enumerate(inputs)}
        held: dict[int, Term | None] = {r: inputs[r - first] for r in homes[1:]}
        held[out] = None if apart else inputs[0]
        scratch: list[int] = []
        numbers = iter(range(first))
        self._calls: list[tuple[str, Callable[[Sequence[Any]], Sequence[Any]], int]] = []
        for i, term in enumerate(steps):
            read = [place[x] if _is_array(x) else next(numbers) for x in term.operands]
            dying = [r for r, t in held.items() if t is not None and last.get(t, -1) <= i]
            held |= dict.fromkeys(dying)
            wanted = [home[term]] if term in home else [*dying, *[out] * apart]
            into = next((r for r in (*wanted, *scratch) if held[r] is None), out + 1 + len(scratch))
            if into > out and into not in scratch:
                scratch.append(into)
            place[term], held[into] = into, term
            chosen = operator.itemgetter(*read if read[1:] else (slice(read[0], read[0] + 1),))
            self._calls.append((_FUNCTIONS[term.name], chosen, into))
        self._copies = [(place[t], h) for t, h in zip(outputs, homes) if place[t] != h]
        self.scratch = len(scratch)

    def bound(self, xp: Any, rates: Rates) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """The call with these rates: `run(arrays, scratch)`, the inputs and the output first."""
        values: dict[Any, Any] = dict(zip(self._rates, rates))
        for t in self._known:
            values[t] = OF_NUMBERS[t.name](*(values[x] if isinstance(x, Term) else x for x in t.operands))
        numbers = [values[x] if isinstance(x, Term) else x for x in self._numbers]
        calls = [(getattr(xp, name), chosen, into) for name, chosen, into in self._calls]

        def run(arrays: Sequence[Any], scratch: Sequence[Any]) -> None:
            registers = [*numbers, *arrays, *scratch]
            for function, chosen, into in calls:
                function(*chosen(registers), out=registers[into])
            for source, into in self._copies:
                xp.copyto(registers[into], registers[source])

        return run


def _is_array(x: Any) -> bool:
    return isinstance(x, Term) and x.kind == ARRAY


_FUNCTIONS: Mapping[str, str] = {step: name for name, step in STEPS.items()}
OF_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
}
"""The steps on rates and counts, which numbers themselves take."""


@functools.lru_cache(maxsize=2048)
def evaluation(
    formula: Formula, attrs: Any, arrays: int, dtype: DType, decays: bool = True, apart: bool = False
) -> Evaluation:
    """The calls of numpy for a formula; see `recorded` and `Evaluation`."""
    return Evaluation(recorded(formula, attrs, arrays, dtype, decays), apart)
