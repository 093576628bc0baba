"""Loop nests as text for people: what is computed, and in which sweeps over the arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....nests.facts import facts_of, NestFacts
from ....nests.nest import Access, Nests, PlacedNest
from .loops import Loops
from .schedule import schedule_of

INDENT = "    "


def nests_as_text(nests: Nests) -> str:
    """The nests, one behind another, each with its schedule and its sweeps."""
    names = [*nests.inputs, *nests.outputs, *(f"scratch{i}" for i in range(len(nests.scratch)))]
    threads = Loops(nests).threads
    lines = []
    for k, placed in enumerate(nests.nests):
        lines.append(f"nest {k + 1} of {len(nests.nests)}, {_schedule(placed, threads)}")
        lines += [INDENT + line for line in _lines(placed, names, nests.constants)]
    return "\n".join(lines)


def _schedule(placed: PlacedNest, threads: int) -> str:
    nest, schedule, inner = placed.nest, schedule_of(placed), facts_of(placed.nest).inner
    found = [f"{threads} {'thread' if threads == 1 else 'threads'}"]
    if placed.parts > 1:
        found.append(
            f"{placed.parts} parts that later are joined" if nest.in_parts else f"{placed.parts} parts"
        )
    if inner is not None:
        found.append(f"i{inner} innermost")
    if schedule.rows > 1:
        found.append(f"{schedule.rows} rows at a time")
    if schedule.columns > 1:
        found.append(f"{schedule.columns} vectors of columns at a time")
    if schedule.in_blocks:
        found.append("sums in blocks")
    return ", ".join(found)


def _lines(placed: PlacedNest, names: Sequence[str], constants: Sequence[float]) -> Iterator[str]:
    nest, facts = placed.nest, facts_of(placed.nest)
    kept = [k for k in range(len(nest.kept)) if nest.kept[k]]
    depth = ""
    for k in kept:
        yield f"{depth}for i{k} in {placed.lengths[k]}:"
        depth += INDENT
    loop = " ".join(f"i{k} in {placed.lengths[k]}," for k in facts.reduced).rstrip(",")
    known: set[int] = set()

    def at(x: Access) -> str:
        inside = [f"i{k}" for k, there in enumerate(x.mask) if there]
        return f"{names[x.array]}[{', '.join([*inside, 'index'] if x.gathered else inside)}]"

    def steps(roots: Sequence[int], indent: str, units: bool = False) -> Iterator[str]:
        """The steps to `roots`; with `units` those that are the same in all of a sweep, and known then."""
        for i in facts.needed(roots, dict.fromkeys(known)):
            if facts.names[i] != "number" and (facts.is_unit[i] or not units):
                yield f"{indent}%{i} = {_step(i, facts, placed, at, constants)}"
                if units:
                    known.add(i)

    for k, level in enumerate(facts.levels):
        is_last = k == len(facts.levels) - 1
        early = facts.early if is_last else []
        operands = [facts.operands[i][0] for i in level]
        roots = [*operands, *(i for i, *_ in early)]
        yield from steps(roots, depth, units=True)
        yield f"{depth}sweep {loop}:"
        yield from steps(roots, depth + INDENT)
        for i, x in zip(level, operands):
            yield f"{depth}{INDENT}%{i} {facts.names[i].removeprefix('reduce_')}= %{x}"
        for i, sums, _ in early:
            yield f"{depth}{INDENT}{at(sums)} += %{i}"
        for i, place in facts.cache_writes.items() if is_last else ():
            yield f"{depth}{INDENT}{at(place)} = %{i}"
        known.update(level)
    late = [x for x in nest.across if x not in facts.early] if facts.levels else nest.across
    kept_stores = [(i, x) for i, x in nest.stores if facts.is_kept(x)]
    whole_stores = [(i, x) for i, x in nest.stores if not facts.is_kept(x)]
    roots = [i for i, _ in whole_stores] + [i for i, *_ in late] + [i for *both, _ in nest.adds for i in both]
    units = [i for i in facts.needed(roots, facts.cache_writes) if facts.is_unit[i]]
    yield from steps([*units, *(i for i, _ in kept_stores)], depth, units=True)
    for i, target in kept_stores:
        yield f"{depth}{at(target)} = %{i}"
    if not roots:
        return
    last = depth
    if facts.reduced:
        yield f"{depth}sweep {loop}:"
        last += INDENT
    for i, place in facts.cache_writes.items():
        yield f"{last}%{i} = {at(place)}"
    known.update(facts.cache_writes)
    yield from steps(roots, last)
    for i, target in whole_stores:
        yield f"{last}{at(target)} = %{i}"
    for i, sums, _ in late:
        yield f"{last}{at(sums)} += %{i}"
    for i, index, sums in nest.adds:
        yield f"{last}{at(sums)} += %{i}, where index = %{index}"


def _step(
    i: int, facts: NestFacts, placed: PlacedNest, at: Callable[[Access], str], constants: Sequence[float]
) -> str:
    nest = placed.nest
    if i < len(nest.loads):
        return str(at(nest.loads[i]))
    if i < nest.first_step:
        return f"{constants[nest.constants[i - len(nest.loads)]]:g}"
    name, *rest = nest.steps[i - nest.first_step]
    numbers: Sequence[Any] = rest[:3] if name == "scan" else rest
    if name == "index":
        return f"i{numbers[0]}"
    if name == "gather":
        return f"{at(nest.loads[numbers[0]])}, where index = %{numbers[1]}"
    if name == "scan":
        name = " ".join(["scan", *(w for w, there in zip(("reverse", "exclusive"), rest[3:]) if there)])
    literals = {x: nest.steps[x - nest.first_step][1] for x in numbers if facts.names[x] == "number"}
    return " ".join([str(name), *(str(literals.get(x, f"%{x}")) for x in numbers)])
