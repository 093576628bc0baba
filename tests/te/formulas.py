"""Formulas of arrays that broadcast as loop nests, for tests of the code that is made of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mxlite.backends.nests.build import nests_of
from mxlite.backends.nests.nest import Nests
from mxlite.te.computation import Computation, Tensor
from mxlite.te.expression import Expression, expression_of

Shape = tuple[int, ...]


def writer(count: int) -> tuple[Computation, list[Tensor]]:
    """A computation of single numbers, and its inputs."""
    t = Computation()
    return t, [t.input(f"x{i}", ()) for i in range(count)]


def expression(count: int, f: Callable[..., Sequence[Tensor]]) -> tuple[Expression, tuple[float, ...]]:
    """The expression whose outputs `f(t, *inputs)` gives, and its constants."""
    t, inputs = writer(count)
    return expression_of(inputs, f(t, *inputs))


def nests_of_expression(
    made: tuple[Expression, Sequence[float]],
    views: Sequence[Shape],
    dtypes: Sequence[Any],
    shape: Shape,
    results: Sequence[Any],
    number: str = "",
) -> Nests:
    """The nest of an expression of inputs under these views, whose results of these types have `shape`."""
    t, (e, constants) = Computation(), made
    outputs = e.written(t, [t.input(f"x{i}", v) for i, v in enumerate(views)], constants)
    named = {f"y{i}": y for i, y in enumerate(outputs)}
    kinds = {f"x{i}": str(d) for i, d in enumerate(dtypes)} | dict(zip(named, map(str, results)))
    nests = nests_of(t, named, dict.fromkeys(named, shape), kinds, {}, number=number)
    assert nests is not None
    return nests


def in_order(nests: Nests, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The arrays of a nest's call."""
    return [*(inputs[int(n[1:])] for n in nests.inputs), *outputs]
