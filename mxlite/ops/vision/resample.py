"""Separable linear maps over trailing axes, for resizing and adaptive pooling.

Along one axis each output is a weighted sum of a few inputs, `out[o] = sum over t of weight[o, t] *
in[index[o, t]]`, and for each tap t the index never falls as o grows. So forward gathers, tap by tap, and
the transposed map sums runs of equal indices before it adds them to their targets. Axes are processed one
after the other, a few rows (samples, channels) at a time. No zero weight ever meets an element outside the
window, so infinities do not spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes

_OUTPUTS = 512  # outputs of an axis at a time: their indices and weights are small temporaries


@record
class Axis:
    """The map of one axis of length `size` to length `out`.

    kind: "nearest", "linear" or "cubic" interpolation at `ratio * o + shift`, or "mean" over the window
    [floor(o * size / out), ceil((o + 1) * size / out)). rounding: of "nearest".
    cubic: the coefficient a of R. Keys (1981, "Cubic convolution interpolation for digital
    image processing"). exclude: outside elements get weight 0 and the others add up to 1; else the border
    is repeated.
    """

    size: int
    out: int
    kind: str
    ratio: float = 1.0
    shift: float = 0.0
    rounding: str = "floor"
    cubic: float = -0.75
    exclude: bool = False

    @property
    def same(self) -> bool:
        """True if the map is the identity."""
        return self.size == self.out and (self.kind == "mean" or (self.ratio == 1 and self.shift == 0))

    def taps(self, begin: int, end: int) -> list[tuple[Any, Any]]:
        """For each tap the indices and the weights (None: all 1) of outputs [begin, end)."""
        o = np.arange(begin, end, dtype=np.float64)
        last = self.size - 1
        if self.kind == "mean":
            # Whole-number arithmetic: a float may fall on the wrong side of a whole number.
            whole = np.arange(begin, end, dtype=np.int64)
            start = whole * self.size // self.out
            stop = -(-(whole + 1) * self.size // self.out)
            count = int((stop - start).max(initial=1))
            each = 1.0 / (stop - start)
            return [
                (np.minimum(start + t, stop - 1), np.where(start + t < stop, each, 0.0)) for t in range(count)
            ]
        x = o * self.ratio + self.shift
        if self.kind == "nearest":
            return [(np.clip(_ROUND[self.rounding](x), 0, last).astype(np.int64), None)]
        if self.kind == "linear":
            x = np.clip(x, 0, last)
            first = np.minimum(np.floor(x).astype(np.int64), last)
            part = x - first
            return [(first, 1 - part), (np.minimum(first + 1, last), part)]
        floor = np.floor(x).astype(np.int64)
        part = x - floor
        weights = [_keys(np.abs(part + 1 - t), self.cubic) for t in range(4)]
        if self.exclude:
            for t in range(4):
                inside = (floor - 1 + t >= 0) & (floor - 1 + t <= last)
                weights[t] = np.where(inside, weights[t], 0.0)
            total = np.add.reduce(weights)
            weights = [w / total for w in weights]
        return [(np.clip(floor - 1 + t, 0, last), weights[t]) for t in range(4)]


def _keys(distance: Any, a: float) -> Any:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


_ROUND: dict[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}


@record
class Resampling:
    """Rows of shape `size`, each resampled along all its axes."""

    rows: int
    axes: tuple[Axis, ...]

    @property
    def _stages(self) -> list[tuple[int, Shape, Shape]]:
        """Axis to resample, shape before, shape after: the last axis first."""
        shape, stages = [x.size for x in self.axes], []
        for i in reversed(range(len(self.axes))):
            if not self.axes[i].same:
                before = tuple(shape)
                shape[i] = self.axes[i].out
                stages.append((i, before, tuple(shape)))
        return stages

    @property
    def _largest(self) -> int:
        stages = self._stages
        sizes = [prod(s) for _, before, after in stages for s in (before, after)]
        return max([1, prod(x.size for x in self.axes), *sizes])

    @property
    def step(self) -> int:
        """Number of rows at a time."""
        return max(1, min(self.rows, 2 * BLOCK // self._largest))

    def pieces(self, dtype: DType) -> list[Piece]:
        """Scratch: two arrays for the results between axes, two for one tap."""
        return [((self.step * self._largest,), accumulator(dtype))] * 4

    def nbytes(self, dtype: DType) -> int:
        """Bytes of scratch of `forward` and `backward`."""
        return scratch_bytes(self.pieces(dtype))

    def compute(self, t: Any, data: Any) -> Any:
        """The rows resampled, as a tensor of a computation; None if it has none."""
        total = None
        for place, weight in self._taps(t):
            term = t.pick(t.view(data, self._picked), place, -1) * weight
            total = term if total is None else total + term
        return total

    def compute_transposed(self, t: Any, d_out: Any) -> Any:
        """The transposed map of d_out."""
        total, found = t.broadcast(0.0, self._picked), self._taps(t)
        for place, weight in found:
            total = t.add_at(
                total, place, t.view(d_out, (self.rows, *(x.out for x in self.axes), 1)) * weight, -1
            )
        return total if found else None

    @property
    def _picked(self) -> Shape:
        """Rows of numbers to pick from, behind the axes of an output's indices."""
        return (self.rows, *(1 for _ in self.axes), prod(x.size for x in self.axes))

    def _taps(self, t: Any) -> list[tuple[Any, Any]]:
        """The place in a row and the weight of each number of which an output is the sum, (out..., 1)."""
        if not self.axes or not all(x.same or x.kind == "linear" for x in self.axes):
            return []
        found = [(t.number(0.0), t.number(1.0))]
        for k, axis in enumerate(self.axes):
            at = t.index(t.broadcast(0.0, (*(x.out for x in self.axes), 1)), k)
            taps = [(at, t.number(1.0))]
            if not axis.same:
                x = t("min", t("max", at * axis.ratio + axis.shift, 0.0), float(axis.size - 1))
                first = t.floor(x)
                taps = [(first, 1.0 - (x - first)), (t("min", first + 1.0, float(axis.size - 1)), x - first)]
            found = [
                (place * float(axis.size) + own, weight * part)
                for place, weight in found
                for own, part in taps
            ]
        return found

    def forward(self, xp: Any, data: Any, out: Any, work: Any) -> None:
        """out: every row of `data` resampled."""
        self._run(xp, data, out, work, self._stages, _gather)

    def backward(self, xp: Any, d_out: Any, d_data: Any, work: Any) -> None:
        """d_data: the transposed map of d_out."""
        stages = [(i, after, before) for i, before, after in reversed(self._stages)]
        self._run(xp, d_out, d_data, work, stages, _scatter)

    def _run(
        self,
        xp: Any,
        source: Any,
        target: Any,
        work: Any,
        stages: Sequence[tuple[int, Shape, Shape]],
        move: Any,
    ) -> None:
        if not target.size:
            return
        ping, pong, *parts = carve(work, self.pieces(source.dtype))
        given, wanted = source.reshape(self.rows, -1), target.reshape(self.rows, -1)
        for begin in range(0, self.rows, self.step):
            x, y = given[begin : begin + self.step], wanted[begin : begin + self.step]
            m = len(x)
            if x.dtype != ping.dtype:
                cast = ping[: x.size].reshape(x.shape)
                xp.copyto(cast, x, casting="unsafe")
                x = cast
            for k, (i, before, after) in enumerate(stages):
                if k == len(stages) - 1 and y.dtype == ping.dtype:
                    to = y
                else:
                    to = pong[: m * prod(after)].reshape(m, -1)
                    ping, pong = pong, ping
                outer, inner = m * prod(before[:i]), prod(before[i + 1 :])
                shapes = (outer, before[i], inner), (outer, after[i], inner)
                move(xp, self.axes[i], x.reshape(shapes[0]), to.reshape(shapes[1]), *parts)
                x = to
            if x is not y:
                xp.copyto(y, x, casting="unsafe")


def _blocks(axis: Axis) -> Iterator[tuple[int, int]]:
    return ((b, min(b + _OUTPUTS, axis.out)) for b in range(0, axis.out, _OUTPUTS))


def _gather(xp: Any, axis: Axis, x: Any, y: Any, first: Any, second: Any) -> None:
    """y[:, o] = sum over the taps of weight * x[:, index]."""
    outer, _, inner = y.shape
    for begin, end in _blocks(axis):
        place = y[:, begin:end]
        for t, (index, weight) in enumerate(axis.taps(begin, end)):
            part = first[: place.size].reshape(outer, end - begin, inner)
            xp.take(x, index, axis=1, out=part, mode="clip")
            if weight is not None:
                xp.multiply(part, weight.astype(part.dtype)[:, None], out=part)
            if t:
                xp.add(place, part, out=place)
            else:
                xp.copyto(place, part)


def _scatter(xp: Any, axis: Axis, d: Any, d_x: Any, first: Any, second: Any) -> None:
    """d_x[:, index] += weight * d[:, o], tap by tap."""
    outer, _, inner = d.shape
    d_x.fill(0)
    for begin, end in _blocks(axis):
        place = d[:, begin:end]
        for index, weight in axis.taps(begin, end):
            part = first[: place.size].reshape(place.shape)
            if weight is None:
                xp.copyto(part, place)
            else:
                xp.multiply(place, weight.astype(part.dtype)[:, None], out=part)
            starts = np.flatnonzero(np.diff(index, prepend=-1))
            into = index[starts]
            if len(starts) < len(index):
                sums = second[: outer * len(starts) * inner].reshape(outer, len(starts), inner)
                xp.add.reduceat(part, starts, axis=1, out=sums)
                part, spare = sums, first
            else:
                spare = second
            if into[-1] - into[0] + 1 == len(into):
                run = d_x[:, into[0] : into[-1] + 1]
                xp.add(run, part, out=run)
                continue
            held = spare[: part.size].reshape(part.shape)
            xp.take(d_x, into, axis=1, out=held, mode="clip")
            xp.add(held, part, out=held)
            d_x[:, into] = held
