"""The computation of a request: an operator's own, or the gradient derived from it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ...graph.ir import Shape
from ...graph.opdef import DType
from ...te.computation import Computation, farthest, MOST_COUNTED, needed_by, operands_of
from ...te.operator import computation as declared, Found
from ...te.steps import COMPARISONS
from ..base import Request
from ..elementwise.formula import is_elementwise
from ..fused.computation import FUSED
from .build import CORES, nests_of, Splitting
from .nest import is_whole, Nests, PlacedNest

FLOATS = frozenset({"float32", "float16", "bfloat16"})


@dataclass(frozen=True)
class Arrays:
    """The arrays that a backend's nests can have: the types that its code loads and stores, `floats` those of
    results; and when sums are taken in parts. int64 is loaded too, as indices. `wholes`: types of results
    that are computed as whole numbers of 64 bits, if every step is exact in them.
    """

    known: frozenset[str]
    floats: frozenset[str] = FLOATS
    splitting: Splitting = CORES
    wholes: frozenset[str] = frozenset()


EXACT = COMPARISONS | frozenset(
    "add sub mul neg abs max min sign select trunc floor ceil rint fmod index gather broadcast".split()
)
"""Steps that are exact in whole numbers of 64 bits."""


def nests_for(r: Request, how: Arrays, wanted: frozenset[str] | None = None) -> Nests | None:
    """The loop nests for a request; None if its operator declares no computation, or not for these arrays.

    `wanted`: some of the request's outputs, which then are computed in the same way as with the others, to
    the bit.
    """
    return _nests(r, repr(r.attrs), how, wanted)


@functools.lru_cache(maxsize=1024)
def _nests(r: Request, spelled: str, how: Arrays, wanted: frozenset[str] | None) -> Nests | None:
    """`spelled` are the attributes as text: 0.0 and -0.0 are equal, but not the same constant."""
    op, a, kinds = r.op, r.attrs, kinds_of(r)
    ins, outs = arrays_of(r, kinds)
    if kinds is None or not outs:
        return None
    in_wholes = all(str(kinds[n][1]) in how.wholes for n in outs)
    long = {n for n in ins if str(kinds[n][1]) == "int64" and not in_wholes}
    numbers = [kinds[n][1] for n in ins if n not in long]
    made_types = [kinds[n][1] for n in outs]
    if not in_wholes and not can_store(numbers, made_types, how.known, how.floats):
        return None
    found = computation(r)
    if found is None:
        return None
    t, outputs, shapes = found
    nodes = needed_by(t, [x.number for x in outputs.values()])
    if farthest(t, nodes) > MOST_COUNTED:  # positions are float32 numbers
        return None
    reads_long = "int64" in how.known and (is_elementwise(op) or op in FUSED)
    if long and not reads_long and not _are_indices(t, nodes, long):
        return None
    if in_wholes and not _is_exact(t, nodes, {n for n in ins if str(kinds[n][1]) not in how.wholes}):
        return None
    reads = {t.nodes[i][1] for i in nodes if t.nodes[i][0] == "input"}
    if not reads <= set(ins) or any(n not in outputs for n in outs):
        return None
    donors = {o: frozenset(ds) for o, ds in op.in_place_options(a).items()}
    dtypes = {n: str(kinds[n][1]) for n in (*ins, *outs)}
    made, domains = {n: outputs[n] for n in outs}, {n: shapes[n] for n in outs}
    number = "int64" if in_wholes else ""
    nests = nests_of(t, made, domains, dtypes, donors, wanted, how.splitting, number)
    return _on_rows(r, nests) if nests is not None and r.tile.is_special else nests


def is_chain(r: Request, nests: Nests) -> bool:
    """True for nests of elementwise operators that reduce nothing."""
    return (is_elementwise(r.op) or r.op in FUSED) and len(nests.nests) == 1 and not nests.reduces


def _on_rows(r: Request, nests: Nests) -> Nests | None:
    """The nests on a tile of parts of the rows of matrices; None unless it is one nest that reads all of each
    array.
    """
    if r.tile.adds or r.tile.dtypes or len(nests.nests) != 1 or nests.reduces:
        return None
    names, kinds = (*nests.inputs, *nests.outputs), kinds_of(r)
    assert kinds is not None
    (placed,), shape = nests.nests, kinds[nests.outputs[0]][0]
    nest, (stores, targets) = placed.nest, zip(*placed.nest.stores)
    if len(shape) != 2 or not all(placed.is_whole(x) for x in (*nest.loads, *targets)):
        return None
    leads = [r.strides(names[x.array]) or (shape[1], 1) for x in (*nest.loads, *targets)]
    if any(step != 1 for _, step in leads):
        return None
    both = (True, True)
    loads, targets = (
        tuple(replace(x, mask=both, strided=True) for x in places) for places in (nest.loads, targets)
    )
    by_rows = replace(nest, kept=both, loads=loads, stores=tuple(zip(stores, targets)))
    strides = tuple((lead, 1, 0) for lead, _ in leads)
    return replace(nests, nests=[PlacedNest(by_rows, shape, strides=strides)])


def kinds_of(r: Request) -> dict[str, tuple[Shape, DType]] | None:
    """Shape and dtype of every array that the request's operator may name; None if some are absent."""
    forward = r.op.forward_op or r.op
    ins, outs = forward.input_names(r.attrs), forward.output_names(r.attrs)
    if len(ins) != len(r.inputs):
        return None
    _, dtypes = forward.infer_type(r.attrs, *r.dtypes)
    kinds: dict[str, tuple[Shape, DType]] = {}
    for names, shapes, types in ((ins, r.inputs, r.dtypes), (outs, r.outputs, dtypes)):
        for name, shape, dtype in zip(names, shapes, types, strict=True):
            assert dtype is not None
            kinds[name] = kinds[f"d_{name}"] = (tuple(shape), dtype)
    return kinds


def can_store(
    inputs: Iterable[DType], outputs: Iterable[DType], known: frozenset[str], floats: frozenset[str] = FLOATS
) -> bool:
    """True if arrays of these types can be read and written."""
    return all(str(d) in known for d in inputs) and all(str(d) in known & floats for d in outputs)


def arrays_of(r: Request, kinds: Mapping[str, tuple[Shape, DType]] | None) -> tuple[list[str], list[str]]:
    """The inputs that are read and the outputs that are made in a request, by name; none if one is empty."""
    op, a = r.op, r.attrs
    ins = [n for n in op.input_names(a) if r.is_used(n) and n not in op.shape_only_names(a)]
    outs = [n for n in op.output_names(a) if r.is_used(n)]
    is_empty = kinds is None or any(0 in kinds[n][0] for n in (*ins, *outs))
    return ([], []) if is_empty else (ins, outs)


def _are_indices(t: Computation, nodes: Iterable[int], names: Iterable[str]) -> bool:
    """True if inputs are only read as indices: as other numbers float32 may have no room for them."""
    given = {i for i in nodes if t.nodes[i][0] == "input" and t.nodes[i][1] in names}
    for i in sorted(nodes):
        if given.intersection(operands_of(t.nodes[i])) and t.nodes[i][0] != "trunc":
            if t.nodes[i][0] != "gather" or t.nodes[i][2] in given:
                return False
            given.add(i)
    return True


def _is_exact(t: Computation, nodes: Iterable[int], floats: Collection[str]) -> bool:
    """True if whole numbers of 64 bits give what is meant. `floats`, the inputs of other types, are either
    cut or compared; literals that are no whole numbers are compared; constants are cut, so they are not.
    """
    readers: dict[int, set[str]] = {}
    for i in nodes:
        for x in operands_of(t.nodes[i]):
            readers.setdefault(x, set()).add(t.nodes[i][0])
    for i in nodes:
        kind, *rest = t.nodes[i]
        read = readers.get(i, set())
        if kind == "input":
            if rest[0] in floats and not (read and (read <= {"trunc"} or read <= COMPARISONS)):
                return False
        elif kind == "number":
            if not is_whole(rest[0]) and not (read and read <= COMPARISONS):
                return False
        elif kind == "constant":
            if not abs(rest[0]) < 1 << 63 or (not is_whole(rest[0]) and read & COMPARISONS):
                return False
        elif kind not in EXACT:
            return False
    return True


def computation(r: Request) -> Found | None:
    """The tensors of a request's outputs by name, with the shapes to which they broadcast; None if there are
    none.
    """
    kinds = kinds_of(r)
    if (r.op.forward_op or r.op).compute is None or kinds is None:
        return None
    known = {n: shape for n, (shape, _) in kinds.items()}
    return declared(r.op, r.attrs, known, frozenset(n for n in known if r.is_used(n)), r.dtype)
