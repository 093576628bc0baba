"""The computation of a request: an operator's own, or the gradient derived from it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...graph.ir import Shape
from ...graph.opdef import DType
from ...te.computation import Computation, farthest, MOST_COUNTED, needed_by, operands_of
from ...te.operator import computation as declared, Found
from ...te.steps import COMPARISONS
from ..base import Request
from ..elementwise.program import can_store, FLOATS, kinds_of
from .build import CORES, nests_of, Splitting
from .nest import is_whole, Nests


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
    found = computation(r, {n: shape for n, (shape, _) in kinds.items()})
    if found is None:
        return None
    t, outputs, shapes = found
    nodes = needed_by(t, [x.number for x in outputs.values()])
    if farthest(t, nodes) > MOST_COUNTED:  # positions are float32 numbers
        return None
    if long and not _are_indices(t, nodes, long):
        return None
    if in_wholes and not _is_exact(t, nodes, {n for n in ins if str(kinds[n][1]) not in how.wholes}):
        return None
    reads = {t.nodes[i][1] for i in nodes if t.nodes[i][0] == "input"}
    if not reads <= set(ins) or any(n not in outputs for n in outs):
        return None
    donors = {o: frozenset(ds) for o, ds in op.in_place_options(a).items()}
    dtypes = {n: str(kinds[n][1]) for n in (*ins, *outs)}
    made, domains = {n: outputs[n] for n in outs}, {n: shapes[n] for n in outs}
    return nests_of(t, made, domains, dtypes, donors, wanted, how.splitting, "int64" if in_wholes else "")


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


def computation(r: Request, known: Mapping[str, Shape]) -> Found | None:
    """The tensors of a request's outputs by name, with the shapes to which they broadcast; None if there are
    none.
    """
    if (r.op.forward_op or r.op).compute is None:
        return None
    return declared(r.op, r.attrs, known, frozenset(n for n in known if r.is_used(n)), r.dtype)
