"""Steps of a recurrent layer forward, see `recurrent.py`."""

from __future__ import annotations

from collections.abc import Callable

from ..winograd.routine import Int, Program, Routine
from . import recurrent as r, tile
from .functions import sigmoid, tanh
from .recurrent import Form, Recurrent

_UNROLL = 4


class Forward(Recurrent):
    """`forward`: STEPS steps from the state at STATE, which moves to OTHER and back at each."""

    def __init__(self, p: Program, form: Form) -> None:
        super().__init__(p, form, "forward")
        f, self.panel = self.f, r.panel(form)
        v = len(self.panel.vectors)
        most = (tile.registers() - 1 - v) // v
        self.tiles = r.heights(form.samples, min(tile.MOST_ROWS, most))
        self.whole, self.rest = divmod(self.h, self.panel.units)
        for n, _ in self.tiles:
            for left in {self.panel.units, self.rest} - {0} if self.whole else {self.rest}:
                _Tile(p, form, n, left)
        states = [f.pointer(s) for s in (r.STATE, r.OTHER)]
        cell, bias = f.pointer(r.CELL), f.pointer(r.BIAS)
        first, last = f.share(str(self.whole + bool(self.rest)))
        with f.loop("0", self.steps) as loop:
            odd = f.emit(f"trunc i64 {loop.index} to i1")
            old = f.emit(f"select i1 {odd}, ptr {states[1]}, ptr {states[0]}")
            new = f.emit(f"select i1 {odd}, ptr {states[0]}, ptr {states[1]}")
            pre = f.at(self.gates, f.times(loop.index, self.gates_step))
            nothing = f.emit(f"icmp eq ptr {self.out}, null")
            out = f.at(self.out, f.times(loop.index, self.out_step))
            out = f.emit(f"select i1 {nothing}, ptr null, ptr {out}")
            time = self.time(loop.index)
            if self.whole:
                with f.loop(first, str(f.least(last, self.whole))) as some:
                    self._panel(some.index, self.panel.units, pre, old, new, cell, bias, out, time)
            if self.rest:
                with f.loop(str(f.most(first, self.whole)), last) as some:
                    self._panel(some.index, self.rest, pre, old, new, cell, bias, out, time)
            f.meet()
        f.done()

    def _panel(
        self, index: Int, left: int, pre: str, old: str, new: str, cell: str, bias: str, out: str, time: Int
    ) -> None:
        """All samples of one panel."""
        f, form = self.f, self.form
        v = len(self.panel.vectors)
        weight = f.at(self.packed, f.times(index, 4 * self.lanes * v * self.h))
        unit = f.times(index, self.panel.units)
        shift = f.times(unit, 4)
        nothing = f.emit(f"icmp eq ptr {out}, null")
        begin = 0
        for n, count in self.tiles:
            with f.loop(str(begin), str(begin + n * count), n) as loop:
                row = f.times(loop.index, 4 * self.h)
                own = f.plus(row, shift)
                place = f.plus(f.times(loop.index, self.out_row), f.times(unit, form.nbytes))
                target = f.emit(f"select i1 {nothing}, ptr null, ptr {f.at(out, place)}")
                f.run(
                    _name(n, left),
                    ("ptr", f.at(old, row)), ("ptr", weight),
                    ("ptr", f.at(pre, f.plus(f.times(loop.index, self.gates_row), shift))),
                    ("ptr", f.at(cell, own)), ("ptr", f.at(old, own)), ("ptr", f.at(new, own)),
                    ("ptr", f.at(bias, shift)), ("ptr", target), ("i64", self.out_row),
                    ("ptr", f.at(self.lengths, f.times(loop.index, 8))), ("i64", time),
                )  # fmt: skip
            begin += n * count


def _name(n: int, left: int) -> str:
    return f"step.{n}.{left}"


class _Tile:
    """`step.n.left(...)`: n samples of a panel of which `left` units are there."""

    def __init__(self, p: Program, form: Form, n: int, left: int) -> None:
        self.form, self.n = form, n
        self.f = f = p.routine(
            _name(n, left), h="ptr", weight="ptr", pre="ptr", cell="ptr", old="ptr", new="ptr", bias="ptr",
            out="ptr", out_row="i64", lengths="ptr", time="i64",
        )  # fmt: skip
        self.shape = r.panel(form)
        self.vectors = self.shape.vectors
        lanes = f.width
        self.counts = [max(0, min(lanes, left - unit)) for _, unit in self.vectors]
        self.masks = [tile.first(f, c) if c < lanes else None for c in self.counts]
        self.row = 4 * form.hidden
        sums = self._product()
        v = len(self.vectors)
        for i in range(n):
            finish: Callable[[int, list[str]], None] = {"lstm": self._lstm, "gru": self._gru}.get(
                form.mode, self._plain
            )
            finish(i, sums[i * v : (i + 1) * v])
        f.done()

    def _product(self) -> list[str]:
        """The sums of the gates: what is there of them, plus h times the weights."""
        f, form, v, lanes = self.f, self.form, len(self.vectors), self.f.width
        line = 4 * lanes * v
        sums = []
        for i in range(self.n):
            for j, (gate, _) in enumerate(self.vectors):
                if form.mode == "gru" and gate == 2:  # the hidden part of the candidate's stays apart
                    sums.append(f.load("%bias", "0", mask=self.masks[j]))
                else:
                    sums.append(self._read("%pre", i * form.columns, gate, j))
        until = form.hidden // _UNROLL * _UNROLL
        for start, stop, step in ((0, until, _UNROLL), (until, form.hidden, 1)):
            if start == stop:
                continue
            with f.loop(str(start), str(stop), step, sums) as loop:
                values = list(loop.values)
                left = f.at("%h", f.times(loop.index, 4))
                right = f.at("%weight", f.times(loop.index, line))
                for k in range(step):
                    b = [f.read(f.at(right, line * k + 4 * lanes * j)) for j in range(v)]
                    for i in range(self.n):
                        a = f.repeated(f.at(left, i * self.row + 4 * k))
                        for j in range(v):
                            values[i * v + j] = f.fma(a, b[j], values[i * v + j])
                loop.again(*values)
            sums = list(loop.results)
        return sums

    # -- memory --------------------------------------------------------------------------------------

    def _read(self, base: str, rows: int, gate: int, j: int) -> str:
        """Vector j of the panel, `rows` rows of H numbers and `gate` columns from `base` on."""
        f = self.f
        at = f.at(base, (rows + gate) * self.row)
        return f.load(at, str(self.vectors[j][1]), mask=self.masks[j])

    def _write(self, value: str, base: str, rows: int, gate: int, j: int) -> None:
        f = self.f
        f.store(value, f.at(base, (rows + gate) * self.row), str(self.vectors[j][1]), mask=self.masks[j])

    def _states(self, i: int, j: int, h: str, off: str | None) -> None:
        """The hidden state of sample i: as it goes on, and as a result."""
        f, dtype = self.f, self.form.dtype
        if dtype != "float32":  # backward sees the rounded states only
            h = f.widened(f.narrowed(h, dtype), dtype)
        kept = h if off is None else f.select(off, self._read("%old", i, 0, j), h)
        self._write(kept, "%new", i, 0, j)
        with f.when(f.emit("icmp ne ptr %out, null")):
            shown = h if off is None else f.select(off, f.const(0.0), h)
            at = f.at("%out", f.times("%out_row", i))
            f.store(shown, at, str(self.vectors[j][1]), dtype, self.masks[j])

    def _off(self, i: int) -> str | None:
        return r.ended(self.f, "%lengths", i, "%time") if self.form.ends else None

    # -- cells ---------------------------------------------------------------------------------------

    def _lstm(self, i: int, sums: list[str]) -> None:
        f, off = self.f, self._off(i)
        enter, forget, out = (sigmoid(f, sums[g]) for g in (0, 1, 3))
        new = tanh(f, sums[2])
        before = self._read("%cell", i, 0, 0)
        c = f.fma(forget, before, f.mul(enter, new))
        if off is not None:
            c = f.select(off, before, c)
        self._write(c, "%cell", i, 0, 0)
        if self.form.keeps:
            for g, value in enumerate((enter, forget, new, out)):
                self._write(value, "%pre", 4 * i, g, g)
        self._states(i, 0, f.mul(out, tanh(f, c)), off)

    def _gru(self, i: int, sums: list[str]) -> None:
        f, off = self.f, self._off(i)
        reset, update = sigmoid(f, sums[0]), sigmoid(f, sums[1])
        new = tanh(f, f.fma(reset, sums[2], self._read("%pre", 4 * i, 2, 2)))
        before = self._read("%old", i, 0, 0)
        if self.form.keeps:
            for g, value in enumerate((reset, update, new, sums[2])):
                self._write(value, "%pre", 4 * i, g, min(g, 2))
        self._states(i, 0, f.fma(f.sub(before, new), update, new), off)

    def _plain(self, i: int, sums: list[str]) -> None:
        f, off = self.f, self._off(i)
        for j, x in enumerate(sums):
            h = f.maximum(x, f.const(0.0)) if self.form.mode == "rnn_relu" else tanh(f, x)
            self._states(i, j, h, off)
