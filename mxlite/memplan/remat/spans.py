"""Loops over bit rows that say what is held: changes of them, and the recomputation that follows.

`holds.py` explains the bits. Here a state is one row of bits for each task and two of those, `held`
and `runs`, in integer arrays: `words` numbers for each row, the first stages in the first of them
and, within a number, in its highest places. So a row may be one number of any length, as Python
has them, or several of 60 bits for machine code:

    stage    0 1 2 3 4 5 6 7 8 9         words = 1      1 1 1 0 0 1 1 1 1 0
    held     h h h . . h h h h .         words = 2      1 1 1 0 0 | 1 1 1 1 0

Functions here are written in the subset of Python that `compiled` accepts. Tables of the problem have the
same names in all of them: `ones` are all bits of one number; `word`, `place` and `upto` are, for each stage,
the index of its number in the row, its bit, and the bits of that number up to it; after the last stage they
have one more entry, without a bit. `asked`, `allowed` and `pinned` are rows of each task. Lists of the tasks
are concatenated in one array: that of task u starts at reader_first[u]. A **span** is a change of one row:
(task, first stage, last stage, 1 to hold or 0 to drop).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..compiled import Ints

NO_ROOM = -1  # the functions below are compiled without this file's globals


class Tables(NamedTuple):
    """The problem: tasks, numbers in a row, the bits of one; readers and inputs of tasks, and their rows."""

    number: int
    words: int
    ones: int
    reader_first: Ints
    reader: Ints
    input_first: Ints
    inputs: Ints
    asked: Ints
    allowed: Ints
    pinned: Ints


class Places(NamedTuple):
    """The place of each stage in a row."""

    word: Ints
    place: Ints
    upto: Ints


class States(NamedTuple):
    """States, one after another."""

    held: Ints
    runs: Ints


class State(NamedTuple):
    """One of them, whose rows begin at `base`."""

    held: Ints
    runs: Ints
    base: int


class Scratch(NamedTuple):
    """Work arrays: a mark for each task, and a state."""

    changed: Ints
    tried: Ints
    tried_runs: Ints


class Listing(NamedTuple):
    """A list of changes, and their spans."""

    ways: Ints
    span_first: Ints
    spans: Ints


def settle(t: Tables, s: State, changed: Ints) -> int:
    """Update which of the `changed` tasks are recomputed, and propagate to tasks whose readers' runs change.

    Held intervals of a task are first cut down to those that are read: each interval ends with its
    last read. Adding the reads to the bits carries from each read to the beginning of its interval, and
    so marks these bits. `changed` is all 0 at the end.
    """
    width = t.ones.bit_length()
    u = t.number
    while u > 0:
        u -= 1
        if changed[u] == 1:
            changed[u] = 0
            carry = 0
            behind = 0  # 1 if it is held in the stage after this number's
            differs = 0
            w = t.words
            while w > 0:
                w -= 1
                at = u * t.words + w
                used = t.asked[at]
                r = t.reader_first[u]
                while r < t.reader_first[u + 1]:
                    used |= s.runs[s.base + t.reader[r] * t.words + w]
                    r += 1
                bits = s.held[s.base + at] & t.allowed[at] | t.pinned[at]
                reads = used & bits
                total = bits + reads + carry
                carry = total >> width
                bits &= total ^ bits | reads
                again = (used | bits << 1 | behind) & (bits ^ t.ones) & t.ones
                behind = bits >> width - 1
                s.held[s.base + at] = bits
                if s.runs[s.base + at] != again:
                    s.runs[s.base + at] = again
                    differs = 1
            if differs == 1:
                i = t.input_first[u]
                while i < t.input_first[u + 1]:
                    changed[t.inputs[i]] = 1
                    i += 1
    return 0


def span_bits(ones: int, word: Ints, place: Ints, upto: Ints, first: int, last: int, w: int) -> int:
    """Bits of the stages from `first` to `last` that lie in number `w` of a row."""
    bits = ones
    if w == word[first]:
        bits ^= upto[first] ^ place[first]
    if w == word[last]:
        bits &= upto[last]
    return bits


def hold(
    ones: int, word: Ints, place: Ints, upto: Ints, held: Ints, at: int, first: int, last: int, on: int
) -> int:
    """Set (`on` 1) or clear (0) the stages from `first` to `last` in the row that begins at `at`."""
    w = word[first]
    while w <= word[last]:
        bits = span_bits(ones, word, place, upto, first, last, w)
        if on == 1:
            held[at + w] |= bits
        else:
            held[at + w] &= bits ^ ones
        w += 1
    return 0


def last_there(
    words: int, ones: int, word: Ints, place: Ints, upto: Ints, held: Ints, runs: Ints, base: int,
    tasks: Ints, first: int, end: int, stage: int,
) -> int:  # fmt: skip
    """The last stage before `stage` in which all of tasks[first:end] are held or run; -1 if there is none."""
    width = ones.bit_length()
    w = word[stage]
    bits = upto[stage] ^ place[stage]
    while w >= 0:
        i = first
        while i < end:
            at = base + tasks[i] * words + w
            bits &= held[at] | runs[at]
            i += 1
        if bits != 0:
            return w * width + width - (bits & -bits).bit_length()
        w -= 1
        bits = ones
    return -1


def next_stage(words: int, ones: int, word: Ints, upto: Ints, rows: Ints, at: int, stage: int) -> int:
    """The first stage after `stage` in the row that begins at `at`; -1 if there is none."""
    width = ones.bit_length()
    w = word[stage]
    bits = rows[at + w] & (upto[stage] ^ ones)
    while bits == 0:
        w += 1
        if w == words:
            return -1
        bits = rows[at + w]
    return w * width + width - bits.bit_length()


def put(spans: Ints, at: int, task: int, first: int, last: int, on: int) -> int:
    """Write a span."""
    spans[4 * at] = task
    spans[4 * at + 1] = first
    spans[4 * at + 2] = last
    spans[4 * at + 3] = on
    return 0


def apply(t: Tables, p: Places, s: State, changed: Ints, spans: Ints, first: int, end: int) -> int:
    """Change a state by spans[first:end]."""
    i = first
    while i < end:
        u = spans[4 * i]
        changed[u] = 1
        hold(
            t.ones, p.word, p.place, p.upto, s.held, s.base + u * t.words, spans[4 * i + 1], spans[4 * i + 2],
            spans[4 * i + 3],
        )  # fmt: skip
        i += 1
    settle(t, s, changed)
    return 0


def copy(size: int, source: Ints, at: int, target: Ints, to: int) -> int:
    """Copy `size` numbers."""
    i = 0
    while i < size:
        target[to + i] = source[at + i]
        i += 1
    return 0


def events_of(
    words: int, ones: int, reader_first: Ints, reader: Ints, asked: Ints, runs: Ints, base: int, u: int,
    events: Ints,
) -> int:  # fmt: skip
    """Fill `events` with the stages in which task u is read or runs, ascending; return their number."""
    width = ones.bit_length()
    count = 0
    w = 0
    while w < words:
        used = asked[u * words + w] | runs[base + u * words + w]
        r = reader_first[u]
        while r < reader_first[u + 1]:
            used |= runs[base + reader[r] * words + w]
            r += 1
        while used != 0:
            length = used.bit_length()
            used ^= 1 << length - 1
            events[count] = w * width + width - length
            count += 1
        w += 1
    return count


def change(
    t: Tables, p: Places, own: Ints, s: State, z: Scratch, u: int, before: int, event: int, kind: int,
    spans: Ints, at: int,
) -> int:  # fmt: skip
    """Write the change of task u at `event`, the successor of event `before`, to spans[at:]: at most one span
    more than there are tasks. Returns the number of spans; 0 if there is no such change.

    A result held at the event is dropped since the event before. With kind 1 other tasks that are recomputed
    for it now are held until their next recomputation. If the task runs at the event, that run is saved by
    holding the result since it was last live; with kind 1 it runs earlier, where all its inputs were last
    live. `own` are the numbers of the tasks.
    """
    width = t.ones.bit_length()
    row = u * t.words
    if s.held[s.base + row + p.word[event]] & p.place[event] != 0:
        w = p.word[before + 1]
        while w <= p.word[event]:
            if t.pinned[row + w] & span_bits(t.ones, p.word, p.place, p.upto, before + 1, event, w) != 0:
                return 0
            w += 1
        put(spans, at, u, before + 1, event, 0)
        if kind == 0:
            return 1
        copy(t.number * t.words, s.held, s.base, z.tried, 0)
        copy(t.number * t.words, s.runs, s.base, z.tried_runs, 0)
        apply(t, p, State(z.tried, z.tried_runs, 0), z.changed, spans, at, at + 1)
        count = 1
        v = 0
        while v < t.number:
            w = 0
            while w < t.words and v != u:
                new = z.tried_runs[v * t.words + w]
                new &= new ^ s.runs[s.base + v * t.words + w]
                while new != 0:
                    length = new.bit_length()
                    new ^= 1 << length - 1
                    stage = w * width + width - length
                    later = next_stage(t.words, t.ones, p.word, p.upto, s.runs, s.base + v * t.words, stage)
                    if later >= 0:
                        put(spans, at + count, v, stage + 1, later, 1)
                        count += 1
                w += 1
            v += 1
        if count == 1:
            return 0
        return count
    since = last_there(t.words, t.ones, p.word, p.place, p.upto, s.held, s.runs, s.base, own, u, u + 1, event)
    if kind == 0:
        put(spans, at, u, since + 1, event, 1)
        return 1
    made = 0
    i = t.input_first[u]
    while i < t.input_first[u + 1]:
        if s.runs[s.base + t.inputs[i] * t.words + p.word[event]] & p.place[event] != 0:
            made = 1
        i += 1
    if made == 0:
        return 0
    earlier = last_there(
        t.words, t.ones, p.word, p.place, p.upto, s.held, s.runs, s.base, t.inputs, t.input_first[u],
        t.input_first[u + 1], event,
    )  # fmt: skip
    if earlier <= since:
        return 0
    put(spans, at, u, earlier + 1, event, 1)
    return 1


# -- entry points called from Python -------------------------------------------------------------------


def edited(
    t: Tables, p: Places, own: Ints, z: Scratch, events: Ints, count: int, source: States, span_first: Ints,
    spans: Ints, target: States,
) -> int:  # fmt: skip
    """Fill the states of `target`: state c is the first of `source`, changed by the spans from span_first[c]
    on.
    """
    size = t.number * t.words
    c = 0
    while c < count:
        copy(size, source.held, 0, target.held, c * size)
        copy(size, source.runs, 0, target.runs, c * size)
        apply(
            t,
            p,
            State(target.held, target.runs, c * size),
            z.changed,
            spans,
            span_first[c],
            span_first[c + 1],
        )
        c += 1
    return 0


def moved(
    t: Tables, p: Places, own: Ints, z: Scratch, events: Ints, count: int, moves: int, tasks: Ints,
    which: Ints, kinds: Ints, spans: Ints, states: States,
) -> int:  # fmt: skip
    """Change each of `count` states at up to `moves` tasks (-1: none), one after another.

    The change is at the task's event number `which`, modulo its number of events. If there is no change of
    kind 1, that of kind 0 is made.
    """
    size = t.number * t.words
    c = 0
    while c < count:
        m = c * moves
        while m < c * moves + moves:
            u = tasks[m]
            some = 0
            if u >= 0:
                some = events_of(
                    t.words, t.ones, t.reader_first, t.reader, t.asked, states.runs, c * size, u, events
                )
            if some > 0:
                e = which[m] % some
                before = -1
                if e > 0:
                    before = events[e - 1]
                found = 0
                kind = kinds[m]
                while found == 0 and kind >= 0:
                    found = change(
                        t, p, own, State(states.held, states.runs, c * size), z, u, before, events[e], kind,
                        spans, 0,
                    )  # fmt: skip
                    kind -= 1
                if found > 0:
                    apply(t, p, State(states.held, states.runs, c * size), z.changed, spans, 0, found)
            m += 1
        c += 1
    return 0


def changes(
    t: Tables, p: Places, own: Ints, z: Scratch, events: Ints, states: States, few: int, tasks: Ints,
    stage: int, room: int, made: Listing,
) -> int:  # fmt: skip
    """List every single change of the first `few` of `tasks`; return their number, or NO_ROOM.

    Task, event and kind of change k are ways[3 * k:], its spans those from span_first[k] on.
    There is room for `room` changes and as many spans, and those of one change more. With a `stage` of 0 or
    more only what is held in it or in the next one is changed, where it is read or runs in `stage`, or next
    after it.
    """
    found = 0
    total = 0
    i = 0
    while i < few:
        u = tasks[i]
        some = 0
        here = 1
        if stage >= 0:
            here = states.held[u * t.words + p.word[stage]] & p.place[stage]
            here |= states.held[u * t.words + p.word[stage + 1]] & p.place[stage + 1]
        if here != 0:
            some = events_of(t.words, t.ones, t.reader_first, t.reader, t.asked, states.runs, 0, u, events)
        before = -1
        e = 0
        while e < some and (stage < 0 or before <= stage):
            kind = 0
            while kind < 2 and (stage < 0 or events[e] >= stage):
                if found == room or total >= room:
                    return -1
                count = change(
                    t, p, own, State(states.held, states.runs, 0), z, u, before, events[e], kind, made.spans,
                    total,
                )  # fmt: skip
                if count > 0:
                    made.ways[3 * found] = u
                    made.ways[3 * found + 1] = events[e]
                    made.ways[3 * found + 2] = kind
                    made.span_first[found] = total
                    found += 1
                    total += count
                kind += 1
            before = events[e]
            e += 1
        i += 1
    made.span_first[found] = total
    return found


def counted(size: int, words: int, runs: Ints, num: Ints) -> int:
    """Fill `num` with the number of bits set in each of `size` rows; return their sum."""
    total = 0
    row = 0
    while row < size:
        count = 0
        w = 0
        while w < words:
            bits = runs[row * words + w]
            while bits != 0:
                bits &= bits - 1
                count += 1
            w += 1
        num[row] = count
        total += count
        row += 1
    return total


def listed(size: int, words: int, ones: int, runs: Ints, stage: Ints) -> int:
    """Fill `stage` with the stages of each of `size` rows, concatenated; return their number."""
    width = ones.bit_length()
    total = 0
    row = 0
    while row < size:
        w = 0
        while w < words:
            bits = runs[row * words + w]
            while bits != 0:
                length = bits.bit_length()
                bits ^= 1 << length - 1
                stage[total] = w * width + width - length
                total += 1
            w += 1
        row += 1
    return total


PARTS: tuple[Callable[..., int], ...] = (
    settle, span_bits, hold, last_there, next_stage, put, apply, copy, events_of, change, edited, moved,
    changes, counted, listed,
)  # fmt: skip
"""All functions for `compiled`, each before its callers."""
