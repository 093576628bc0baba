"""Calls of operators as nobody would write them: rows of `cases.py` with a few things changed, and noise.

A row is where an operator works; one to three changes (an attribute, an axis, a rank, a dtype, the numbers)
lead to the edge of that, where a check is missing or a kernel goes wrong. Noise finds what is far off.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, get_args, get_origin, Literal, Union

import numpy as np
from hypothesis import strategies as st

from mxlite.core.dtype import FLAGS
from mxlite.core.errors import MXLiteError
from mxlite.graph.attrs import attr_fields, parse_attrs
from mxlite.graph.opdef import Op
from tests.conformance.case import Case, normal
from tests.conformance.cases import CASES

MOST_ELEMENTS = 20_000  # rows with larger inputs are for other tests
ABSURD = (10**9, 2**31, 10**18, 2**63 - 1, -(2**63), 10**30)
DTYPES = tuple(FLAGS.values())

ROWS: dict[type[Op], list[Case]] = {}
for _row in CASES.values():
    if isinstance(_row.attrs, _row.op.Attrs):
        continue  # of an operator that no user calls
    _shape = _row.attrs.get("shape")
    if isinstance(_shape, tuple) and prod(_shape) > MOST_ELEMENTS:
        _row = replace(_row, attrs={**_row.attrs, "shape": (7, 3)})
    if sum(prod(s) for s in _row.shapes) <= MOST_ELEMENTS:
        ROWS.setdefault(_row.op, []).append(_row)


@dataclass(frozen=True)
class Trial:
    """One call: its operator, parameters as a user writes them, and what the arrays are."""

    op: type[Op]
    attrs: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    fill: tuple[str, ...]  # a key of FILLS for each array
    makers: tuple[Callable[..., Any], ...]  # the row's, for fill "row"

    def __repr__(self) -> str:
        arrays = ", ".join(f"{d}{list(s)}:{f}" for s, d, f in zip(self.shapes, self.dtypes, self.fill))
        return f"{self.op.op_name}({arrays}; {self.attrs})"

    def arrays(self) -> list[Any]:
        """The inputs, always the same numbers."""
        rng = np.random.default_rng(1)
        made = []
        for shape, dtype, fill, maker in zip(self.shapes, self.dtypes, self.fill, self.makers):
            try:
                numbers = maker(rng, shape) if fill == "row" else FILLS[fill](rng, shape)
            except ValueError:
                numbers = np.zeros(())
            if np.shape(numbers) != shape:  # a constant of another shape
                numbers = normal(rng, shape)
            with np.errstate(all="ignore"):
                made.append(np.asarray(numbers).astype(dtype, order="C"))
        return made


def _odd(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.choice([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e30, 1e-30, 2.5], shape)


FILLS: dict[str, Any] = {
    "row": None,
    "normal": normal,
    "odd": _odd,
    "zero": lambda rng, shape: np.zeros(shape),
    "small": lambda rng, shape: rng.integers(-3, 7, shape),
    "far": lambda rng, shape: rng.choice([10**9, -(10**9), 2**31 - 1, 7, -7, 0], shape),
}

axes = st.integers(0, 6)
shapes = st.lists(axes, max_size=4).map(tuple)
dtypes = st.sampled_from(DTYPES)
_near = st.integers(-3, 7)
_float = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e-5, 0.1, -0.5, 1e30])
_odd_float = st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0, 1e300, 5e-324])
_word = st.sampled_from(
    [*map(str, DTYPES), "", "None", "relu", "ab,bc->ac", "float31", "0", "C", "NCHW", "tanh"]
)
_nonsense = st.sampled_from(
    [None, "x", "(1, 2", "()", "1e3", "nan", "True", [], {}, 3.5, -0.5, (1, "a"), (None, 1), b"1", 1j, object]
)


def _rarely(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], one_in: int) -> Any:
    return st.integers(1, one_in).flatmap(lambda i: odd if i == one_in else usual)


def attr_values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a parameter's annotation, a few of them wild."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(
            *(st.none() if k is type(None) else attr_values(k) for k in get_args(kind)),
        )
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin is tuple:
        item = _near if get_args(kind)[0] is int else _float
        wild = st.sampled_from(ABSURD) if get_args(kind)[0] is int else _odd_float
        return st.lists(_rarely(item, wild, 20), max_size=5).map(tuple)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return _rarely(_near, st.sampled_from(ABSURD), 12)
    if kind is float:
        return _rarely(_float, _odd_float, 4)
    if kind is str:
        return _word
    return _nonsense


def _text(attrs: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v) for k, v in attrs.items()}


def _fitting(op: type[Op], attrs: dict[str, Any], count: int) -> int:
    """How many arrays the operator takes under `attrs`; `count` where they are wrong."""
    try:
        given = {"num_args": count, **attrs} if op.variadic else attrs
        return min(len(op.input_names(parse_attrs(op, given))), 12)
    except MXLiteError:
        return count


@st.composite
def mutants(draw: Any, op: type[Op]) -> Trial:
    """A row with none to three things changed."""
    row = draw(st.sampled_from(ROWS[op]))
    kinds = row.kinds()
    attrs, shapes_, dtypes_ = dict(row.attrs), list(map(tuple, row.shapes)), [np.dtype(k) for k in kinds]
    names = op.input_names(row.parsed)
    makers = [row.make.get(n, normal) for n in names]
    fill = ["row"] * len(shapes_)
    changes = draw(st.integers(0, 3))
    fields = attr_fields(op)
    for _ in range(changes):
        change = draw(
            st.sampled_from(
                ["attr", "attr", "attr", "axis", "axis", "rank", "dtype", "dtypes", "fill", "drop", "odd"]
            )
        )
        if change == "attr" and fields:
            key = draw(st.sampled_from(sorted(fields)))
            attrs[key] = draw(attr_values(fields[key][0]))
        elif change == "drop" and attrs:
            attrs.pop(draw(st.sampled_from(sorted(attrs))))
        elif change == "odd":
            key = draw(st.sampled_from([*sorted(fields), "nobody", "Axis"]))
            if draw(st.booleans()):
                attrs[key] = draw(_nonsense)
            else:
                attrs = _text(attrs)
        elif change == "dtypes":
            dtypes_ = [draw(dtypes)] * len(dtypes_)
        elif shapes_:
            i = draw(st.integers(0, len(shapes_) - 1))
            shape = list(shapes_[i])
            if change == "dtype":
                dtypes_[i] = draw(dtypes)
            elif change == "fill":
                fill[i] = draw(st.sampled_from(sorted(FILLS)))
            elif change == "rank":
                if draw(st.booleans()) and shape:
                    shape.pop(draw(st.integers(0, len(shape) - 1)))
                else:
                    shape.insert(draw(st.integers(0, len(shape))), draw(st.integers(0, 3)))
            elif shape:
                k, n = draw(st.integers(0, len(shape) - 1)), draw(axes)
                old = shape[k]
                shape[k] = n
                if draw(st.booleans()):  # all axes of that length, so that the shapes still fit
                    shapes_ = [tuple(n if d == old else d for d in s) for s in shapes_]
                    shape = list(shapes_[i])
            shapes_[i] = tuple(shape)
    count = _fitting(op, attrs, len(shapes_)) if draw(st.integers(0, 9)) else draw(st.integers(0, 4))
    return _of(op, attrs, shapes_, dtypes_, fill, makers, count)


@st.composite
def noise(draw: Any, op: type[Op]) -> Trial:
    """Shapes, dtypes and parameters that know nothing of each other."""
    fields = attr_fields(op)
    attrs = {
        k: draw(attr_values(kind))
        for k, (kind, required) in fields.items()
        if (required and k != "num_args") or draw(st.integers(0, 3)) == 0
    }
    count = _fitting(op, attrs, draw(st.integers(0, 3)))
    shape, dtype = draw(shapes), draw(dtypes)
    alike = draw(st.booleans())
    shapes_ = [shape if alike else draw(shapes) for _ in range(count)]
    dtypes_ = [dtype if alike else draw(dtypes) for _ in range(count)]
    fill = [draw(st.sampled_from(sorted(set(FILLS) - {"row"}))) for _ in range(count)]
    return _of(op, attrs, shapes_, dtypes_, fill, [normal] * count, count)


def _of(
    op: type[Op],
    attrs: dict[str, Any],
    shapes_: Sequence[tuple[int, ...]],
    dtypes_: Sequence[np.dtype[Any]],
    fill: Sequence[str],
    makers: Sequence[Any],
    count: int,
) -> Trial:
    """A trial of `count` arrays: those there are, the last one again for those that miss."""

    def first(items: Sequence[Any], default: Any) -> tuple[Any, ...]:
        have = list(items) or [default]
        most = count if op.variadic else min(count, len(op.inputs))
        return tuple((have + have[-1:] * count)[:most])

    return Trial(
        op,
        attrs,
        first(shapes_, (2, 3)),
        first(dtypes_, DTYPES[0]),
        first(fill, "normal"),
        first(makers, normal),
    )


def trials(op: type[Op]) -> st.SearchStrategy[Trial]:
    """Four mutants to one of noise."""
    return st.integers(0, 4).flatmap(lambda i: noise(op) if i == 4 or op not in ROWS else mutants(op))
