"""Scans in generated code: ``y = factor * y + term``, a value that is carried along an axis.

Along an axis whose neighbours are in other vectors, the value is a vector and goes on by one operation a row.
Along the axis of the vectors it goes from lane to lane. Sums and products do so in log2(width) steps, each of
which joins to every lane what stands 1, 2, 4, ... lanes before it; that needs nothing of earlier vectors,
which is joined in the end, so only one operation and the spread of the last lane wait for each other. Other
factors go from lane to lane one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ....nests.nest import Nest
from ..codegen.emitter import Function
from ..codegen.ir import Value


@dataclass(frozen=True)
class Scan:
    """A scan of a nest: the values that it reads, and how it goes. `is_sum`: its factor is 1. `is_product`:
    its term is 0.
    """

    first: int
    factor: int
    term: int
    reverse: bool
    exclusive: bool
    is_sum: bool
    is_product: bool


def scans_of(nest: Nest) -> dict[int, Scan]:
    """The scans of a nest by the numbers of their values."""
    found = {}
    for i, (name, *rest) in enumerate(nest.steps, nest.first_step):
        if name == "scan":
            first, factor, term, reverse, exclusive = cast(tuple[int, int, int, bool, bool], tuple(rest))
            is_sum = _is_number(nest, factor, 1.0)
            is_product = not is_sum and _is_number(nest, term, 0.0)
            found[i] = Scan(first, factor, term, reverse, exclusive, is_sum, is_product)
    return found


def _is_number(nest: Nest, i: int, value: float) -> bool:
    """True for a literal of this value."""
    return i >= nest.first_step and nest.steps[i - nest.first_step] == ("number", value)


def carried_on(
    f: Function,
    scan: Scan,
    along: bool,
    factor: Value | None,
    term: Value | None,
    before: Value,
    mask: Value | None,
) -> tuple[Value, Value]:
    """The values of a scan at a point, and what it has come to behind them; `factor` and `term` are None
    where they change nothing. `along`: the axis is that of the vectors, whose lanes outside `mask` are
    passed by.
    """
    if not along:
        after = _next(f, factor, term, before)
        return before if scan.exclusive else after, after
    if factor is None or term is None:
        made = _doubled(f, scan, factor, term, before, mask)
    else:
        made = _by_lanes(f, scan, factor, term, before, mask)
    last = f.every(f.lane(made, 0 if scan.reverse else f.width - 1))
    return _shifted(f, made, before, 1, scan.reverse) if scan.exclusive else made, last


def _next(f: Function, factor: Value | None, term: Value | None, before: Value) -> Value:
    if factor is None:
        assert term is not None
        return f.add(before, term)
    return f.mul(factor, before) if term is None else f.fma(factor, before, term)


def _doubled(
    f: Function, scan: Scan, factor: Value | None, term: Value | None, before: Value, mask: Value | None
) -> Value:
    """Sums or products, whose partial ones double their length in each step."""
    given, join = (term, f.add) if factor is None else (factor, f.mul)
    assert given is not None
    neutral = f.const(-0.0 if factor is None else 1.0)  # to which -0.0 is added as it is
    made = given if mask is None else f.select(mask, given, neutral)
    distance = 1
    while distance < f.width:
        made = join(made, _shifted(f, made, neutral, distance, scan.reverse))
        distance *= 2
    return join(made, before)


def _by_lanes(
    f: Function, scan: Scan, factor: Value, term: Value, before: Value, mask: Value | None
) -> Value:
    """One lane after the other."""
    made, at = before, f.lane(before, 0)
    for k in reversed(range(f.width)) if scan.reverse else range(f.width):
        after = _next(f, f.lane(factor, k), f.lane(term, k), at)
        at = after if mask is None else f.either(f.lane(mask, k), after, at)
        made = f.with_lane(made, at, k)
    return made


def _shifted(f: Function, x: Value, filled: Value, distance: int, reverse: bool) -> Value:
    """Each lane gets what stands so many lanes before it in the scan's order; the first ones get `filled`."""
    width = f.width
    if reverse:
        return f.shuffle(x, filled, [k + distance for k in range(width)])
    return f.shuffle(x, filled, [k - distance if k >= distance else width + k for k in range(width)])
