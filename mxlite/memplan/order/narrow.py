"""Articulation points of the order: tasks that every order passes with the same work done.

A pass can be cut there. A task is one if each other task comes before it, or after it, in every order. Weight
gradients (whose results nothing here reads) and short trees that begin with parameters or inputs (a lookup, a
projection of an input) could run almost anywhere; they are left out of account, and then put where they would
run anyway: the first as soon as they can, the others just before they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from .section import Section

Rows = Sequence[Sequence[int]]


def pieces(section: Section) -> list[tuple[int, ...]]:
    """The tasks of `section` in consecutive groups, each ending with an articulation point.

    Within a group tasks come as given. Running group by group respects all dependencies. O(inputs).
    """
    order = section.order
    is_update = section.is_update
    followers = [[f for f in row if not is_update[f]] for row in section.followers]
    waits = section.waits_for
    late = _side_trees(order, waits, followers)
    early = _side_trees(order[::-1], followers, waits)
    height = _heights(order, waits)
    last = max(order, key=lambda t: (height[t], t), default=-1)
    for t in order:
        early[t] = (early[t] or not followers[t]) and t != last
    core = [t for t in order if not late[t] and not early[t]]
    group = _groups(core, waits, followers, set(core))
    for t in order:
        if t not in group and not late[t]:
            group[t] = max((group[p] for p in waits[t] if p in group), default=0)
    for t in reversed(order):
        if late[t]:
            group[t] = min((group[f] for f in followers[t] if f in group), default=0)
    found: list[list[int]] = [[] for _ in range(max(group.values(), default=-1) + 1)]
    for t in order:
        found[group[t]].append(t)
    return [tuple(row) for row in found if row]


def _groups(core: Sequence[int], waits: Rows, followers: Rows, inside: set[int]) -> dict[int, int]:
    """Number of articulation points before each task of the core."""
    at = {t: i for i, t in enumerate(core)}
    far = len(core)
    first_use = [min((at[f] for f in followers[t] if f in inside), default=far) for t in core]
    last_need = [max((at[p] for p in waits[t] if p in inside), default=-1) for t in core]
    needed_from = [far] * (far + 1)  # the minimum of last_need from here on
    for i in range(far - 1, -1, -1):
        needed_from[i] = min(needed_from[i + 1], last_need[i])
    group: dict[int, int] = {}
    number, unused = 0, 0  # the latest position at which the results so far are first used
    for i, t in enumerate(core):
        group[t] = number
        if unused <= i and needed_from[i + 1] >= i:
            number += 1
        unused = max(unused, first_use[i])
    return group


def _side_trees(order: Sequence[int], waits: Rows, followers: Rows) -> list[bool]:
    """True for each task of a tree that feeds one task which also has a longer chain of predecessors.

    A tree: each task in it has one follower and waits only for tasks of the tree.
    """
    height = _heights(order, waits)
    count = max(order, default=-1) + 1
    pure = [False] * max(count, len(waits))
    longest: dict[int, int] = {}
    for t in order:
        pure[t] = all(pure[p] and len(followers[p]) == 1 for p in waits[t])
        if waits[t]:
            longest[t] = max(waits[t], key=lambda p: (height[p], -p))
    side = [False] * len(pure)
    for t in reversed(order):
        if pure[t] and len(followers[t]) == 1:
            f = followers[t][0]
            side[t] = side[f] or longest[f] != t
    return side


def _heights(order: Sequence[int], waits: Rows) -> dict[int, int]:
    """Length of the longest chain of tasks that ends with each task."""
    height: dict[int, int] = {}
    for t in order:
        height[t] = 1 + max((height.get(p, 0) for p in waits[t]), default=0)
    return height
