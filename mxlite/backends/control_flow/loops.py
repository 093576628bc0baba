"""The loops of control flow: calls of each iteration, forward and in reverse. Pairs are (target, source)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ops.random.philox import RandomStream
from .part import Run

SEEDS = 64  # iterations whose random states are drawn together


class Reseed:
    """Setter of `state`, seed and step of the subgraphs' streams, for iteration t: block t of the node's."""

    __slots__ = ("at", "rng", "state", "states", "work", "xp")

    def __init__(self, xp: Any, rng: RandomStream, state: Any, states: Any, work: Any) -> None:
        self.xp, self.rng, self.state, self.states, self.work = xp, rng, state, states, work
        self.at = -1

    def restart(self) -> None:
        """Forget what was drawn, since the step has changed."""
        self.at = -1

    def __call__(self, t: int) -> None:
        chunk, i = divmod(t, SEEDS)
        if chunk != self.at:
            self.rng.fill_bits(self.xp, self.states.view("uint32").reshape(-1), self.work, 4 * SEEDS * chunk)
            self.at = chunk
        self.state[...] = self.states[i]


def run_loop(
    most: int,
    rows: list[tuple[Any, Any]],
    inits: list[tuple[Any, Any]],
    decide: tuple[list[Run], Any] | None,
    calls: list[Run],
    out_rows: list[tuple[Any, Any]],
    news: list[tuple[Any, Any]],
    keep: list[tuple[Any, Any]],
    ends: list[tuple[Any, Any]],
    count: Any,
    reseed: Reseed | None,
) -> None:
    """The forward loop; pairs are (target, source)."""
    if reseed:
        reseed.restart()
    for state, x in inits:
        state[...] = x
    t = 0
    while t < most:
        if reseed:
            reseed(t)
        if decide:
            for call in decide[0]:
                call()
            if not decide[1][0]:
                break
        for row, data in rows:
            row[...] = data[t]
        for kept, state in keep:
            kept[t] = state
        for call in calls:
            call()
        for out, x in out_rows:
            out[t] = x
        for state, x in news:
            state[...] = x
        t += 1
    if t < most:
        for out, _ in (*out_rows, *keep):
            out[t:] = 0
    for out, state in ends:
        if out is not None:
            out[...] = state
    if count is not None:
        count[0] = t


def run_backward(
    starts: list[tuple[Any, Any]],
    sums: Mapping[int, Any],
    loops: Sequence[Callable[[int], None]],
    most: int,
    is_loop: bool,
    count: Any,
    ends: list[tuple[Any, Any]],
) -> None:
    for head, d_out in starts:
        head[...] = 0 if d_out is None else d_out
    for total in sums.values():
        total[...] = 0
    if is_loop:
        loops[0](most if count is None else int(count[0]))
    else:
        loops[0 if count[0] else 1](1)
    for d_arg, x in ends:
        d_arg[...] = 0 if x is None else x


def run_back(
    calls: list[Run],
    rows: list[tuple[Any, Any]],
    states: list[tuple[Any, Any]],
    repeated: list[tuple[Any, Any, Any]],
    heads: list[tuple[Any, Any]],
    d_rows: list[tuple[Any, Any]],
    carried: list[tuple[Any, Any]],
    sums: list[tuple[Any, Any]],
    reseed: Reseed | None,
    is_loop: bool,
    xp: Any,
    count: int,
) -> None:
    """The loop in reverse; pairs are (target, source)."""
    if reseed:
        reseed.restart()
    for t in range(count - 1, -1, -1):
        if reseed:
            reseed(t)
        for row, data in rows:
            row[...] = data[t]
        for state, kept in states:
            state[...] = kept[t]
        for state, out, init in repeated:
            state[...] = out[t - 1] if t else init
        for head, d_out in heads:
            head[...] = d_out[t] if is_loop else d_out
        for call in calls:
            call()
        for d_data, x in d_rows:
            d_data[t] = x
        for total, x in sums:
            xp.add(total, x, out=total)
        for head, x in carried:
            head[...] = 0 if x is None else x
