"""Recurrent layers as generated code: a whole segment of steps in one call.

A step of a layer is one product, gates (B, G*H) += h (B, H) @ weight.T, and a few functions of each number.
Units are processed a vector at a time, all gates of all samples:

             k ->                             i   f   g   o   of 16 units
    h   .   .   .   .          weight  k     ... ... ... ...          packed before in the order they are
      sample                   turned  |     ... ... ... ...          read, a panel behind the other
      over                             v

One sample alone reads the weights as they are (`row_product.py`): packing takes as long as a dozen steps. Its
steps are so short that threads would often wait for each other: of two directions each has half of them.

Each thread has units of its own in every step, and so its part of the weights in its cache; after a step
there is a barrier, because the next one reads all hidden states.

Backward goes from the last step to the first: for its units, a thread computes the gradients of the gates'
sums; after a barrier dh += d_gates (B, G*H) @ weight, for its units too. The gates are read.

Gates lie side by side in the order of rnn_cells.py. A GRU has four columns of H numbers: reset, update,
candidate, and the hidden part of the candidate's sum.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codegen.emitter import width
from ..codegen.ir import I64, Value
from ..codegen.routine import Int, Program, Routine


class RecurrentForm(NamedTuple):
    """Parameters that the code depends on. `dtype`: of results; `head`: of their gradients. keeps: True if
    gates are written. ends: True if samples have lengths of their own.
    """

    mode: str
    hidden: int
    samples: int
    dtype: str = "float32"
    keeps: bool = False
    ends: bool = False
    head: str = "float32"

    @property
    def gates(self) -> int:
        """Rows of H numbers in the weights."""
        return {"lstm": 4, "gru": 3}.get(self.mode, 1)

    @property
    def columns(self) -> int:
        """Columns of H numbers in an array of gates."""
        return 4 if self.mode == "gru" else self.gates

    @property
    def packs(self) -> bool:
        """True if the steps forward read packed weights."""
        return self.samples > 1

    @property
    def nbytes(self) -> int:
        return 4 if self.dtype == "float32" else 2


class Panel(NamedTuple):
    """Vectors of gates: (gate, first unit in the panel), how many units that makes, vectors in a tile."""

    vectors: tuple[tuple[int, int], ...]
    units: int
    tile: int


def panel(form: RecurrentForm) -> Panel:
    """Panels into which units are cut for the product forward."""
    lanes = width()
    if form.gates > 1:
        return Panel(tuple((g, 0) for g in range(form.gates)), lanes, 2 if form.gates == 4 else 3)
    v = min(2, -(-form.hidden // lanes))
    return Panel(tuple((0, j * lanes) for j in range(v)), v * lanes, v)


def wide(form: RecurrentForm) -> int:
    """Units of a panel of the product backward."""
    return width() * min(2, -(-form.hidden // width()))


def packed_numbers(form: RecurrentForm, backward: bool) -> int:
    """float32 numbers of packed weights."""
    if backward:
        return -(-form.hidden // wide(form)) * wide(form) * form.gates * form.hidden
    if not form.packs:
        return 0
    p = panel(form)
    return -(-form.hidden // p.units) * len(p.vectors) * width() * form.hidden


# Slots of the arguments of all functions: addresses, then numbers.
WEIGHT, PACKED, GATES, CELL, OUT, LENGTHS = range(6)
BIAS, STATE, OTHER = range(6, 9)  # forward
CELLS, START, D_GATES, HEAD, DH, DC, BEFORE, D_BIAS = range(6, 14)  # backward
STEPS, GATES_STEP, OUT_STEP, OUT_ROW, TIME, TIME_STEP, D_STEP, CELLS_STEP, HEAD_STEP, HEAD_ROW = range(14, 24)
BEFORE_STEP, COUNT = 24, 25


class Recurrent:
    """Base of both directions: arguments, time, and samples whose sequence has ended."""

    def __init__(self, p: Program, form: RecurrentForm, name: str) -> None:
        self.p, self.form = p, form
        self.h, self.lanes = form.hidden, width()
        self.f = f = p.entry(name)
        self.gates_row = 4 * self.h * form.columns
        self.packed, self.gates, self.out, self.lengths = (
            f.pointer(s) for s in (PACKED, GATES, OUT, LENGTHS)
        )
        self.steps, self.gates_step, self.out_step, self.out_row = (
            f.integer(s) for s in (STEPS, GATES_STEP, OUT_STEP, OUT_ROW)
        )
        self.start, self.forth = f.integer(TIME), f.integer(TIME_STEP)

    def time(self, j: Int) -> Int:
        """The time step that is computed as number j."""
        return self.f.plus(self.start, self.f.times(j, self.forth))


def ended(f: Routine, lengths: Value, row: Int, time: Int) -> Value:
    """An i1 in all lanes: true if the sequence of a sample ends before `time`."""
    length = f.load_at(I64, f.at(lengths, f.times(row, 8)), 8)
    return f.every(f.is_("sle", length, time))
