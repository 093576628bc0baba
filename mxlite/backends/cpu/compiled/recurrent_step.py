"""Steps of a recurrent layer forward, see `recurrent.py`."""

from __future__ import annotations

from collections.abc import Callable

from ..winograd.routine import Int, Program
from . import recurrent as r, tile
from .functions import sigmoid, tanh
from .recurrent import Form, Recurrent


class Forward(Recurrent):
    """`forward`: STEPS steps from the state at STATE, which alternates between OTHER and STATE."""

    def __init__(self, p: Program, form: Form) -> None:
        super().__init__(p, form, "forward")
        f, self.panel = self.f, r.panel(form)
        self.whole, self.rest = divmod(self.h, self.panel.units)
        for left in {self.panel.units, self.rest} - {0} if self.whole else {self.rest}:
            self._product(left)
            _Cell(p, form, left)
        states = [f.pointer(s) for s in (r.STATE, r.OTHER)]
        self.cell, self.bias = f.pointer(r.CELL), f.pointer(r.BIAS)
        first, last = f.share(str(self.whole + bool(self.rest)))
        with f.loop("0", self.steps) as loop:
            odd = f.emit(f"trunc i64 {loop.index} to i1")
            old = f.emit(f"select i1 {odd}, ptr {states[1]}, ptr {states[0]}")
            new = f.emit(f"select i1 {odd}, ptr {states[0]}, ptr {states[1]}")
            if self.whole:
                with f.loop(first, str(f.least(last, self.whole))) as some:
                    self._panel(some.index, self.panel.units, loop.index, old, new)
            if self.rest:
                with f.loop(str(f.most(first, self.whole)), last) as some:
                    self._panel(some.index, self.rest, loop.index, old, new)
            f.meet()
        f.done()

    def _product(self, left: int) -> None:
        """`product.left`: gates += h @ weight.T, for a panel of which `left` units are there."""
        form, v, line = self.form, len(self.panel.vectors), 4 * self.lanes * self.panel.tile
        how = tile.Form(
            a_row=4 * self.h, a_step=4, b_step=line, c_row=self.gates_row, columns=left, adds=True,
            vectors=self.panel.tile, rows=form.samples, b_panel=line * self.h,
        )  # fmt: skip
        if form.gates > 1:  # the hidden part of a GRU's candidate stands alone, in a column of its own
            columns = {"lstm": (0, 1, 2, 3), "gru": (0, 1, 3)}[form.mode]
            how = how._replace(
                columns=self.lanes * v, places=tuple(4 * self.h * c for c in columns), lanes=left,
                fresh=int(form.mode == "gru"),
            )  # fmt: skip
        tile.multiplier(self.p, f"product.{left}", how)

    def _panel(self, index: Int, left: int, step: Int, old: str, new: str) -> None:
        """All samples of one panel."""
        f, form = self.f, self.form
        unit = f.times(index, self.panel.units)
        shift = f.times(unit, 4)
        gates = f.at(f.at(self.gates, f.times(step, self.gates_step)), shift)
        weight = f.at(self.packed, f.times(index, 4 * self.lanes * len(self.panel.vectors) * self.h))
        f.run(
            f"product.{left}", ("ptr", old), ("ptr", weight), ("ptr", gates), ("i64", form.samples),
            ("i64", self.h),
        )  # fmt: skip
        out = f.at(f.at(self.out, f.times(step, self.out_step)), f.times(unit, form.nbytes))
        nothing = f.emit(f"icmp eq ptr {self.out}, null")
        f.run(
            f"cell.{left}", ("ptr", gates), ("ptr", f.at(self.cell, shift)), ("ptr", f.at(old, shift)),
            ("ptr", f.at(new, shift)), ("ptr", f.at(self.bias, shift)),
            ("ptr", f.emit(f"select i1 {nothing}, ptr null, ptr {out}")), ("i64", self.out_row),
            ("ptr", self.lengths), ("i64", self.time(step)),
        )  # fmt: skip


class _Cell:
    """`cell.left(...)`: from the sums of the gates to new states, all samples of a panel of `left` units."""

    def __init__(self, p: Program, form: Form, left: int) -> None:
        self.form = form
        self.f = f = p.routine(
            f"cell.{left}", gates="ptr", cell="ptr", old="ptr", new="ptr", bias="ptr", out="ptr",
            out_row="i64", lengths="ptr", time="i64",
        )  # fmt: skip
        self.row = 4 * form.hidden
        writes = f.emit("icmp ne ptr %out, null")
        all_of: Callable[[int], None] = {"lstm": self._lstm, "gru": self._gru}.get(form.mode, self._plain)
        with f.loop("0", str(form.samples)) as loop:
            shift = f.times(loop.index, self.row)
            self.gates = f.at("%gates", f.times(loop.index, self.row * form.columns))
            self.cell, self.old, self.new = (f.at(x, shift) for x in ("%cell", "%old", "%new"))
            self.off = r.ended(f, "%lengths", loop.index, "%time") if form.ends else None
            self.out = f.at("%out", f.times(loop.index, "%out_row"))
            self.lanes = f.every(writes, "i1")
            for unit in range(0, left, f.width):
                self.at = str(unit)
                self.mask = tile.first(left - unit) if left - unit < f.width else None
                all_of(unit)
        f.done()

    def _read(self, base: str, column: int = 0) -> str:
        return self.f.load(self.f.at(base, column * self.row), self.at, mask=self.mask)

    def _write(self, value: str, base: str, column: int = 0) -> None:
        self.f.store(value, self.f.at(base, column * self.row), self.at, mask=self.mask)

    def _keep(self, *values: str) -> None:
        if self.form.keeps:
            for column, value in enumerate(values):
                self._write(value, self.gates, column)

    def _states(self, h: str) -> None:
        """The hidden state: for the next step, and as a result."""
        f, dtype, off = self.f, self.form.dtype, self.off
        if dtype != "float32":  # backward reads only the rounded states
            h = f.widened(f.narrowed(h, dtype), dtype)
        self._write(h if off is None else f.select(off, self._read(self.old), h), self.new)
        shown = h if off is None else f.select(off, f.const(0.0), h)
        mask = self.lanes if self.mask is None else f.emit(f"and {f.bits} {self.lanes}, {self.mask}")
        f.store(shown, self.out, self.at, dtype, mask)

    def _lstm(self, unit: int) -> None:
        f = self.f
        enter, forget, out = (sigmoid(f, self._read(self.gates, g)) for g in (0, 1, 3))
        new = tanh(f, self._read(self.gates, 2))
        before = self._read(self.cell)
        c = f.fma(forget, before, f.mul(enter, new))
        if self.off is not None:
            c = f.select(self.off, before, c)
        self._write(c, self.cell)
        self._keep(enter, forget, new, out)
        self._states(f.mul(out, tanh(f, c)))

    def _gru(self, unit: int) -> None:
        f = self.f
        reset, update = (sigmoid(f, self._read(self.gates, g)) for g in (0, 1))
        hidden = f.add(self._read(self.gates, 3), f.load("%bias", self.at, mask=self.mask))
        new = tanh(f, f.fma(reset, hidden, self._read(self.gates, 2)))
        self._keep(reset, update, new, hidden)
        self._states(f.fma(f.sub(self._read(self.old), new), update, new))

    def _plain(self, unit: int) -> None:
        f, x = self.f, self._read(self.gates)
        self._states(f.maximum(x, f.const(0.0)) if self.form.mode == "rnn_relu" else tanh(f, x))
