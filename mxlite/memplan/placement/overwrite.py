"""The most bytes that outputs of one task may save by lying where its inputs lay.

Each output takes over one input at most, and each input goes to one output. Outputs are matched one after the
other, the largest first; one that finds all its inputs given away looks for a chain of others that move:

    outputs   a   b          b may only take x, which a has: a moves on to y, and b takes x
              | \\ |
    inputs    y   x

What is matched then is worth the most that any choice is (sets that can be matched are a matroid).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def most_overwritten(pairs: Iterable[tuple[int, int]], nbytes: Mapping[int, int]) -> int:
    """The largest sum of `nbytes` over outputs that `pairs`, (output, input), can match with inputs."""
    takes: dict[int, list[int]] = {}
    for out, inp in pairs:
        takes.setdefault(out, []).append(inp)
    taken: dict[int, int] = {}  # of an input: the output that lies there
    lies: dict[int, int] = {}  # of an output: that input
    total = 0
    for out in sorted(takes, key=lambda o: -nbytes[o]):
        found: dict[int, int] = {}  # of an input: the output that has looked at it
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
        while free >= 0:  # whoever looked at it moves there, and leaves its place to who looked at that
            mover = found[free]
            taken[free], lies[mover], free = mover, free, lies.get(mover, -1)
    return total
