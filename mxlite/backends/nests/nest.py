"""A loop nest: which axes it keeps and reduces, what it loads, computes and stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ...graph.ir import Shape

Mask = tuple[bool, ...]
"""For each axis of a nest whether an array has it; it is broadcast along the others."""
Step = tuple[object, ...]


def is_whole(x: float) -> bool:
    """True for a whole number of 64 bits."""
    return abs(x) < 1 << 63 and x == int(x)


@dataclass(frozen=True)
class Access:
    """An array that a nest reads or writes. `array` is its number, `dtype` the name of its type.

    `gathered`: an index is added along one more axis, which the nest has not; its place in an element's
    address, and those of the other axes, are arguments then. `by_lane`: each lane of a vector has an address
    of its own. `strided`: the elements between neighbours along each axis but the last are arguments, too.
    """

    array: int
    mask: Mask
    dtype: str
    gathered: bool = False
    by_lane: bool = False
    strided: bool = False


@dataclass(frozen=True)
class Nest:
    """The code of a nest, for axes of any lengths.

    Values are numbered: those of `loads` first, then `constants` (numbers of the computation's), then
    `steps`: (name, operands), a reduction (name, operand) over all axes that are not kept, ("index", axis),
    ("number", x), or ("scan", the first value, factor, term, whether it is reversed and exclusive) along the
    only axis that is not kept, whose points then are visited in that order. `stores` are pairs of a value and
    where it is written. `in_parts`: the sweep over the reduced axes is taken in parts, each of which stores
    results of its own. `across` are sums over the kept axes, taken in parts of these: a value, the sums of a
    block of kept points, those of all of a part.
    `adds` are added to what is there: a value, its index, and the gathered place; the reduced axes give the
    order of those that meet.
    """

    kept: Mask
    loads: tuple[Access, ...]
    constants: tuple[int, ...]
    steps: tuple[Step, ...]
    stores: tuple[tuple[int, Access], ...]
    in_parts: bool = False
    across: tuple[tuple[int, Access, Access], ...] = ()
    adds: tuple[tuple[int, int, Access], ...] = ()

    @property
    def first_step(self) -> int:
        return len(self.loads) + len(self.constants)


@dataclass(frozen=True)
class PlacedNest:
    """A nest with the lengths of its axes, and the number of parts."""

    nest: Nest
    lengths: Shape
    parts: int = 1
    strides: tuple[Shape, ...] = ()
    """For each strided or gathered place those of the nest's axes, then that of its own axis."""

    @property
    def points(self) -> int:
        """Points that all of its axes have."""
        return prod(self.lengths)

    def is_whole(self, x: Access) -> bool:
        """True for an array that has an element of its own at each point, where it is read or written."""
        return not x.gathered and prod(n for n, there in zip(self.lengths, x.mask) if there) == self.points


@dataclass(eq=False)
class Nests:
    """The nests of a computation in their order. Arrays are numbered: inputs, outputs, then `scratch` of
    these numbers of elements, which are of the type `number`, as is all that is computed: a float, or int64.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[float, ...]
    number: str = "float32"
    nests: list[PlacedNest] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)

    @property
    def reduces(self) -> bool:
        """True if there is a reduction or scan, or something is added at an index."""
        return not all(all(p.nest.kept) and not p.nest.adds for p in self.nests)

    @property
    def in_place(self) -> dict[str, tuple[str, ...]]:
        """The inputs over which each output may be written, if there is one nest that reduces nothing: at a
        point it reads all inputs before it writes an output.
        """
        if len(self.nests) > 1 or self.reduces:
            return {}
        (placed,) = self.nests
        apart = {x.array for x in placed.nest.loads if not placed.is_whole(x)}
        whole = [n for k, n in enumerate(self.inputs) if k not in apart]
        stores = (x for _, x in placed.nest.stores)
        return {n: tuple(whole) for x, n in zip(stores, self.outputs, strict=True) if placed.is_whole(x)}
