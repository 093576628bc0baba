"""Products of any number of arrays, summed over named axes."""

from __future__ import annotations

import functools
import operator
from math import prod

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..declared import Declared
from .contraction import Bench, contract, diagonal, Operand, parse, sizes_of, Target


class einsum(Op):
    """Sum of products over named axes: ``einsum(x, y, subscripts="ik,kj->ij")`` is the matrix product.

    args: `num_args` arrays, a letter for each axis  ->  out: an axis for each letter after ``->``; (1,) if
    there is none. Without ``->``: the letters that occur once, in the order of the alphabet.

    A letter twice in one operand takes its diagonal, twice in the result makes one, 0 elsewhere. There is no
    ellipsis. Operands are contracted from left to right, each time by a matrix product: their order decides
    the cost. A gradient is the contraction of the head gradient with the other operands. As numpy's and
    PyTorch's.
    """

    variadic = "args"
    accepts = "number"

    @record
    class Attrs:
        num_args: int
        subscripts: str

    @staticmethod
    def infer_shape(a, *shapes):
        terms, result = parse(a.subscripts, a.num_args)
        sizes = sizes_of(terms, shapes)
        return shapes, (tuple(sizes[x] for x in result) or (1,),)

    @staticmethod
    def flops(a, inputs, outputs):
        return _measure(a, inputs, "float32").flops

    @staticmethod
    def backward_flops(a, inputs, outputs):
        return sum(_measure_back(a, inputs, i, "float32").flops for i in range(len(inputs)))

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return _measure(a, inputs, dtype).nbytes

    @staticmethod
    def backward_workspace(a, inputs, outputs, dtype):
        return max(_measure_back(a, inputs, i, dtype).nbytes for i in range(len(inputs)))

    @staticmethod
    def forward(xp, a, *args, out, work):
        terms, result = parse(a.subscripts, a.num_args)
        sizes = sizes_of(terms, tuple(x.shape for x in args))
        _run(xp, Bench(out.dtype, work), terms, args, result, sizes, out)

    @classmethod
    def unneeded(cls, a):
        # The gradient of an operand reads the others.
        return frozenset(["arg0"] if a.num_args == 1 else [])

    @staticmethod
    def backward(xp, a, d_out, args, *, d_args, work, shapes):
        terms, result = parse(a.subscripts, a.num_args)
        sizes = sizes_of(terms, shapes[0])
        for i, into in enumerate(d_args):
            if into is not None:
                others, arrays = [result, *terms[:i], *terms[i + 1 :]], [d_out, *args[:i], *args[i + 1 :]]
                _run(xp, Bench(into.dtype, work), others, arrays, terms[i], sizes, into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        terms, result = parse(a.subscripts, a.num_args)
        arrays, gradients = list(ins.values()), {}
        for i, (name, x) in enumerate(ins.items()):
            others, given = (
                [result, *terms[:i], *terms[i + 1 :]],
                [heads["out"], *arrays[:i], *arrays[i + 1 :]],
            )
            if set(terms[i]) - set("".join(others)):  # summed by itself: ones carry the letters
                others, given = [*others, terms[i]], [*given, w.ones_like(x)]
            gradients[name] = w.einsum(*given, subscripts=f"{','.join(others)}->{terms[i]}")
        return gradients


def _run(xp, bench, terms, arrays, result, sizes, out):
    parts = []
    for term, x in zip(terms, arrays):
        letters, view = diagonal(term, x)
        parts.append(Operand(letters, tuple(sizes[c] for c in letters), view, len(letters) == len(term)))
    letters, into = diagonal(result, out)
    plain = len(letters) == len(result)
    if out is not None and not plain:
        out.fill(0)
    contract(xp, bench, parts, Target(letters, into, plain), sizes)


def _measure(a, shapes, dtype):
    terms, result = parse(a.subscripts, a.num_args)
    bench = Bench(dtype)
    _run(None, bench, terms, [None] * len(terms), result, sizes_of(terms, shapes), None)
    return bench


def _measure_back(a, shapes, i, dtype):
    terms, result = parse(a.subscripts, a.num_args)
    bench = Bench(dtype)
    others = [result, *terms[:i], *terms[i + 1 :]]
    _run(None, bench, others, [None] * len(terms), terms[i], sizes_of(terms, shapes), None)
    return bench


class khatri_rao(Declared):
    """Kronecker product column by column: column r of `out` is that of the columns r of the arguments.

    args: `num_args` matrices (M1, R), (M2, R), ...  ->  out: (M1 * M2 * ..., R).
    """

    variadic = "args"
    accepts = "number"
    backward_reads = ("d_out", "args")
    gradients = ("args",)

    @record
    class Attrs:
        num_args: int

    @staticmethod
    def compute(t, a, **args):
        rows = [
            t.view(x, (*(1,) * k, x.shape[0], *(1,) * (len(args) - 1 - k), x.shape[1]))
            for k, x in enumerate(args.values())
        ]
        return {"out": functools.reduce(operator.mul, rows)}

    @staticmethod
    def infer_shape(a, *shapes):
        if any(len(s) != 2 or s[1] != shapes[0][1] for s in shapes):
            raise ShapeError(f"args must be matrices of equally many columns, got {list(shapes)}.")
        return shapes, ((prod(s[0] for s in shapes), shapes[0][1]),)
