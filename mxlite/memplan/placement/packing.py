"""The inner loops of the exact offset search, in the subset of Python that `compiled` accepts.

Buffer j has four numbers in `state`: at j the least offset that it can still take (`low`), at n + j the top
of what already lies under it (`base`), at 2 n + j its *debt*, at 3 n + j 1 once it has been placed. `trail`
is the undo log; it begins with its length and its capacity.

The search looks for the solution with the smallest sum of offsets, in which no buffer can be moved down.
So a buffer that is not put on its base has a blocker: one not placed yet that begins below base + size. That
limit is the debt, 0 if there is none, until a blocker has been placed; and since the blocker lies under it,
the buffer begins above the lowest top that any blocker can have.
"""

from __future__ import annotations

from typing import NamedTuple

from ..compiled import Ints

IMPOSSIBLE, FOUND, LIMIT, NO_ROOM = 0, 1, 2, 3


class Buffers(NamedTuple):
    """The buffers, and the bytes that they must fit in: sizes, and the sections in which each lives."""

    n: int
    capacity: int
    size: Ints
    first: Ints
    last: Ints


class Lives(NamedTuple):
    """The buffers of each section, and those that live with each buffer."""

    member_at: Ints
    members: Ints
    neighbour_at: Ints
    neighbours: Ints


def put(state: Ints, trail: Ints, index: int, value: int) -> int:
    """Change a number of the state, logged in the trail."""
    top = trail[0]
    trail[top] = index
    trail[top + 1] = state[index]
    trail[0] = top + 2
    state[index] = value
    return 0


def undo(state: Ints, trail: Ints, mark: int) -> int:
    """Restore the state as it was when the trail had length `mark`."""
    top = trail[0]
    while top > mark:
        top -= 2
        state[trail[top]] = trail[top + 1]
    trail[0] = top
    return 0


def widen(span: Ints, first: int, last: int) -> int:
    """Extend `span`, the range of changed sections, by [first, last]."""
    if first < span[0]:
        span[0] = first
    if last > span[1]:
        span[1] = last
    return 0


def look_at_section(
    b: Buffers, begin: int, end: int, members: Ints, state: Ints, trail: Ints, span: Ints, order: Ints,
    blame: Ints,
) -> int:  # fmt: skip
    """1 if the unplaced buffers of one section cannot all fit; raises `low` of those that cannot be lowest.

    They are jobs of one machine, ready at `low` and due at the capacity: all that begin at t or above
    must fit between t and the capacity.
    """
    total = 0
    count = 0
    while begin < end:
        k = members[begin]
        begin += 1
        if state[3 * b.n + k] == 0:
            total += b.size[k]
            i = count
            while i > 0 and state[order[i - 1]] < state[k]:
                order[i] = order[i - 1]
                i -= 1
            order[i] = k
            count += 1
    load = 0
    i = 0
    while i < count:
        load += b.size[order[i]]
        if state[order[i]] + load > b.capacity:
            while i >= 0:
                blame[order[i]] += 1
                i -= 1
            return 1
        i += 1
    # The lowest buffer has all the others above it; the rest begin where the first of these can end.
    lowest = 2 * b.capacity
    i = count - 1
    while i >= 0 and state[order[i]] + total <= b.capacity:
        if state[order[i]] + b.size[order[i]] < lowest:
            lowest = state[order[i]] + b.size[order[i]]
        i -= 1
    while i >= 0:
        k = order[i]
        if state[k] < lowest:
            put(state, trail, k, lowest)
            widen(span, b.first[k], b.last[k])
        i -= 1
    return 0


def look_at_debts(
    b: Buffers,
    neighbour_at: Ints,
    neighbours: Ints,
    begin: int,
    end: int,
    state: Ints,
    trail: Ints,
    span: Ints,
    blame: Ints,
) -> int:
    """1 if a buffer in debt has no blocker left; raises `low` of the others above a blocker."""
    j = begin
    while j < end:
        if state[3 * b.n + j] == 0 and (state[2 * b.n + j] > 0 or state[j] > state[b.n + j]):
            if state[2 * b.n + j] == 0:
                put(state, trail, 2 * b.n + j, state[b.n + j] + b.size[j])
            debt = state[2 * b.n + j]
            lowest = 2 * b.capacity
            at = neighbour_at[j]
            while at < neighbour_at[j + 1]:
                k = neighbours[at]
                if state[3 * b.n + k] == 0 and state[k] < debt and state[k] + b.size[k] < lowest:
                    lowest = state[k] + b.size[k]
                at += 1
            if lowest + b.size[j] > b.capacity:
                blame[j] += 1
                return 1
            if lowest > state[j]:
                put(state, trail, j, lowest)
                widen(span, b.first[j], b.last[j])
        j += 1
    return 0


def lay(
    n: int,
    j: int,
    size: Ints,
    first: Ints,
    last: Ints,
    neighbour_at: Ints,
    neighbours: Ints,
    state: Ints,
    trail: Ints,
    span: Ints,
) -> int:
    """Place buffer j on its base: all unplaced buffers that live with it will lie above it."""
    low = state[j]
    top = low + size[j]
    put(state, trail, 3 * n + j, 1)
    widen(span, first[j], last[j])
    at = neighbour_at[j]
    while at < neighbour_at[j + 1]:
        k = neighbours[at]
        at += 1
        if state[3 * n + k] == 0:
            if state[2 * n + k] > low:
                put(state, trail, 2 * n + k, 0)
            elif state[2 * n + k] == 0 and state[n + k] + size[k] <= low:
                # It would fit below j, between its base and j.
                put(state, trail, 2 * n + k, state[n + k] + size[k])
            if state[n + k] < top:
                put(state, trail, n + k, top)
            if state[k] < top:
                put(state, trail, k, top)
                widen(span, first[k], last[k])
    return 0


def split(n: int, begin: int, end: int, first: Ints, last: Ints, state: Ints, agenda: Ints, made: int) -> int:
    """Cut buffers [begin, end) where no unplaced one lives across; append the bounds to the agenda.

    Returns the number of parts. Buffers are numbered by their first section.
    """
    parts = 0
    reach = -1
    j = begin
    while j < end:
        if state[3 * n + j] == 0:
            if parts == 0 or first[j] > reach:
                agenda[4 * (made + parts)] = j
                if parts > 0:
                    agenda[4 * (made + parts - 1) + 1] = j
                agenda[4 * (made + parts) + 1] = end
                parts += 1
            if last[j] > reach:
                reach = last[j]
        j += 1
    return parts


def search(
    b: Buffers, lives: Lives, rank: Ints, limit: int, state: Ints, trail: Ints, room: int, choices: Ints,
    agenda: Ints, order: Ints, blame: Ints, span: Ints,
) -> int:  # fmt: skip
    """Depth-first search: among buffers that can lie lowest, the first in `rank` is put on its base or not.

    The agenda is a list of parts that share no section: (first buffer, end, choices when it was begun,
    next part). A finished part forgets its choices: what comes later cannot change by them.
    Returns one of the four constants; span[2] is the number of buffers placed on the way.
    """
    part = 0
    made = 1
    agenda[0] = 0
    agenda[1] = b.n
    agenda[2] = 0
    agenda[3] = -1
    chosen = 0
    placed = 0
    failed = 0
    while True:
        if failed == 1:
            if chosen == 0:
                span[2] = placed
                return 0
            chosen -= 1
            undo(state, trail, choices[4 * chosen])
            part = choices[4 * chosen + 1]
            made = choices[4 * chosen + 2]
            j = choices[4 * chosen + 3]
            put(state, trail, 2 * b.n + j, state[b.n + j] + b.size[j])
            widen(span, b.first[j], b.last[j])
            failed = 0
        while failed == 0:
            if trail[0] + room > trail[1]:
                span[2] = placed
                return 3
            s = span[0]
            stop = span[1]
            span[0] = b.n
            span[1] = -1
            while s <= stop and failed == 0:
                failed = look_at_section(
                    b, lives.member_at[s], lives.member_at[s + 1], lives.members, state, trail, span, order,
                    blame,
                )  # fmt: skip
                s += 1
            if failed == 0:
                failed = look_at_debts(
                    b, lives.neighbour_at, lives.neighbours, agenda[4 * part], agenda[4 * part + 1], state,
                    trail, span, blame,
                )  # fmt: skip
            if span[1] < 0:
                break
        if failed == 1:
            span[0] = b.n
            span[1] = -1
            continue
        parts = 0
        while parts != 1:
            parts = split(b.n, agenda[4 * part], agenda[4 * part + 1], b.first, b.last, state, agenda, made)
            if parts == 0:
                chosen = agenda[4 * part + 2]
                part = agenda[4 * part + 3]
                if part < 0:
                    span[2] = placed
                    return 1
            elif parts > 1:
                i = 0
                while i < parts:
                    agenda[4 * (made + i) + 2] = chosen
                    agenda[4 * (made + i) + 3] = part
                    part = made + i
                    i += 1
                made += parts
        j = -1
        k = agenda[4 * part]
        while k < agenda[4 * part + 1]:
            if state[3 * b.n + k] == 0 and state[2 * b.n + k] == 0 and state[k] == state[b.n + k]:
                if j < 0 or state[k] < state[j] or (state[k] == state[j] and rank[k] < rank[j]):
                    j = k
            k += 1
        placed += 1
        if placed > limit:
            span[2] = placed
            return 2
        choices[4 * chosen] = trail[0]
        choices[4 * chosen + 1] = part
        choices[4 * chosen + 2] = made
        choices[4 * chosen + 3] = j
        chosen += 1
        lay(b.n, j, b.size, b.first, b.last, lives.neighbour_at, lives.neighbours, state, trail, span)


PARTS = (put, undo, widen, look_at_section, look_at_debts, lay, split, search)
"""All functions, each before its callers."""
