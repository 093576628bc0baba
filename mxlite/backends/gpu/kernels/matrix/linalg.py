"""Triangular systems, Cholesky factors, inverses and determinants of small matrices, batched.

A thread has an element of a product or a column of a system, a block a matrix to be factored. Sums are in
the order of their terms. Matrices of more than 512 rows are left to the host's LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from .....ops.linalg import factorizations, matrices
from ....base import ChosenKernel, Request
from ...compiler.source import assembled, KernelSource, structure, typedefs
from ...handwritten.each import each, launch
from ...rows import answer, are_few, Row, table
from ...runtime.device import Device, InOrder, nothing, Run
from ...runtime.scratch import Scratch

WHOLE, LOWER, UPPER, MIRRORED = range(4)
LARGEST = 512  # rows and columns of a matrix
Build = Callable[["Steps", Any, dict[str, Any]], list[Run]]
"""(steps, attributes, arrays and scratch by name) -> launches."""


_Matrices: Any = structure("linalg", "Matrices")


def source(wide: bool) -> KernelSource:
    """The kernels of linalg.cuh for float64, or for float32."""
    return assembled("types", "math", "index", typedefs(A="double" if wide else "float"), "linalg")


class Steps:
    """Launches for matrices of one type; `count` of them."""

    def __init__(self, device: Device, r: Request) -> None:
        self.device, self.text = device, source(str(r.dtype) == "float64")
        self.count = prod(r.inputs[0][:-2])

    def multiply(self, x: Any, y: Any, out: Any, size: tuple[int, int, int], **how: Any) -> Run:
        """out = alpha * op(x) @ op(y); size: rows and columns of out, and the summed length."""
        made = _Matrices(*(self.device.address(m) for m in (x, y, out)), how.pop("alpha", 1.0), *size)
        for name, value in how.items():
            setattr(made, name, value)
        return each(self.device, self.text, "multiply", self.count * size[0] * size[1], made)

    def solve(self, t: Any, b: Any, out: Any, size: int, others: int, **how: Any) -> Run:
        """op(t) @ out = alpha * b; right: out @ op(t)."""
        lower, turn, right = (
            int(how.get(n, d)) for n, d in (("lower", True), ("turn", False), ("right", False))
        )
        last = size, others, lower, turn, right, float(how.get("alpha", 1.0))
        return each(self.device, self.text, "solve", self.count * others, t, b, out, *last)

    def blocks(self, name: str, *values: Any) -> Run:
        """A launch with a block of threads for each matrix."""
        return launch(self.device, self.text, name, self.count, 256, *values) if self.count else nothing

    def elements(self, name: str, n: int, *values: Any) -> Run:
        return each(self.device, self.text, name, n, *values)


def _n(x: dict[str, Any]) -> int:
    return int(x["A"].shape[-1] if x.get("A") is not None else x["out"].shape[-1])


def _syrk(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    rows, columns = x["A"].shape[-2:]
    n, inner = (columns, rows) if a.transpose else (rows, columns)
    turns = {"turn_x": a.transpose, "turn_y": not a.transpose}
    return [s.multiply(x["A"], x["A"], x["out"], (n, n, inner), alpha=a.alpha, **turns)]


def _syrk_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    rows, columns = x["A"].shape[-2:]
    runs = []
    for add in (0, 1):
        how = {"alpha": a.alpha, "add": add}
        if a.transpose:
            size = rows, columns, columns
            runs.append(s.multiply(x["A"], x["d_out"], x["d_A"], size, turn_y=add, **how))
        else:
            size = rows, columns, rows
            runs.append(s.multiply(x["d_out"], x["A"], x["d_A"], size, turn_x=add, **how))
    return runs


def _trmm(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [_by_triangle(s, a, x["A"], x["B"], x["out"], a.transpose)]


def _by_triangle(s: Steps, a: Any, t: Any, y: Any, out: Any, turn: bool) -> Run:
    part, (rows, columns) = LOWER if a.lower else UPPER, y.shape[-2:]
    if a.rightside:
        how = {"turn_y": turn, "part_y": part}
        return s.multiply(y, t, out, (rows, columns, columns), alpha=a.alpha, **how)
    return s.multiply(t, y, out, (rows, columns, rows), alpha=a.alpha, turn_x=turn, part_x=part)


def _slope(s: Steps, a: Any, y: Any, d: Any, out: Any, alpha: float) -> Run:
    """The gradient in the triangle: y.T @ d from the right, else d @ y.T, transposed if the triangle was."""
    n, (rows, columns) = out.shape[-1], y.shape[-2:]
    inner, part = rows if a.rightside else columns, LOWER if a.lower else UPPER
    first, second = (y, d) if a.rightside else (d, y)
    turn_x, turn_y = a.rightside, not a.rightside
    if a.transpose:
        first, second, turn_x, turn_y = second, first, not turn_y, not turn_x
    how = {"turn_x": turn_x, "turn_y": turn_y, "part_out": part}
    return s.multiply(first, second, out, (n, n, inner), alpha=alpha, **how)


def _trmm_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    runs = []
    if x["d_A"] is not None:
        runs.append(_slope(s, a, x["B"], x["d_out"], x["d_A"], a.alpha))
    if x["d_B"] is not None:
        runs.append(_by_triangle(s, a, x["A"], x["d_out"], x["d_B"], not a.transpose))
    return runs


def _system(s: Steps, a: Any, t: Any, b: Any, out: Any, turn: bool, alpha: float) -> Run:
    n, others = t.shape[-1], b.shape[-2] if a.rightside else b.shape[-1]
    return s.solve(t, b, out, n, others, lower=a.lower, turn=turn, right=a.rightside, alpha=alpha)


def _trsm(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [_system(s, a, x["A"], x["B"], x["out"], a.transpose, a.alpha)]


def _trsm_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    back = x["first"]
    runs = [_system(s, a, x["A"], x["d_out"], back, not a.transpose, 1.0)]
    if x["d_A"] is not None:
        runs.append(_slope(s, a, x["out"], back, x["d_A"], -1.0))
    if x["d_B"] is not None:
        runs.append(_system(s, a, x["A"], x["d_out"], x["d_B"], not a.transpose, a.alpha))
    return runs


def _potrf(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [s.blocks("factor", x["A"], x["out"], _n(x))]


def _potrf_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n, low, inner, half = x["out"].shape[-1], x["out"], x["first"], x["second"]
    return [
        s.multiply(low, x["d_out"], inner, (n, n, n), turn_x=1, part_out=MIRRORED),
        s.solve(low, inner, half, n, n, turn=True),
        s.solve(low, half, x["d_A"], n, n, right=True, alpha=0.5),
    ]


def _potri(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n, half = _n(x), x["first"]
    solve = s.solve(x["A"], None, half, n, n)
    return [solve, s.multiply(half, half, x["out"], (n, n, n), turn_x=1)]


def _potri_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n, both, solved = _n(x), x["first"], x["second"]
    return [
        s.multiply(x["out"], x["d_out"], both, (n, n, n)),
        s.multiply(x["out"], x["d_out"], both, (n, n, n), turn_y=1, add=1),
        s.solve(x["A"], both, solved, n, n, turn=True, right=True),
        s.elements("keep_triangle", s.count * n * n, solved, x["d_A"], n, -1.0),
    ]


def _inverse(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [s.blocks("eliminate", x["A"], x["first"], x["out"], None, None, None, _n(x))]


def _inverse_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n, y = x["out"].shape[-1], x["out"]
    return [
        s.multiply(y, x["d_out"], x["first"], (n, n, n), turn_x=1),
        s.multiply(x["first"], y, x["d_A"], (n, n, n), turn_y=1, alpha=-1.0),
    ]


def _det(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [s.blocks("eliminate", x["A"], x["first"], None, x["out"], None, None, _n(x))]


def _slogdet(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [s.blocks("eliminate", x["A"], x["first"], None, None, x["sign"], x["logabsdet"], _n(x))]


def _det_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n, of = _n(x), x.get("out")
    head, y = (x["d_logabsdet"], x["logabsdet"]) if of is None else (x["d_out"], of)
    if head is None:
        return [s.elements("keep_triangle", s.count * n * n, None, x["d_A"], n, 0.0)]
    last = x["second"], head, y, x["d_A"], n, int(of is None)
    return [
        s.blocks("eliminate", x["A"], x["first"], x["second"], None, None, None, n),
        s.elements("scale_turned", s.count * n * n, *last),
    ]


def _sumlogdiag(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    return [s.elements("sum_log_diagonal", s.count, x["A"], x["out"], _n(x))]


def _sumlogdiag_gradient(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
    n = _n(x)
    return [s.elements("over_diagonal", s.count * n * n, x["d_out"], x["A"], x["d_A"], n)]


def _triangle_vector(matrix: str, vector: str, extract: bool) -> Build:
    def build(s: Steps, a: Any, x: dict[str, Any]) -> list[Run]:
        n, length = x[matrix].shape[-1], x[vector].shape[-1]
        upper = a.offset > 0 or (a.offset == 0 and not a.lower)
        given, out = (x[matrix], x[vector]) if extract else (x[vector], x[matrix])
        offset = -a.offset if upper else a.offset
        last = n, offset, int(upper), length, int(extract)
        return [s.elements("triangle_vector", prod(x[matrix].shape), given, out, *last)]

    return build


_VECTORS = (
    _triangle_vector("A", "out", True),
    _triangle_vector("d_A", "d_out", False),
    _triangle_vector("out", "A", False),
    _triangle_vector("d_out", "d_A", True),
)

_OPERATORS: dict[str, tuple[Build, int, Build, int]] = {
    "_linalg_syrk": (_syrk, 0, _syrk_gradient, 0),
    "_linalg_trmm": (_trmm, 0, _trmm_gradient, 0),
    "_linalg_trsm": (_trsm, 0, _trsm_gradient, 1),
    "_linalg_potrf": (_potrf, 0, _potrf_gradient, 2),
    "_linalg_potri": (_potri, 1, _potri_gradient, 2),
    "_linalg_inverse": (_inverse, 1, _inverse_gradient, 1),
    "_linalg_det": (_det, 1, _det_gradient, 2),
    "_linalg_slogdet": (_slogdet, 1, _det_gradient, 2),
    "_linalg_sumlogdiag": (_sumlogdiag, 0, _sumlogdiag_gradient, 0),
    "_linalg_extracttrian": (_VECTORS[0], 0, _VECTORS[1], 0),
    "_linalg_maketrian": (_VECTORS[2], 0, _VECTORS[3], 0),
}
"""Launches forward and backward, each with its number of scratch arrays, as large as the largest array."""


def _row(build: Build, arrays: int) -> Row:
    def answered(device: Device, r: Request) -> ChosenKernel | None:
        large = any(max(s[-2:], default=0) > LARGEST for s in r.inputs) and build not in _VECTORS
        if large or str(r.dtype) not in ("float32", "float64") or not are_few(r):
            return None
        nbytes = max(prod(s) for s in (*r.inputs, *r.outputs)) * r.dtype.itemsize
        scratch = Scratch(**dict.fromkeys(("first", "second")[:arrays], nbytes))
        steps, needs = Steps(device, r), r.op.signature.needs

        def connect(a: Any, *inputs: Any, work: Any = None, **made: Any) -> Run:
            have = dict(zip(needs, inputs)) | made
            have |= {n: x.view(r.dtype) for n, x in scratch.parts(work).items()}
            return InOrder(build(steps, a, have))

        return answer(r, connect, scratch.nbytes, "cuda linalg")

    return answered


rows = table(
    *(
        (getattr(factorizations, n, None) or getattr(matrices, n), _row(forward, own), _row(backward, more))
        for n, (forward, own, backward, more) in _OPERATORS.items()
    )
)
