"""Random computations, and their results by generated code and by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled.nests import Loops
from mxlite.backends.cpu.onednn.primitive import address_of
from mxlite.backends.nests.build import nests_of
from mxlite.backends.nests.nest import Nests
from mxlite.te.computation import Computation, needed_by, REDUCTIONS, Tensor
from mxlite.te.steps import COMPARISONS, NUMPY

STEPS = ("add", "sub", "mul", "max", "min", "abs", "neg", "exp", "where", "reciprocal")
REDUCED = ("sum", "sum", "mean", "max", "min", "prod")


def drawn(rng: np.random.Generator) -> tuple[Computation, dict[str, Tensor], dict[str, tuple[int, ...]]]:
    """A computation of a few steps and reductions, its outputs, and the shapes of its inputs."""
    t = Computation()
    rank = int(rng.integers(1, 5))
    long = rng.integers(0, rank)
    domain = tuple(
        int(rng.choice([1, 2, 3, 17, 40])) if i != long else int(rng.choice([5, 33, 130, 300]))
        for i in range(rank)
    )
    shapes = {}
    for k in range(int(rng.integers(1, 4))):
        there = rng.random(rank) < (1.1 if k == 0 else 0.6)
        shapes[f"x{k}"] = tuple(n if own else 1 for n, own in zip(domain, there))
    values = [t.input(n, s) for n, s in shapes.items()]
    for _ in range(int(rng.integers(2, 10))):
        x, y = (values[int(i)] for i in rng.integers(max(0, len(values) - 4), len(values), 2))
        if rng.random() < 0.45:
            axes = [i for i in range(rank) if rng.random() < 0.5] or [int(rng.integers(rank))]
            kind = str(rng.choice(REDUCED))
            values.append(getattr(t, kind)(_bounded(t, x, 1.0) if kind == "prod" else x, axes))
            continue
        if rng.random() < 0.12:
            source, axis = values[int(rng.integers(len(shapes)))], int(rng.integers(rank))
            if y.shape[axis] == 1:
                values.append(t.pick(source, t.abs(y) * float(rng.integers(1, 50)), axis))
                continue
        name = str(rng.choice(STEPS))
        if name == "where":
            values.append(t.where("gt", x, y, x, 0.5))
        elif name == "reciprocal":
            values.append(x / (t.abs(y) + 1.0))
        elif name == "exp":
            values.append(t.exp(-t.abs(x)))
        elif name in ("abs", "neg"):
            values.append(t(name, x))
        elif name == "mul":
            values.append(_bounded(t, x, 2.0) * _bounded(t, y, 2.0))
        else:
            values.append(t(name, x, y))
    picked = [values[-1], *(values[int(i)] for i in rng.integers(len(shapes), len(values), 2))]
    return t, {f"y{k}": x for k, x in enumerate(dict.fromkeys(picked))}, shapes


def _bounded(t: Computation, x: Tensor, most: float) -> Tensor:
    return t("min", t("max", x, -most), most)


def nests(
    t: Computation,
    outputs: Mapping[str, Tensor],
    shapes: Mapping[str, Any],
    donors: Mapping[str, frozenset[str]] | None = None,
) -> Nests:
    """The nests for these outputs, of float32 arrays."""
    dtypes = dict.fromkeys((*shapes, *outputs), "float32")
    found = nests_of(t, outputs, {n: x.shape for n, x in outputs.items()}, dtypes, donors or {})
    assert found is not None
    return found


def run(
    found: Nests,
    outputs: Mapping[str, Tensor],
    arrays: Mapping[str, Any],
    over: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The outputs of the generated code; `over`: outputs that are written over inputs.

    Nothing is written beyond an array.
    """
    own = {n: _block(prod(x.shape)) for n, x in outputs.items() if n not in (over or {})}
    scratch = [_block(n) for n in found.scratch]
    made = {
        n: own[n][:-64].reshape(x.shape) if n in own else arrays[(over or {})[n]] for n, x in outputs.items()
    }
    loops = Loops(found)
    given = [*(arrays[n] for n in found.inputs), *(made[n] for n in found.outputs), *scratch]
    loops.call([address_of(x) for x in given], keep=given)()
    for block in (*own.values(), *scratch):
        assert np.isnan(block[-64:]).all(), "written beyond an array"
    return made


def _block(elements: int) -> Any:
    """So many numbers, and 64 that nobody writes."""
    block = CPU.empty(4 * (elements + 64)).view("float32")
    block[:] = np.nan
    return block


def evaluate(
    t: Computation, outputs: Sequence[Tensor], arrays: Mapping[str, Any], dtype: Any = np.float64
) -> list[Any]:
    """The values of tensors for these inputs, in `dtype`, computed one after the other: the oracle."""
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for number in sorted(needed_by(t, (x.number for x in outputs))):
            name, *rest = t.nodes[number]
            if name == "input":
                values[number] = np.asarray(arrays[rest[0]]).reshape(rest[1]).astype(dtype)
            elif name in ("constant", "number"):
                values[number] = np.asarray(rest[0], dtype)
            elif name == "index":
                values[number] = np.arange(rest[1], dtype=dtype).reshape(-1, *(1,) * (-1 - rest[0]))
            elif name in REDUCTIONS:
                values[number] = REDUCTIONS[name].reduce(values[rest[0]], axis=rest[1], keepdims=True)
            elif name == "gather":
                x, index, at = values[rest[0]], values[rest[1]], rest[2]
                rank = max(x.ndim, index.ndim)
                x, index = (v.reshape((1,) * (rank - v.ndim) + v.shape) for v in (x, index))
                one = tuple(1 if i - rank == at else n for i, n in enumerate(x.shape))
                whole = np.broadcast_shapes(one, index.shape)
                full = [x.shape[i] if i - rank == at else n for i, n in enumerate(whole)]
                places = np.broadcast_to(index, whole).astype(np.int64)
                values[number] = np.take_along_axis(np.broadcast_to(x, full), places, at)
            elif name == "scatter":
                base, index, terms = (values[x] for x in rest[:3])
                total, whole = base.copy(), np.broadcast_shapes(index.shape, terms.shape)
                places = list(np.indices(whole, sparse=True))
                for axis, n in enumerate(total.shape):
                    if n == 1:
                        places[axis] = 0
                places[rest[3]] = np.broadcast_to(index, whole).astype(np.int64)
                np.add.at(total, tuple(places), np.broadcast_to(terms, whole))
                values[number] = total
            elif name == "broadcast":
                values[number] = np.broadcast_to(values[rest[0]], rest[1])
            else:
                kind = np.bool_ if name in COMPARISONS else dtype
                values[number] = np.asarray(NUMPY[name](*(values[x] for x in rest)), kind)
    return [np.broadcast_to(values[x.number], x.shape) for x in outputs]


def reference(t: Computation, outputs: Mapping[str, Tensor], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs as numpy computes them in float64."""
    return dict(zip(outputs, evaluate(t, list(outputs.values()), arrays)))
