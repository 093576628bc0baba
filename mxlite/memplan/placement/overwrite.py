"""The most bytes that outputs of one task may save by overwriting its inputs.

Each output overwrites one input at most, and each input is overwritten by one output. Outputs are matched one
after the other, the largest first; one that finds all its inputs taken looks for an augmenting path:

    outputs   a   b          b may only take x, which a has: a moves on to y, and b takes x
              | \\ |
    inputs    y   x

The matching found is of maximum weight (sets of outputs that can be matched form a matroid).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def most_overwritten(pairs: Iterable[tuple[int, int]], nbytes: Mapping[int, int]) -> int:
    """The largest sum of `nbytes` over outputs that `pairs`, (output, input), can match with inputs."""
    takes: dict[int, list[int]] = {}
    for out, inp in pairs:
        takes.setdefault(out, []).append(inp)
    taken: dict[int, int] = {}  # input -> the output that overwrites it
    lies: dict[int, int] = {}  # output -> the input it overwrites
    total = 0
    for out in sorted(takes, key=lambda o: -nbytes[o]):
        found: dict[int, int] = {}  # input -> the output from which the search reached it
        looking, free = [out], -1
        for o in looking:
            for inp in takes[o]:
                if inp not in found:
                    found[inp] = o
                    if inp not in taken:
                        free = inp
                        break
                    looking.append(taken[inp])
            if free >= 0:
                total += nbytes[out]
                break
        while free >= 0:  # augment: each output on the path moves to the next input
            mover = found[free]
            taken[free], lies[mover], free = mover, free, lies.get(mover, -1)
    return total
