"""Tile fusion over samples: operators that run on some samples at a time, one after the other.

An array that one operator computes only for the next, sample by sample, need not be stored as a whole:

    for samples [a, b)    d = d_out[a:b] @ weight                      a band, in the same bytes each time
                          d, g = gradients of a norm(d, data[a:b])     g a part of a sum
                          out[a:b] = d + more[a:b]                     which may overwrite `more`
    d_gamma = sum of all g

No operator runs twice on a sample. `passes/tiling/banded.py` selects the operators to be fused; no user and
no file ever sees the result. Its kernel is composed of the backend's kernels for so few samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.scratch import carve, Piece, scratch_bytes
from ..base import Backend, ChosenKernel, Composite, connected, Request, Run
from ..call import bind_call
from ..facts import flops_of

_byte = np.dtype("uint8")


@dataclass(frozen=True)
class Array:
    """An array of a banded node. `samples`: True if samples lie along its first axis. `sums`: True if
    each band computes a part of it, to be added up.
    """

    shape: Shape
    dtype: DType
    samples: bool = True
    sums: bool = False


@dataclass(frozen=True)
class Link:
    """An operator of a banded node: `inputs` and `outputs` are numbers of arrays, -1 if absent.

    `shapes` and `dtypes` are those of the forward call (dtypes of its inputs), `samples` says for each of its
    inputs and outputs if it has samples along its first axis.
    """

    op: type[Op]
    attrs: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[Shapes, Shapes]
    dtypes: tuple[DType, ...]
    samples: tuple[tuple[bool, ...], tuple[bool, ...]]

    @property
    def named(self) -> dict[str, int]:
        """The present arrays, by name."""
        names = (*self.op.input_names(self.attrs), *self.op.output_names(self.attrs))
        return {n: i for n, i in zip(names, (*self.inputs, *self.outputs)) if i >= 0}

    @property
    def wanted(self) -> list[str]:
        """The present outputs."""
        return [n for n, i in zip(self.op.output_names(self.attrs), self.outputs) if i >= 0]

    def of(self, count: int) -> tuple[Shapes, Shapes]:
        """`shapes` for so many samples."""
        ins, outs = (
            tuple((count, *s[1:]) if has else s for s, has in zip(shapes, samples))
            for shapes, samples in zip(self.shapes, self.samples)
        )
        return ins, outs


@dataclass(frozen=True)
class BandedAttrs:
    """`arrays`: the inputs first, then the results of `links` in their order. `made`: those that are outputs.
    `count` samples in all, `each` of them in a band, except the last.
    """

    arrays: tuple[Array, ...]
    num_inputs: int
    links: tuple[Link, ...]
    made: tuple[int, ...]
    count: int
    each: int

    @property
    def bands(self) -> list[slice]:
        """The samples of each band."""
        return [slice(i, min(i + self.each, self.count)) for i in range(0, self.count, self.each)]

    @property
    def num_bands(self) -> int:
        return -(-self.count // self.each)

    @property
    def sizes(self) -> list[int]:
        """Numbers of samples that bands have. A batch that no memory holds has too many bands to list."""
        return [n for n in (min(self.each, self.count), self.count % self.each) if n]


class Banded(Composite):
    """Operators on `each` samples at a time.

    args: arrays with samples along their first axis, and others  ->  outs: results of the operators that
    are read outside. An output may overwrite an input with samples if no operator after the
    one that computes it reads that input, and if that operator allows it.
    """

    op_name = "_banded"
    variadic = "args"
    variadic_outputs = "outs"
    Attrs = BandedAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.num_inputs))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return len(a.made)

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return _in_place(a)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, tuple(a.arrays[i].shape for i in a.made)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, tuple(a.arrays[i].dtype for i in a.made)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return int(sum(flops_of(k.op, k.attrs, k.shapes, k.wanted) for k in a.links))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_Plan(a, _reference).pieces)

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> None:
        for call in _Plan(a, _reference).calls(xp, args, outs, work):
            call()

    @classmethod
    def compose(cls, backend: Backend, request: Request) -> ChosenKernel:
        a = request.attrs
        plan = _Plan(a, partial(_tuned, backend))

        def connect(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> Run:
            return partial(_run_all, plan.calls(xp, args, outs, work))

        nbytes = scratch_bytes(plan.pieces)
        return connected(connect, nbytes, plan.name, like=cls.forward, in_place=plan.in_place)


class BandedGradient(Banded):
    """The same for gradient operators, which are not recomputed."""

    op_name = "_banded_gradient"
    recomputable = False


def _run_all(calls: Sequence[Run]) -> None:
    for call in calls:
        call()


def _reference(link: Link, count: int) -> ChosenKernel:
    ins, outs = link.of(count)
    return Backend.reference(link.op, link.attrs, ins, outs, link.dtypes[0])


def _tuned(backend: Backend, link: Link, count: int) -> ChosenKernel:
    ins, outs = link.of(count)
    return backend.choose(link.op, link.attrs, ins, outs, link.dtypes[0], link.dtypes, frozenset(link.named))


@dataclass(frozen=True)
class _Kernel:
    """Kernel of a link for bands of so many samples."""

    link: Link
    count: int
    chosen: ChosenKernel

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return self.chosen.workspace if "work" in self.chosen.signature.services else 0


class _Plan:
    """The kernels of a banded node and its scratch: bands of inner arrays, parts of sums, and the kernels'
    scratch.
    """

    def __init__(self, a: BandedAttrs, choose: Callable[[Link, int], ChosenKernel]) -> None:
        self.a = a
        self.kernels = {n: [_Kernel(k, n, choose(k, n)) for k in a.links] for n in a.sizes}
        self.place = self._places()
        self.sums = [i for i, x in enumerate(a.arrays) if x.sums]
        inner = dict.fromkeys(self.place.values())
        pieces: list[Piece] = [((a.each, *a.arrays[i].shape[1:]), a.arrays[i].dtype) for i in inner]
        pieces += [((a.num_bands, *a.arrays[i].shape), a.arrays[i].dtype) for i in self.sums]
        nbytes = max((k.nbytes for row in self.kernels.values() for k in row), default=0)
        self.pieces: list[Piece] = [*pieces, ((nbytes,), _byte)]
        self.inner = list(inner)

    @property
    def name(self) -> str:
        names = dict.fromkeys(k.chosen.name for k in self.kernels[self.a.each])
        return f"{', '.join(names)}, {self.a.each} sample{'s' * (self.a.each > 1)} at a time"

    @property
    def in_place(self) -> Mapping[str, tuple[str, ...]]:
        """In-place options, see `_in_place`, as far as the kernels allow."""
        found = [_donors(self.a, [k.chosen for k in row]) for row in self.kernels.values()]
        return {
            out: tuple(d for d in names if all(d in f[out] for f in found)) for out, names in found[0].items()
        }

    def _places(self) -> dict[int, int]:
        """For each inner array the array that it overwrites: an input that dies with the link, if
        the kernels allow it.
        """
        a, place = self.a, {}
        last = {i: n for n, k in enumerate(a.links) for i in k.inputs}
        for n, link in enumerate(a.links):
            taken: set[int] = set()
            for name in link.wanted:
                i = link.named[name]
                if i in a.made:
                    continue
                place[i] = i
                options = [
                    row[n].chosen.in_place_options(link.op, link.attrs) for row in self.kernels.values()
                ]
                for donor in options[0].get(name, ()):
                    j = link.named.get(donor, -1)
                    if j in place and last[j] == n and j not in taken and _alike(a.arrays[i], a.arrays[j]):
                        if all(donor in o.get(name, ()) for o in options):
                            place[i] = place[j]
                            taken.add(j)
                            break
        return place

    def calls(self, xp: Any, args: Sequence[Any], outs: Sequence[Any], work: Any) -> list[Run]:
        """The calls on these arrays; an output that is None is not computed."""
        a = self.a
        *pieces, rest = carve(work, self.pieces)
        inner, parts = dict(zip(self.inner, pieces)), dict(zip(self.sums, pieces[len(self.inner) :]))
        whole = dict(zip((*range(a.num_inputs), *a.made), (*args, *outs), strict=True))
        needed = self._needed({i for i, x in whole.items() if x is not None})
        calls: list[Run] = []

        def array(i: int, band: slice, number: int) -> Any:
            if i < 0 or (i >= a.num_inputs and i not in needed):
                return None
            if i in parts:
                return parts[i][number]
            if i in self.place:
                return inner[self.place[i]][: band.stop - band.start]
            return whole[i][band] if a.arrays[i].samples else whole[i]

        for number, band in enumerate(a.bands):
            for kernel in self.kernels[band.stop - band.start]:
                link, chosen = kernel.link, kernel.chosen
                made = [array(i, band, number) for i in link.outputs]
                if all(x is None for x in made):
                    continue
                calls.append(
                    bind_call(
                        chosen,
                        xp,
                        link.op,
                        link.attrs,
                        [array(i, band, number) for i in link.inputs],
                        made,
                        work=rest[: kernel.nbytes],
                        train=True,
                        shapes=link.of(kernel.count),
                        state={},
                    )
                )
        for i, part in parts.items():
            if whole[i] is not None:
                calls.append(partial(xp.add.reduce, part, axis=0, out=whole[i]))
        return calls

    def _needed(self, there: set[int]) -> set[int]:
        """Arrays that have to be computed for these outputs."""
        needed = set(there)
        for link in reversed(self.a.links):
            if needed.intersection(link.outputs):
                needed.update(link.inputs)
        return needed


@lru_cache(maxsize=1024)
def _in_place(a: BandedAttrs) -> Mapping[str, tuple[str, ...]]:
    """The inputs that each output may overwrite, as far as the operators allow."""
    return _donors(a, [None] * len(a.links))


def _donors(a: BandedAttrs, kernels: Sequence[ChosenKernel | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    maker = {i: n for n, k in enumerate(a.links) for i in k.outputs if i >= 0}
    last = {i: n for n, k in enumerate(a.links) for i in k.inputs}
    for o, i in enumerate(a.made):
        n = maker[i]
        link, kernel = a.links[n], kernels[n]
        options = link.op.in_place_options(link.attrs)
        if kernel is not None:
            options = kernel.in_place_options(link.op, link.attrs)
        (name,) = (w for w in link.wanted if link.named[w] == i)
        own = {link.named.get(d, -1) for d in options.get(name, ())}
        found[f"output{o}"] = tuple(
            f"arg{j}"
            for j in range(a.num_inputs)
            if _alike(a.arrays[i], a.arrays[j]) and (last[j] < n or (last[j] == n and j in own))
        )
    return found


def _alike(x: Array, y: Array) -> bool:
    """True if bands of both have the same size."""
    return x.samples and y.samples and x.shape == y.shape and x.dtype == y.dtype
