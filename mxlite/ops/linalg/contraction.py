"""Sums of products over named axes, step by step from left to right, each step one matrix product.

Two operands are seen as matrices: their letters fall into batch (in both, and kept), contracted (in both),
left and right. An operand whose letters are in a fitting order is a view; else it is copied into that order
in scratch. So ``bik,bkj->bij`` costs one matmul and nothing else, and ``abcd,dbe->eac`` a matmul and some
transposing.

The same code measures and works: a `Bench` without memory only sums up the bytes of a run.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import OpAttributeError, ShapeError
from ...graph.ir import Shape
from ..blocks import accumulate, accumulate_bytes

_ALIGN = 64  # bytes


class Operand(NamedTuple):
    """An array or a placeholder for one, with a letter for each axis."""

    letters: str
    shape: Shape
    array: Any = None
    ordered: bool = True  # in C order without gaps


class Bench:
    """An allocator of scratch from `work`; without `work` it only counts, in `nbytes`."""

    def __init__(self, dtype: Any, work: Any = None) -> None:
        self.dtype, self.work, self.nbytes, self.flops = np.dtype(dtype), work, 0, 0

    def bytes(self, count: int) -> Any:
        begin = self.nbytes
        self.nbytes += -(-count // _ALIGN) * _ALIGN
        return None if self.work is None else self.work[begin : begin + count]

    def take(self, letters: str, sizes: dict[str, int]) -> Operand:
        shape = tuple(sizes[x] for x in letters)
        block = self.bytes(prod(shape) * self.dtype.itemsize)
        return Operand(letters, shape, None if block is None else block.view(self.dtype).reshape(shape))


def parse(subscripts: str, count: int) -> tuple[list[str], str]:
    """The letters of each operand, and of the result."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if "." in text:
        raise OpAttributeError(
            f"parameter 'subscripts' {subscripts!r}: an ellipsis is not supported; name each axis."
        )
    if not all(c.isalpha() for c in left.replace(",", "") + result):
        raise OpAttributeError(f"parameter 'subscripts' {subscripts!r} must be letters, commas and one '->'.")
    if len(terms) != count:
        raise OpAttributeError(
            f"parameter 'subscripts' {subscripts!r} has {len(terms)} operands, not {count}."
        )
    if not arrow:
        result = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    if unknown := set(result) - set(left):
        raise OpAttributeError(
            f"parameter 'subscripts' {subscripts!r}: no operand has {sorted(unknown)[0]!r}."
        )
    return terms, result


def sizes_of(terms: list[str], shapes: tuple[Shape, ...]) -> dict[str, int]:
    """The length of each letter. Raises ShapeError if two differ."""
    sizes: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes)):
        if len(term) != len(shape) and not (term == "" and shape == (1,)):
            raise ShapeError(f"arg{i} {shape} must have {len(term)} axes, for its subscripts are {term!r}.")
        for letter, length in zip(term, shape):
            if sizes.setdefault(letter, length) != length:
                raise ShapeError(f"arg{i} {shape}: axis {letter!r} must be {sizes[letter]} long, as before.")
    return sizes


def diagonal(term: str, x: Any) -> tuple[str, Any]:
    """The diagonal of `x` over equal letters, each letter once; a view."""
    letters = "".join(dict.fromkeys(term))
    if x is None or len(letters) == len(term):
        return letters, x if term or x is None else x.reshape(())
    strides = [sum(s for c, s in zip(term, x.strides) if c == letter) for letter in letters]
    shape = [x.shape[term.index(letter)] for letter in letters]
    return letters, np.lib.stride_tricks.as_strided(x, shape, strides)


class Target(NamedTuple):
    """The destination of a result: a view of the right shape, `plain` if it is in C order without gaps."""

    letters: str
    array: Any
    plain: bool


def contract(xp: Any, bench: Bench, parts: list[Operand], target: Target, sizes: dict[str, int]) -> None:
    """Write the sum of the product of `parts` over the letters that `target` lacks into it.

    Letters of `target` that no part has are broadcast.
    """
    total, *rest = parts
    for i, part in enumerate(rest):
        needed = set(target.letters) | {x for p in rest[i + 1 :] for x in p.letters}
        total = _pair(xp, bench, total, part, needed, sizes, target if i == len(rest) - 1 else None)
    total = _summed(xp, bench, total, set(target.letters), sizes, target)
    if target.array is not None and total.array is not target.array:
        order = [total.letters.index(x) for x in target.letters if x in total.letters]
        index = tuple(slice(None) if x in total.letters else None for x in target.letters)
        xp.copyto(target.array, total.array.transpose(order)[index])


def _place(bench: Bench, letters: str, sizes: dict[str, int], target: Target | None) -> Operand:
    """The target itself if it can hold a result in this order of letters, else scratch."""
    if target is not None and target.plain and target.letters == letters:
        return Operand(letters, tuple(sizes[x] for x in letters), target.array)
    return bench.take(letters, sizes)


def _summed(
    xp: Any,
    bench: Bench,
    part: Operand,
    needed: set[str],
    sizes: dict[str, int],
    target: Target | None = None,
) -> Operand:
    """`part` summed over the letters that are not needed any more."""
    axes = tuple(i for i, x in enumerate(part.letters) if x not in needed)
    if not axes:
        return part
    bench.flops += prod(part.shape)
    result = _place(bench, "".join(x for x in part.letters if x in needed), sizes, target)
    work = bench.bytes(accumulate_bytes(result.shape, bench.dtype))
    if result.array is not None:
        kept = tuple(1 if i in axes else d for i, d in enumerate(part.shape))
        accumulate(xp, xp.add, part.array, axes, result.array.reshape(kept), work)
    return result


def _pair(
    xp: Any,
    bench: Bench,
    x: Operand,
    y: Operand,
    needed: set[str],
    sizes: dict[str, int],
    target: Target | None,
) -> Operand:
    """The product of two parts, summed over the letters that only they have."""
    x = _summed(xp, bench, x, needed | set(y.letters), sizes)
    y = _summed(xp, bench, y, needed | set(x.letters), sizes)
    both = [c for c in x.letters if c in y.letters]
    b, k = "".join(c for c in both if c in needed), "".join(c for c in both if c not in needed)
    m = "".join(c for c in x.letters if c not in y.letters)
    n = "".join(c for c in y.letters if c not in x.letters)
    if target is not None and target.letters == b + n + m:
        x, y, m, n = y, x, n, m
    bench.flops += 2 * prod(sizes[c] for c in b + m + k + n)
    left, right = _matrices(xp, bench, x, b, m, k, sizes), _matrices(xp, bench, y, b, k, n, sizes)
    result = _place(bench, b + m + n, sizes, target)
    if result.array is not None:
        into = result.array.reshape([prod(sizes[c] for c in group) for group in (b, m, n)])
        if k:
            xp.matmul(left, right, out=into)
        else:
            xp.multiply(left, right, out=into)
    return result


def _matrices(
    xp: Any, bench: Bench, part: Operand, b: str, rows: str, columns: str, sizes: dict[str, int]
) -> Any:
    """(B, R, C) of a part, as a view if its letters' order allows one that BLAS takes, else as a copy."""
    shape = {g: prod(sizes[c] for c in g) for g in (b, rows, columns)}
    if part.ordered:
        for order, back in (
            ((b, rows, columns), (0, 1, 2)),
            ((b, columns, rows), (0, 2, 1)),
            ((rows, b, columns), (1, 0, 2)),
            ((columns, b, rows), (1, 2, 0)),
        ):
            if "".join(order) == part.letters:
                if part.array is None:
                    return None
                return part.array.reshape([shape[g] for g in order]).transpose(back)
    copied = bench.take(b + rows + columns, sizes)
    if copied.array is None:
        return None
    xp.copyto(copied.array, part.array.transpose([part.letters.index(c) for c in b + rows + columns]))
    return copied.array.reshape(shape[b], shape[rows], shape[columns])
