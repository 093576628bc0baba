"""Steps of a recurrent layer backward, see `recurrent.py`."""

from __future__ import annotations

from ..codegen import tile
from ..codegen.functions import tanh
from ..codegen.ir import NULL, Value
from ..codegen.routine import Int, Program, Routine
from . import recurrent as r
from .recurrent import Recurrent, RecurrentForm

_STEPS = 512  # of a product at a time, so that what it reads of the weights stays in a cache


def pack_backward(p: Program, form: RecurrentForm) -> None:
    """pack(WEIGHT -> PACKED): weight (G*H, H) to panels (G*H, units)."""
    f = p.entry("pack")
    h, units = form.hidden, r.wide(form)
    weight, packed = f.pointer(r.WEIGHT), f.pointer(r.PACKED)
    first, last = f.share(form.gates * h)
    with f.loop(first, last) as row:
        for index in range(-(-h // units)):
            source = f.at(weight, f.times(f.plus(f.times(row.index, h), index * units), 4))
            target = f.at(packed, f.times(f.plus(row.index, index * form.gates * h), 4 * units))
            for k in range(units // f.width):
                left = h - index * units - k * f.width
                mask = tile.first(left) if left < f.width else None
                f.store(f.load(source, k * f.width, mask=mask), target, k * f.width)
    f.done()


class Gradient(Recurrent):
    """`backward`: from step STEPS - 1 to 0. DH and DC are the gradients of the states after, then before."""

    def __init__(self, p: Program, form: RecurrentForm) -> None:
        super().__init__(p, form, "backward")
        f, self.units = self.f, r.wide(form)
        panels = -(-self.h // self.units)
        self.last_units = self.h - (panels - 1) * self.units
        for units in {self.units, self.last_units} if panels > 1 else {self.last_units}:
            how = tile.TileForm(
                self.gates_row, 4, 4 * self.units, 4 * self.h, units, adds=True, rows=form.samples
            )
            tile.multiplier(p, f"product.{units}", how)
        self.cells, self.begin, self.d_gates, self.head, self.dh, self.dc, self.before, self.sums = (
            f.pointer(s)
            for s in (
                r.CELLS, r.START, r.D_GATES, r.HEAD, r.DH, r.DC, r.BEFORE, r.D_BIAS
            )
        )  # fmt: skip
        self.d_step, self.cells_step, self.head_step, self.head_row, self.before_step = (
            f.integer(s) for s in (r.D_STEP, r.CELLS_STEP, r.HEAD_STEP, r.HEAD_ROW, r.BEFORE_STEP)
        )
        self.first, self.last = f.share(panels)
        self.panels = panels
        self.low = f.times(self.first, self.units)
        self.high = f.least(f.times(self.last, self.units), self.h)
        if form.mode == "lstm":
            with f.loop(0, self.steps) as loop:
                self._recall(loop.index)
        with f.loop(0, self.steps) as loop:
            self._step(f.minus(f.minus(self.steps, 1), loop.index))
        f.done()

    # -- memory --------------------------------------------------------------------------------------

    def _cells_at(self, j: Int) -> tuple[Value, Value]:
        """Cell states after step j, and before it."""
        f = self.f
        after = f.at(self.cells, f.times(j, self.cells_step))
        earlier = f.minus(0, self.cells_step)
        is_first = f.is_("eq", j, 0)
        return after, f.either(is_first, self.begin, f.at(after, earlier))

    # -- cell states --------------------------------------------------------------------------

    def _recall(self, j: Int) -> None:
        """The cell states of step j, of its units, from the gates."""
        f, form = self.f, self.form
        gates = f.at(self.gates, f.times(j, self.gates_step))
        after, before = self._cells_at(j)
        time = self.time(j)
        with f.loop(0, form.samples) as loop:
            row = f.at(gates, f.times(loop.index, self.gates_row))
            shift = f.times(loop.index, 4 * self.h)
            columns = [f.at(row, 4 * self.h * g) for g in range(3)]
            off = r.ended(f, self.lengths, loop.index, time) if form.ends else None

            def unit(i: Value, mask: Value | None) -> None:
                enter, forget, new = (f.load(column, i, mask=mask) for column in columns)
                c = f.load(f.at(before, shift), i, mask=mask)
                made = f.fma(forget, c, f.mul(enter, new))
                f.store(made if off is None else f.select(off, c, made), f.at(after, shift), i, mask=mask)

            f.sweep(self.low, self.high, unit)

    # -- gradients ----------------------------------------------------------------------------------------

    def _step(self, j: Int) -> None:
        f = self.f
        d_gates = f.at(self.d_gates, f.times(j, self.d_step))
        self._pointwise(j, d_gates)
        f.meet()
        whole = self.panels - (self.last_units < self.units)
        if whole:
            with f.loop(self.first, f.least(self.last, whole)) as loop:
                self._product(loop.index, self.units, d_gates)
        if whole < self.panels:
            with f.loop(f.most(self.first, whole), self.last) as loop:
                self._product(loop.index, self.last_units, d_gates)

    def _product(self, index: Int, units: int, d_gates: Value) -> None:
        """dh += d_gates @ weight for the units of a panel."""
        f, form = self.f, self.form
        packed = f.at(self.packed, f.times(index, 4 * self.units * form.gates * self.h))
        target = f.at(self.dh, f.times(index, 4 * self.units))
        # (first column, first row of the weights, how many): a GRU's candidate has its hidden part elsewhere
        parts = [(0, 0, 2 * self.h), (3 * self.h, 2 * self.h, self.h)]
        for column, row, count in parts if form.mode == "gru" else [(0, 0, form.gates * self.h)]:
            with f.loop(0, count, _STEPS) as loop:
                n = f.least(f.minus(count, loop.index), _STEPS)
                f.run(
                    f"product.{units}",
                    f.at(d_gates, f.times(f.plus(loop.index, column), 4)),
                    f.at(packed, f.times(f.plus(loop.index, row), 4 * self.units)),
                    target, form.samples, n,
                )  # fmt: skip

    def _pointwise(self, j: Int, d_gates: Value) -> None:
        """Gradients of the gates' sums of step j; dh becomes the gradient that bypasses the product."""
        f, form = self.f, self.form
        gates = f.at(self.gates, f.times(j, self.gates_step))
        after, before = self._cells_at(j) if form.mode == "lstm" else (None, None)
        head = f.at(self.head, f.times(j, self.head_step))
        results = f.at(self.out, f.times(j, self.out_step))
        time = self.time(j)
        has_head = f.is_("ne", self.head, NULL)
        states = f.times(j, self.before_step)
        with f.loop(0, form.samples) as loop:
            n, shift = loop.index, f.times(loop.index, 4 * self.h)
            columns = [
                f.at(f.at(gates, f.times(n, self.gates_row)), 4 * self.h * g) for g in range(form.columns)
            ]
            targets = [
                f.at(f.at(d_gates, f.times(n, self.gates_row)), 4 * self.h * g) for g in range(form.columns)
            ]
            # Without gradients of results, zeros are read instead: dh times 0 would be NaN for some.
            head_row = f.at(head, f.times(n, self.head_row))
            off = r.ended(f, self.lengths, n, time) if form.ends else None
            dh_row, dc_row = f.at(self.dh, shift), f.at(self.dc, shift)
            earlier = f.at(f.at(self.before, states), shift)
            result = f.at(results, f.times(n, self.out_row))
            cells = [f.at(x, shift) for x in (after, before) if x is not None]

            def unit(i: Value, mask: Value | None) -> None:
                old = f.load(dh_row, i, mask=mask)
                lanes = mask if mask is not None else tile.first(f.width)
                wanted = f.both(lanes, f.every(has_head))
                d = f.add(old, f.load(head_row, i, form.head, wanted))
                one = f.const(1.0)
                if form.mode == "lstm":
                    enter, forget, new, out = (f.load(column, i, mask=mask) for column in columns)
                    c, c_before = (f.load(x, i, mask=mask) for x in cells)
                    t = tanh(f, c)
                    d_old = f.load(dc_row, i, mask=mask)
                    dc = f.fma(f.mul(d, out), f.sub(one, f.mul(t, t)), d_old)
                    made = [
                        f.mul(f.mul(dc, new), _slope(f, enter)),
                        f.mul(f.mul(dc, c_before), _slope(f, forget)),
                        f.mul(f.mul(dc, enter), f.sub(one, f.mul(new, new))),
                        f.mul(f.mul(d, t), _slope(f, out)),
                    ]
                    passed = f.const(0.0)
                    dc = f.mul(dc, forget)
                    f.store(dc if off is None else f.select(off, d_old, dc), dc_row, i, mask=mask)
                elif form.mode == "gru":
                    reset, update, new, hidden = (f.load(column, i, mask=mask) for column in columns)
                    h = f.load(earlier, i, mask=mask)
                    dn = f.mul(f.mul(d, f.sub(one, update)), f.sub(one, f.mul(new, new)))
                    made = [
                        f.mul(f.mul(dn, hidden), _slope(f, reset)),
                        f.mul(f.mul(d, f.sub(h, new)), _slope(f, update)),
                        dn,
                        f.mul(dn, reset),
                    ]
                    passed = f.mul(d, update)
                else:
                    y = f.load(result, i, form.dtype, mask)
                    if form.mode == "rnn_relu":
                        made = [f.mul(f.select(f.compare("ogt", y, f.const(0.0)), one, y), d)]
                    else:
                        made = [f.mul(f.sub(one, f.mul(y, y)), d)]
                    passed = f.const(0.0)
                if off is not None:
                    made = [f.select(off, f.const(0.0), x) for x in made]
                    passed = f.select(off, old, passed)
                f.store(passed, dh_row, i, mask=mask)
                for g, (x, column) in enumerate(zip(made, targets)):
                    f.store(x, column, i, mask=mask)
                    total = f.at(self.sums, 4 * self.h * g)
                    f.store(f.add(f.load(total, i, mask=mask), x), total, i, mask=mask)

            f.sweep(self.low, self.high, unit)


def _slope(f: Routine, y: Value) -> Value:
    """y (1 - y): of a sigmoid whose result is y."""
    return f.mul(y, f.sub(f.const(1.0), y))
