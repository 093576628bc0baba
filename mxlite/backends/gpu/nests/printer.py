"""One loop nest as the text of a kernel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

from ...nests.facts import facts_of
from ...nests.nest import Access, is_whole, Nest
from ..compiler.kinds import FLOATS
from ..compiler.source import kernel, NAMES
from ..compiler.steps import literal, step_line

ELEMENTS, ROWS, COLUMNS, ADDS = "elements", "rows", "columns", "adds"
BLOCK = 128
"""Numbers that a thread adds up before it adds them to the rest, where it has many."""
MOST_THREADS = {ELEMENTS: 256, ROWS: 512, COLUMNS: 256, ADDS: 256}
_JOINS = {
    "reduce_sum": ("0.0", "Sum"),
    "reduce_prod": ("1.0", "Product"),
    "reduce_max": ("-infinity<C>()", "Largest"),
    "reduce_min": ("infinity<C>()", "Smallest"),
}


@dataclass(frozen=True)
class Form:
    """What the text of a nest depends on besides the nest.

    `threads`: which loops they are. `pack`: elements of the last axis that a thread has at once. `in_blocks`:
    sums are taken in blocks. `is_whole`: numbers are int64, beside floats that are only compared.
    """

    threads: str
    pack: int = 1
    in_blocks: bool = False
    is_whole: bool = False


def printed(nest: Nest, form: Form, name: str) -> str:
    """The kernel `name` for a nest without sums over its kept axes.

    Parameters: arrays that are loaded, stored and added to, lengths of the axes (of the last one in packs),
    strides of each gathered array, constants, parts (of `adds`: owners of places, a power of two), kept
    points with the parts, threads of a row, and whether all packs are aligned.
    """
    assert not nest.across
    return _Printer(nest, form).kernel(name)


class _Printer:
    def __init__(self, nest: Nest, form: Form) -> None:
        self.nest, self.form, self.facts = nest, form, facts_of(nest)
        cut = {x for name, *xs in nest.steps if name == "trunc" for x in xs}
        floats = {i for i, x in enumerate(nest.loads) if x.dtype in FLOATS and i not in cut}
        self.compared: set[int] = floats if form.is_whole else set()
        self.lines: list[str] = []
        self.known: set[int] = set()
        self.depth = 0
        self.splits = 0

    def kernel(self, name: str) -> str:
        n, rank = self.nest, len(self.nest.kept)
        parameters = [f"const {NAMES[x.dtype]} *in{k}" for k, x in enumerate(n.loads)]
        parameters += [f"{NAMES[x.dtype]} *out{k}" for k, (_, x) in enumerate(n.stores)]
        parameters += [f"{NAMES[x.dtype]} *sum{k}" for k, (*_, x) in enumerate(n.adds)]
        parameters += [f"Length n{k}" for k in range(rank)]
        places = [f"in{k}" for k, x in enumerate(n.loads) if x.gathered]
        for array in (*places, *(f"sum{k}" for k in range(len(n.adds)))):
            parameters += [f"int64 {array}_s{k}" for k in range(rank + 1)]
        parameters += [f"double c{len(n.loads) + k}" for k in range(len(n.constants))]
        parameters += ["Length parts", "Index units", "uint32 group", "int vector"]
        self._unit_values(range(len(n.loads), n.first_step))
        {ELEMENTS: self._elements, ADDS: self._adds}.get(self.form.threads, self._reduced)()
        return kernel(name, parameters, self.lines, MOST_THREADS[self.form.threads])

    # -- text ------------------------------------------------------------------------------------

    def _emit(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def _open(self, line: str) -> None:
        self._emit(line + " {")
        self.depth += 1

    def _close(self) -> None:
        self.depth -= 1
        self._emit("}")

    def _split(self, index: str, axes: Sequence[int], part: bool = False) -> None:
        """Declare the index along each axis, of a number that counts all their points; before them parts."""
        lengths = [*(["parts"] if part else []), *(f"n{k}" for k in axes)]
        found = [*(["part"] if part else []), *(f"i{k}" for k in axes)]
        for length, name in reversed(list(zip(lengths, found))[1:]):
            self.splits += 1
            above = f"above{self.splits}"
            self._emit(f"Index {above} = {index} / {length}, {name} = {index} - {above} * count({length});")
            index = above
        if found:
            self._emit(f"Index {found[0]} = {index};")

    def _at(self, x: Access, array: str = "") -> str:
        """The number of an element, or the first of a pack: in a gathered `array` that at place 0."""
        last, pack = self.facts.last, self.form.pack
        axes = [k for k, there in enumerate(x.mask) if there]
        if x.gathered:
            along = {k: f"(int64)i{k}" for k in axes}
            if last in along and pack > 1:
                along[last] = f"((int64)i{last} * {pack} + e)"
            return " + ".join(f"{i} * {array}_s{k}" for k, i in along.items()) or "0"
        text = ""
        for k in axes:
            text = f"({text}) * count(n{k}) + i{k}" if text else f"i{k}"
        if pack > 1 and x.mask[last]:
            text = f"({text}) * {pack}"
        return text or "0"

    def _count(self, axes: Sequence[int]) -> str:
        return " * ".join(f"count(n{k})" for k in axes) or "(Index)1"

    # -- values ----------------------------------------------------------------------------------

    def _is_packed(self, x: Access) -> bool:
        return self.form.pack > 1 and x.mask[self.facts.last] and not x.gathered

    def _kind(self, load: int) -> str:
        """The type of a loaded number."""
        return "double" if load in self.compared else "C"

    def _value(self, i: int) -> None:
        """Declare a value whose operands are there."""
        n, rank = self.nest, len(self.nest.kept)
        if i < len(n.loads):
            x, kind = n.loads[i], self._kind(i)
            loaded = f"p{i}[e]" if self._is_packed(x) else f"to<{kind}>(in{i}[{self._at(x)}])"
            self._emit(f"{kind} v{i} = {loaded};")
        elif i < n.first_step:
            self._emit(f"C v{i} = (C)c{i};")
        else:
            name, *operands = n.steps[i - n.first_step]
            if name == "index":
                (axis,) = operands
                is_pack = axis == self.facts.last and self.form.pack > 1
                self._emit(f"C v{i} = (C)(i{axis}{f' * {self.form.pack} + e' if is_pack else ''});")
            elif name == "gather":
                load, index = operands
                x = n.loads[load]  # type: ignore[call-overload]
                at = f"{self._at(x, f'in{load}')} + place(v{index}) * in{load}_s{rank}"
                self._emit(f"C v{i} = to<C>(in{load}[{at}]);")
            elif name == "number" and self.form.is_whole and not is_whole(cast(float, operands[0])):
                self._emit(f"double v{i} = {literal(cast(float, operands[0]))};")
            elif name == "broadcast":
                self._emit(f"C v{i} = v{operands[0]};")
            else:
                self._emit(step_line(i, str(name), *operands))

    def _unit_values(self, numbers: Collection[int]) -> None:
        """Declare values that stay known."""
        for i in numbers:
            self._value(i)
            self.known.add(i)

    def _prepare(self, roots: Sequence[int]) -> None:
        """Declare what a sweep for `roots` needs and is the same in all of it."""
        self._unit_values([i for i in self._needed(roots) if self.facts.is_unit[i]])

    def _needed(self, roots: Sequence[int]) -> list[int]:
        return self.facts.needed(roots, dict.fromkeys(self.known))

    def _point(self, roots: Sequence[int], acts: Sequence[str], stores: Sequence[int] = ()) -> None:
        """Compute `roots` at a point, or at each of a pack, where `acts` follow, and store these stores."""
        needed, pack = self._needed(roots), self.form.pack
        packed = [k for k in stores if self._is_packed(self.nest.stores[k][1])]
        if pack > 1:
            for i in needed:
                if i < len(self.nest.loads) and self._is_packed(self.nest.loads[i]):
                    self._emit(f"{self._kind(i)} p{i}[{pack}];")
                    self._emit(f"take<{pack}>(in{i} + {self._at(self.nest.loads[i])}, vector, p{i});")
            self._emit(*(f"C q{k}[{pack}];" for k in packed), "#pragma unroll")
            self._open(f"for (int e = 0; e < {pack}; ++e)")
        for i in needed:
            self._value(i)
        self._emit(*acts)
        for k in stores:
            i, _ = self.nest.stores[k]
            self._emit(f"q{k}[e] = v{i};" if k in packed else self._stored(k))
        if pack > 1:
            self._close()
        self._emit(
            *(f"give<{pack}>(out{k} + {self._at(self.nest.stores[k][1])}, vector, q{k});" for k in packed)
        )

    def _stored(self, k: int, part: str = "") -> str:
        i, x = self.nest.stores[k]
        return f"out{k}[{part}{self._at(x)}] = from<{NAMES[x.dtype]}>((C)v{i});"

    # -- the three kinds of nests ----------------------------------------------------------------

    def _elements(self) -> None:
        self._open("MX_EACH(each, units)")
        self._emit("Index unit = (Index)each;")
        self._split("unit", self.facts.kept)
        self._point([i for i, _ in self.nest.stores], (), range(len(self.nest.stores)))
        self._close()

    def _adds(self) -> None:
        facts, n = self.facts, self.nest
        rank = len(n.kept)
        self._open("MX_EACH(each, units)")
        self._emit("Index unit = (Index)each;")
        self._split("unit", facts.kept, part=True)
        self._emit(f"Index total = {self._count(facts.reduced)};")
        self._open("for (Index r = 0; r < total; ++r)")
        self._split("r", facts.reduced)
        for i in self._needed([index for _, index, _ in n.adds]):
            self._value(i)
        there = set(self._needed([index for _, index, _ in n.adds]))
        before = set(self.known)
        self.known |= there
        for k, (term, index, x) in enumerate(n.adds):
            self._emit(f"int64 place{k} = place(v{index});")
            self._open(f"if ((place{k} & (count(parts) - 1)) == part)")
            for i in self._needed([term]):
                self._value(i)
            self._emit(f"sum{k}[{self._at(x, f'sum{k}')} + place{k} * sum{k}_s{rank}] += v{term};")
            self._close()
        self.known = before
        self._close()
        self._close()

    def _reduced(self) -> None:
        facts, n = self.facts, self.nest
        by_rows = self.form.threads == ROWS
        self._emit(f"__shared__ C room[{32 if by_rows else MOST_THREADS[COLUMNS]}];")
        if by_rows:
            self._emit("const Index own = threadIdx.x / group, lane = threadIdx.x % group;")
            self._emit("const Index across = blockDim.x / group;")
        else:
            self._emit("const Index own = threadIdx.x, lane = threadIdx.y, across = blockDim.x;")
        self._open("for (Index base = blockIdx.x * across; base < units; base += gridDim.x * across)")
        self._emit("Index unit = base + own;")
        self._emit("const bool there = unit < units;", "if (!there) unit = units - 1;")
        self._split("unit", facts.kept, part=n.in_parts)
        self._emit(f"Index first = 0, last = {self._count(facts.reduced)};")
        if n.in_parts:
            self._emit("const uint64 all = last;")
            self._emit("first = (Index)(all * part / count(parts));")
            self._emit("last = (Index)(all * (part + 1) / count(parts));")
        self._emit("if (!there) last = first;")
        for level in facts.levels:
            self._level(level)
        kept = [k for k, (_, x) in enumerate(n.stores) if facts.is_kept(x)]
        whole = [k for k, (_, x) in enumerate(n.stores) if not facts.is_kept(x)]
        self._prepare([n.stores[k][0] for k in (*kept, *whole)])
        if kept:  # over what other threads of the group have read by then
            self._emit("if (blockDim.y > 1 || group > 32) __syncthreads();", "else __syncwarp();")
            size = f"part * ({self._count(facts.kept)}) + " if n.in_parts else ""
            self._open("if (there && lane == 0)")
            self._emit(*(self._stored(k, size) for k in kept))
            self._close()
        if whole:
            self._open("for (Index r = first + lane; r < last; r += group)")
            self._split("r", facts.reduced)
            self._point([n.stores[k][0] for k in whole], (), whole)
            self._close()
        self._close()

    def _level(self, level: Sequence[int]) -> None:
        """The reductions of one sweep."""
        facts = self.facts
        terms = [facts.operands[i][0] for i in level]
        joins = [_JOINS[facts.names[i]] for i in level]
        self._prepare(terms)
        firsts = [f"(C){begin}" for begin, _ in joins]
        self._emit(*(f"C t{i} = {x};" for i, x in zip(level, firsts)))
        into = "b" if self.form.in_blocks else "t"
        if self.form.in_blocks:
            self._open(f"for (Index start = first + lane; start < last; start += group * {BLOCK})")
            self._emit(f"Index stop = start + group * {BLOCK} < last ? start + group * {BLOCK} : last;")
            self._emit(*(f"C b{i} = {x};" for i, x in zip(level, firsts)))
            self._open("for (Index r = start; r < stop; r += group)")
        else:
            self._open("for (Index r = first + lane; r < last; r += group)")
        self._split("r", facts.reduced)
        acts = [f"{into}{i} = {f}()({into}{i}, v{x});" for i, x, (_, f) in zip(level, terms, joins)]
        self._point(terms, acts)
        self._close()
        if self.form.in_blocks:
            self._emit(*(f"t{i} = {f}()(t{i}, b{i});" for i, (_, f) in zip(level, joins)))
            self._close()
        how = (
            "of_group(t{i}, group, {f}(), room)"
            if self.form.threads == ROWS
            else "of_columns(t{i}, {f}(), room)"
        )
        self._emit(*(f"C v{i} = {how.format(i=i, f=f)};" for i, (_, f) in zip(level, joins)))
        self.known.update(level)
