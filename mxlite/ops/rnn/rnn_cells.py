"""One step of a recurrent layer, forward and backward: tanh or relu, LSTM, GRU.

A cell works on `pre`, the gates' sums (B, G*H) of one step, to which the contribution of the layer's
input has been added already. Backward recomputes the gates of a whole block of steps (a "stretch") from the
inputs and the hidden states before each step (`recall`, one matrix product), then walks the block backwards.

    h, c      hidden and cell state before the step; the step writes them anew
    off       (B, 1) bool: samples whose sequence has ended, which keep their state; or None
    room      scratch of a step: `gates` (B, G*H), `a`, `b`, `full` (B, H), `hidden` (B, P)

Gates lie side by side: LSTM input, forget, candidate, output; GRU reset, update, candidate.
"""

from __future__ import annotations

from typing import Any

from ...core.record import record
from .rnn_layout import Weights


@record
class Room:
    """Scratch of one step, in the type of the computation."""

    gates: Any
    a: Any
    b: Any
    full: Any
    hidden: Any


@record
class Stretch:
    """Backward's arrays for a block of k steps, all in the type of the computation.

    before   hidden states before each step (k, B, P)
    pre      the gates, then the gradient of their sums (k, B, G*H)
    own      LSTM: cell states after each step (k, B, H). GRU: the hidden part of the candidate's sum, then
             its gradient. Else None
    start    LSTM: the cell state before the stretch (B, H)
    full     LSTM with a projection: the states before projection (k, B, H)
    """

    before: Any
    pre: Any
    own: Any
    start: Any
    full: Any


def _sigmoid(xp: Any, x: Any) -> None:
    """x = 1 / (1 + exp(-x)), by way of tanh, which never overflows."""
    xp.multiply(x, 0.5, out=x)
    xp.tanh(x, out=x)
    xp.multiply(x, 0.5, out=x)
    xp.add(x, 0.5, out=x)


def _times_slope(xp: Any, d: Any, y: Any, room: Any) -> None:
    """d *= y * (1 - y): the gradient of a sigmoid whose result is y."""
    xp.subtract(1, y, out=room)
    xp.multiply(room, y, out=room)
    xp.multiply(d, room, out=d)


class Plain:
    """h = act(x Wx + h Wh + b), act being tanh or relu."""

    gates_of_hidden = 1  # parts of `pre` to which the hidden state's bias is added beforehand

    def __init__(self, a: Any) -> None:
        self.relu = a.mode == "rnn_relu"

    def forward(self, xp: Any, w: Weights, pre: Any, h: Any, c: Any, off: Any, room: Room, new: Any) -> None:
        xp.matmul(h, w.h.T, out=new)
        xp.add(new, pre, out=new)
        if self.relu:
            xp.maximum(new, 0, out=new)
        else:
            xp.tanh(new, out=new)

    def recall(self, xp: Any, w: Weights, s: Stretch, spare: Any, order: Any, off: Any) -> None:
        raise AssertionError("the results are all that it needs")

    def backward(
        self,
        xp: Any,
        w: Weights,
        s: Stretch,
        j: int,
        last: int | None,
        dh: Any,
        dc: Any,
        off: Any,
        room: Room,
    ) -> None:
        """`pre` holds the results of the steps."""
        y = s.pre[j]
        if self.relu:
            xp.sign(y, out=y)  # nan stays nan
        else:
            xp.multiply(y, y, out=y)
            xp.subtract(1, y, out=y)
        xp.multiply(y, dh, out=y)
        if off is not None:
            xp.copyto(y, 0, where=off)
        xp.matmul(y, w.h, out=room.full)
        take_running(xp, dh, room.full, off)


class Lstm:
    """c = f*c + i*g;  h = o*tanh(c), clipped and projected if asked (S. Hochreiter, J. Schmidhuber, 1997)."""

    gates_of_hidden = 4

    def __init__(self, a: Any) -> None:
        self.bounds = None
        if a.lstm_state_clip_min is not None:
            self.bounds = (a.lstm_state_clip_min, a.lstm_state_clip_max)
        self.stop_nan = a.lstm_state_clip_nan

    def _clip(self, xp: Any, c: Any) -> None:
        if self.bounds is not None:
            at_least, at_most = (xp.fmax, xp.fmin) if self.stop_nan else (xp.maximum, xp.minimum)
            at_least(c, self.bounds[0], out=c)
            at_most(c, self.bounds[1], out=c)

    def _parts(self, pre: Any) -> tuple[Any, Any, Any, Any]:
        n = pre.shape[-1] // 4
        return pre[..., :n], pre[..., n : 2 * n], pre[..., 2 * n : 3 * n], pre[..., 3 * n :]

    def keep_before(self, xp: Any, w: Weights, h: Any, gates: Any) -> None:
        """Nothing besides the gates is kept."""

    def _gates(self, xp: Any, pre: Any) -> None:
        """Sums to gates, in place: one tanh for all, since sigmoid(x) = (1 + tanh(x / 2)) / 2."""
        n = pre.shape[-1] // 4
        for part in (pre[..., : 2 * n], pre[..., 3 * n :]):
            xp.multiply(part, 0.5, out=part)
        xp.tanh(pre, out=pre)
        for part in (pre[..., : 2 * n], pre[..., 3 * n :]):
            xp.multiply(part, 0.5, out=part)
            xp.add(part, 0.5, out=part)

    def _next(self, xp: Any, gates: Any, c: Any, off: Any, room: Any, out: Any) -> None:
        """The cell state after a step."""
        i, f, g, _ = self._parts(gates)
        xp.multiply(i, g, out=room)
        xp.multiply(f, c, out=out)
        xp.add(out, room, out=out)
        self._clip(xp, out)
        if off is not None:
            xp.copyto(out, c, where=off)

    def _step(self, xp: Any, gates: Any, pre: Any, c: Any, off: Any, full: Any, room: Room) -> None:
        """The cell state after a step, in `c`, and the state before projection; `gates` are h Wh."""
        xp.add(gates, pre, out=gates)
        self._gates(xp, gates)
        self._next(xp, gates, c, off, room.a, room.b)
        xp.copyto(c, room.b)
        xp.tanh(room.b, out=room.b)
        xp.multiply(self._parts(gates)[3], room.b, out=full)

    def forward(self, xp: Any, w: Weights, pre: Any, h: Any, c: Any, off: Any, room: Room, new: Any) -> None:
        xp.matmul(h, w.h.T, out=room.gates)
        full = new if w.r is None else room.full
        self._step(xp, room.gates, pre, c, off, full, room)
        if w.r is not None:
            xp.matmul(full, w.r.T, out=new)

    def recall(self, xp: Any, w: Weights, s: Stretch, spare: Any, order: Any, off: Any) -> None:
        """Recompute gates and cell states of a block. order: its steps as computed; off: mask of a step."""
        add_hidden(xp, s.before, w.h, s.pre, spare)
        self._gates(xp, s.pre)
        self._states(xp, s, spare, order, off)

    def read(self, xp: Any, s: Stretch, gates: Any, spare: Any, order: Any, off: Any) -> None:
        """`recall` with gates that were kept."""
        xp.copyto(s.pre, gates)
        self._states(xp, s, spare, order, off)

    def _states(self, xp: Any, s: Stretch, spare: Any, order: Any, off: Any) -> None:
        """Recompute the cell states of a block, and the states before projection."""
        room = spare.reshape(-1)[: s.start.size].reshape(s.start.shape)
        c = s.start
        for j in order:
            self._next(xp, s.pre[j], c, off(j), room, s.own[j])
            c = s.own[j]
        if s.full is not None:
            xp.tanh(s.own, out=s.full)
            xp.multiply(s.full, self._parts(s.pre)[3], out=s.full)

    def backward(
        self,
        xp: Any,
        w: Weights,
        s: Stretch,
        j: int,
        last: int | None,
        dh: Any,
        dc: Any,
        off: Any,
        room: Room,
    ) -> None:
        """last: the step computed before j, None if that was in another stretch."""
        full = dh
        if w.r is not None:
            full = room.full
            xp.matmul(dh, w.r, out=full)
        before = s.start if last is None else s.own[last]
        self._slopes(xp, s.pre[j], s.own[j], before, full, dc, off, room)
        hidden = dh if off is None else room.hidden
        xp.matmul(s.pre[j], w.h, out=hidden)
        if off is not None:
            take_running(xp, dh, hidden, off)

    def _slopes(
        self, xp: Any, pre: Any, c: Any, before: Any, full: Any, dc: Any, off: Any, room: Room
    ) -> None:
        """Gates to the gradients of their sums, in place, and `dc` to that of the cell state before the step.

        c: the cell state after it. full: gradient of the state before projection.
        """
        i, f, g, o = self._parts(pre)
        a, b = room.a, room.b
        keep = None if off is None else room.gates[:, : dc.shape[1]]
        if off is not None:
            xp.copyto(keep, dc)
        xp.tanh(c, out=a)
        # dc += dh * o * (1 - tanh(c)^2);  the gradient of o's sum is dh * tanh(c) * o * (1 - o)
        xp.multiply(a, a, out=b)
        xp.subtract(1, b, out=b)
        xp.multiply(b, o, out=b)
        xp.multiply(b, full, out=b)
        xp.add(dc, b, out=dc)
        xp.multiply(a, full, out=a)
        _times_slope(xp, a, o, b)
        xp.copyto(o, a)
        if self.bounds is not None:
            xp.greater(c, self.bounds[0], out=a, casting="unsafe")
            xp.multiply(dc, a, out=dc)
            xp.less(c, self.bounds[1], out=a, casting="unsafe")
            xp.multiply(dc, a, out=dc)
        # i, f and g become the gradients of their sums; dc that of the cell state before the step
        xp.multiply(dc, g, out=a)
        _times_slope(xp, a, i, b)
        xp.multiply(g, g, out=b)
        xp.subtract(1, b, out=g)
        xp.multiply(g, i, out=g)
        xp.multiply(g, dc, out=g)
        xp.copyto(i, a)
        xp.multiply(dc, before, out=a)
        xp.multiply(dc, f, out=dc)
        _times_slope(xp, a, f, b)
        xp.copyto(f, a)
        if off is not None:
            xp.copyto(dc, keep, where=off)
            xp.copyto(pre, 0, where=off)


class Gru:
    """h = (1 - z)*n + z*h, n = tanh(x Wn + r * (h Un + b)) (K. Cho et al., 2014, in cuDNN's form)."""

    gates_of_hidden = 2

    def __init__(self, a: Any) -> None:
        pass

    def keep_before(self, xp: Any, w: Weights, h: Any, gates: Any) -> None:
        """Keep the hidden part of the candidate's sum, which is overwritten in the step."""
        n = h.shape[1]
        xp.matmul(h, w.h[2 * n :].T, out=gates[:, 3 * n :])
        xp.add(gates[:, 3 * n :], w.bh[2 * n :], out=gates[:, 3 * n :])

    def _step(self, xp: Any, w: Weights, gates: Any, pre: Any, h: Any, new: Any) -> None:
        """The state after a step; `gates` are h Wh."""
        n = h.shape[1]
        rz, candidate = gates[:, : 2 * n], gates[:, 2 * n :]
        xp.add(rz, pre[:, : 2 * n], out=rz)
        _sigmoid(xp, rz)
        xp.add(candidate, w.bh[2 * n :], out=candidate)
        xp.multiply(candidate, rz[:, :n], out=candidate)
        xp.add(candidate, pre[:, 2 * n :], out=candidate)
        xp.tanh(candidate, out=candidate)
        xp.subtract(h, candidate, out=new)
        xp.multiply(new, rz[:, n:], out=new)
        xp.add(new, candidate, out=new)

    def forward(self, xp: Any, w: Weights, pre: Any, h: Any, c: Any, off: Any, room: Room, new: Any) -> None:
        xp.matmul(h, w.h.T, out=room.gates)
        self._step(xp, w, room.gates, pre, h, new)

    def recall(self, xp: Any, w: Weights, s: Stretch, spare: Any, order: Any, off: Any) -> None:
        n = s.own.shape[-1]
        rows = s.before.reshape(-1, n)
        out = spare.reshape(-1)[: len(rows) * 3 * n].reshape(-1, 3 * n)
        xp.matmul(rows, w.h.T, out=out)
        out = out.reshape(s.pre.shape)
        rz, candidate = s.pre[..., : 2 * n], s.pre[..., 2 * n :]
        xp.add(rz, out[..., : 2 * n], out=rz)
        _sigmoid(xp, rz)
        xp.add(out[..., 2 * n :], w.bh[2 * n :], out=s.own)
        part = out[..., :n]
        xp.multiply(s.own, rz[..., :n], out=part)
        xp.add(candidate, part, out=candidate)
        xp.tanh(candidate, out=candidate)

    def read(self, xp: Any, s: Stretch, gates: Any, spare: Any, order: Any, off: Any) -> None:
        n = s.own.shape[-1]
        xp.copyto(s.pre, gates[..., : 3 * n])
        xp.copyto(s.own, gates[..., 3 * n :])

    def backward(
        self,
        xp: Any,
        w: Weights,
        s: Stretch,
        j: int,
        last: int | None,
        dh: Any,
        dc: Any,
        off: Any,
        room: Room,
    ) -> None:
        self._slopes(xp, s.pre[j], s.own[j], s.before[j], dh, off, room)
        xp.matmul(room.gates, w.h, out=room.a)
        xp.add(room.full, room.a, out=room.full)
        take_running(xp, dh, room.full, off)

    def _slopes(self, xp: Any, pre: Any, own: Any, before: Any, dh: Any, off: Any, room: Room) -> None:
        """Gates and `own` to the gradients of their sums, in place; those of h Wh to `room.gates`, and the
        gradient that bypasses them to `room.full`.
        """
        n = dh.shape[1]
        r, z, candidate = pre[:, :n], pre[:, n : 2 * n], pre[:, 2 * n :]
        a, b, full = room.a, room.b, room.full
        # a: gradient of the candidate's sum;  z: of the update gate's;  full: the gradient that bypasses h
        xp.subtract(before, candidate, out=full)
        xp.multiply(candidate, candidate, out=a)
        xp.subtract(1, a, out=a)
        xp.multiply(a, dh, out=a)
        xp.subtract(1, z, out=b)
        xp.multiply(a, b, out=a)
        xp.copyto(candidate, a)
        xp.multiply(full, dh, out=a)
        xp.multiply(dh, z, out=full)
        xp.multiply(a, z, out=a)
        xp.multiply(a, b, out=z)
        # own: gradient of the hidden part of the candidate's sum;  r: of the reset gate's sum
        xp.multiply(candidate, own, out=a)
        xp.multiply(candidate, r, out=own)
        _times_slope(xp, a, r, b)
        xp.copyto(r, a)
        if off is not None:
            xp.copyto(pre, 0, where=off)
            xp.copyto(own, 0, where=off)
        xp.copyto(room.gates, pre)
        xp.copyto(room.gates[:, 2 * n :], own)


CELLS: dict[str, Any] = {"rnn_relu": Plain, "rnn_tanh": Plain, "lstm": Lstm, "gru": Gru}


def cell_of(xp: Any, a: Any) -> Any:
    """The cell of a mode. An array module other than numpy may have its own, as `xp.cells`."""
    return getattr(xp, "cells", CELLS)[a.mode](a)


def take_running(xp: Any, target: Any, source: Any, off: Any) -> None:
    """target = source, except for samples whose sequence has ended: this step does not exist for them."""
    if off is None:
        xp.copyto(target, source)
    else:
        xp.logical_not(off, out=off)
        xp.copyto(target, source, where=off)
        xp.logical_not(off, out=off)


def add_hidden(xp: Any, before: Any, weight: Any, pre: Any, spare: Any) -> None:
    """pre += before @ weight.T, for all steps of a block."""
    rows = before.reshape(-1, before.shape[-1])
    product = spare.reshape(-1)[: pre.size].reshape(len(rows), -1)
    xp.matmul(rows, weight.T, out=product)
    xp.add(pre, product.reshape(pre.shape), out=pre)
