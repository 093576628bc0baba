"""Steps of a recurrent layer forward, see `recurrent.py`."""

from __future__ import annotations

from collections.abc import Callable

from ..codegen import tile
from ..codegen.functions import sigmoid, tanh
from ..codegen.ir import I1, NULL, Value
from ..codegen.routine import Int, Program
from . import recurrent as r
from .recurrent import Recurrent, RecurrentForm
from .row_product import row_multiplier


class Forward(Recurrent):
    """`forward`: STEPS steps from the state at STATE, which alternates between OTHER and STATE."""

    def __init__(self, p: Program, form: RecurrentForm) -> None:
        super().__init__(p, form, "forward")
        f, self.panel = self.f, r.panel(form)
        self.whole, self.rest = divmod(self.h, self.panel.units)
        for left in {self.panel.units, self.rest} - {0} if self.whole else {self.rest}:
            self._product(left)
            _Cell(p, form, left)
        states = [f.pointer(s) for s in (r.STATE, r.OTHER)]
        self.cell, self.bias = f.pointer(r.CELL), f.pointer(r.BIAS)
        first, last = f.share(self.whole + bool(self.rest))
        with f.loop(0, self.steps) as loop:
            odd = f.cast("trunc", loop.index, I1)
            old = f.either(odd, states[1], states[0])
            new = f.either(odd, states[0], states[1])
            if self.whole:
                with f.loop(first, f.least(last, self.whole)) as some:
                    self._panel(some.index, self.panel.units, loop.index, old, new)
            if self.rest:
                with f.loop(f.most(first, self.whole), last) as some:
                    self._panel(some.index, self.rest, loop.index, old, new)
            f.meet()
        f.done()

    def _product(self, left: int) -> None:
        """`product.left`: gates += h @ weight.T, for a panel of which `left` units are there."""
        form, v, line = self.form, len(self.panel.vectors), 4 * self.lanes * self.panel.tile
        if not form.packs:
            self._row_product(left)
            return
        how = tile.TileForm(
            a_row=4 * self.h, a_step=4, b_step=line, c_row=self.gates_row, columns=left, adds=True,
            vectors=self.panel.tile, rows=form.samples, b_panel=line * self.h,
        )  # fmt: skip
        if form.gates > 1:
            how = how._replace(
                columns=self.lanes * v, places=tuple(4 * self.h * c for c in self._columns()), lanes=left,
                fresh=int(form.mode == "gru"),
            )  # fmt: skip
        tile.multiplier(self.p, f"product.{left}", how)

    def _row_product(self, left: int) -> None:
        """The same for one sample, from weights that are not packed."""
        f = self.p.routine(f"product.{left}", a="ptr", b="ptr", c="ptr", rows="i64", steps="i64")
        row, form = 4 * self.h, self.form
        for column, (gate, unit) in zip(self._columns(), self.panel.vectors):
            rows = min(self.lanes, left - unit)
            if rows <= 0:
                continue
            is_fresh = form.mode == "gru" and gate == 2
            name = row_multiplier(self.p, f"row.{left}.{gate}.{unit}", rows, row, not is_fresh)
            weight = f.at(f.arg("b"), (gate * self.h + unit) * row)
            f.run(name, f.arg("a"), weight, f.at(f.arg("c"), 4 * (column * self.h + unit)), f.arg("steps"))
        f.done()

    def _columns(self) -> tuple[int, ...]:
        """For each vector of a panel its column of gates: a GRU's candidate has its hidden part alone."""
        return {"lstm": (0, 1, 2, 3), "gru": (0, 1, 3)}.get(self.form.mode, (0,) * len(self.panel.vectors))

    def _panel(self, index: Int, left: int, step: Int, old: Value, new: Value) -> None:
        """All samples of one panel."""
        f, form = self.f, self.form
        unit = f.times(index, self.panel.units)
        shift = f.times(unit, 4)
        gates = f.at(f.at(self.gates, f.times(step, self.gates_step)), shift)
        row = self.lanes * len(self.panel.vectors) if form.packs else self.panel.units
        weight = f.at(self.packed, f.times(index, 4 * row * self.h))
        f.run(f"product.{left}", old, weight, gates, form.samples, self.h)
        out = f.at(f.at(self.out, f.times(step, self.out_step)), f.times(unit, form.nbytes))
        nothing = f.is_("eq", self.out, NULL)
        f.run(
            f"cell.{left}", gates, f.at(self.cell, shift), f.at(old, shift),
            f.at(new, shift), f.at(self.bias, shift),
            f.either(nothing, NULL, out), self.out_row,
            self.lengths, self.time(step),
        )  # fmt: skip


def both(p: Program) -> None:
    """`both`: two calls of `forward` of as many steps, whose slots follow each other, each by half of the
    threads.
    """
    f = p.entry("both")
    half = f.over(f.threads, 2)

    def forward(which: Int, thread: Int, threads: Int) -> None:
        slots = f.at(f.arg("args"), f.times(which, 8 * r.COUNT))
        f.do_call("forward", slots, f.value(thread), f.value(threads), declared=True)

    with f.when(f.is_("slt", f.threads, 2)), f.loop(0, 2) as loop:
        forward(loop.index, 0, 1)
    with f.when(f.is_("sge", f.threads, 2)):
        which = f.over(f.thread, half)
        with f.when(f.is_("slt", which, 2)):
            forward(which, f.minus(f.thread, f.times(which, half)), half)
        # One that is left over only waits where the others do.
        idle = f.both(f.is_("sge", which, 2), f.is_("sgt", half, 1))
        with f.when(idle), f.loop(0, f.integer(r.STEPS)):
            f.meet()
    f.done()


class _Cell:
    """`cell.left(...)`: from the sums of the gates to new states, all samples of a panel of `left` units."""

    def __init__(self, p: Program, form: RecurrentForm, left: int) -> None:
        self.form = form
        self.f = f = p.routine(
            f"cell.{left}", gates="ptr", cell="ptr", old="ptr", new="ptr", bias="ptr", out="ptr",
            out_row="i64", lengths="ptr", time="i64",
        )  # fmt: skip
        self.row = 4 * form.hidden
        writes = f.is_("ne", f.arg("out"), NULL)
        all_of: Callable[[int], None] = {"lstm": self._lstm, "gru": self._gru}.get(form.mode, self._plain)
        with f.loop(0, form.samples) as loop:
            shift = f.times(loop.index, self.row)
            self.gates = f.at(f.arg("gates"), f.times(loop.index, self.row * form.columns))
            self.cell, self.old, self.new = (
                f.at(x, shift) for x in (f.arg("cell"), f.arg("old"), f.arg("new"))
            )
            self.off = r.ended(f, f.arg("lengths"), loop.index, f.arg("time")) if form.ends else None
            self.out = f.at(f.arg("out"), f.times(loop.index, f.arg("out_row")))
            self.lanes = f.every(writes)
            for unit in range(0, left, f.width):
                self.at = unit
                self.mask = tile.first(left - unit) if left - unit < f.width else None
                all_of(unit)
        f.done()

    def _read(self, base: Value, column: int = 0) -> Value:
        return self.f.load(self.f.at(base, column * self.row), self.at, mask=self.mask)

    def _write(self, value: Value, base: Value, column: int = 0) -> None:
        self.f.store(value, self.f.at(base, column * self.row), self.at, mask=self.mask)

    def _keep(self, *values: Value) -> None:
        if self.form.keeps:
            for column, value in enumerate(values):
                self._write(value, self.gates, column)

    def _states(self, h: Value) -> None:
        """The hidden state: for the next step, and as a result."""
        f, dtype, off = self.f, self.form.dtype, self.off
        if dtype != "float32":  # backward reads only the rounded states
            h = f.widened(f.narrowed(h, dtype), dtype)
        self._write(h if off is None else f.select(off, self._read(self.old), h), self.new)
        shown = h if off is None else f.select(off, f.const(0.0), h)
        mask = self.lanes if self.mask is None else f.both(self.lanes, self.mask)
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
        hidden = f.add(self._read(self.gates, 3), f.load(f.arg("bias"), self.at, mask=self.mask))
        new = tanh(f, f.fma(reset, hidden, self._read(self.gates, 2)))
        self._keep(reset, update, new, hidden)
        self._states(f.fma(f.sub(self._read(self.old), new), update, new))

    def _plain(self, unit: int) -> None:
        f, x = self.f, self._read(self.gates)
        self._states(f.maximum(x, f.const(0.0)) if self.form.mode == "rnn_relu" else tanh(f, x))
