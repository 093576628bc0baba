"""Connectionist temporal classification (A. Graves, S. Fernandez, F. Gomez, J. Schmidhuber, 2006,
"Connectionist temporal classification: labelling unsegmented sequence data with recurrent neural networks").

A labelling l[1..n] is read off a path of T classes by merging equal neighbours and then dropping blanks. The
paths of a labelling walk through S = 2n + 1 states, blank l[1] blank l[2] ... blank, each step staying, going
on by one, or by two if that skips a blank between different labels:

    alpha[t, s]   probability of all paths to state s at step t, the step's own class included
    beta[t, s]    probability of all continuations from there

Both are kept as logarithms whose largest, in each sample and step, is 0: so float32 loses nothing however
long the sequence. Samples and states are vectors; only time is a loop.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..scratch import accumulator, carve, Piece, scratch_bytes


class CTCLoss(Op):
    """Negative log probability of each labelling, ``out[b] = -log p(label[b] | softmax(data[:, b]))``.

    data: (T, B, C), before the softmax;  label: (B, L);  data_lengths, label_lengths: (B,), with
    `use_data_lengths`, `use_label_lengths`  ->  out: (B,). `blank_label` says whether class 0 or C - 1 is the
    blank. Without `use_label_lengths` a labelling ends before its first 0 (blank first) or -1 (blank last).

    The gradient is ``d_out[b] * (softmax(data[t, b]) - posterior of each class at step t)``. A labelling that
    no path of that length gives has the loss 0 and the gradient 0 (MXNet 1.9.1: loss 0 and a random
    gradient). A label that is no class counts as the nearest one. Only the inputs are kept; alpha lives
    during backward.
    """

    aliases = ("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss")
    inputs = ("data", "label", "data_lengths", "label_lengths")
    inferred = ("data_lengths", "label_lengths")
    backward_in_place = {"d_data": "data"}
    accepts = "float"
    optional = {"data_lengths": "use_data_lengths", "label_lengths": "use_label_lengths"}

    @record
    class Attrs:
        use_data_lengths: bool = False
        use_label_lengths: bool = False
        blank_label: Literal["first", "last"] = "first"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data, label = shapes[:2]
        assert data is not None and label is not None
        if len(data) != 3 or data[2] < 1:
            raise ShapeError(f"data must be (steps, samples, classes), got {data}.")
        if len(label) != 2 or label[0] != data[1]:
            raise ShapeError(
                f"label must be (samples, labels), ({data[1]}, ...) for data {data}, got {label}."
            )
        return (data, label, *((data[1],) for _ in shapes[2:])), ((data[1],),)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        """Types of data, labels and lengths; labels and lengths may be of any type, by default data's."""
        data = dtypes[0]
        require_kind(cls, data)
        return (data, *(d or data for d in dtypes[1:])), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        (steps, samples, classes), (_, labels) = inputs[:2]
        return steps * samples * (20 * classes + 60 * (2 * labels + 1))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(ctc_pieces(inputs[0], inputs[1], dtype, 2).values())

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(ctc_pieces(inputs[0], inputs[1], dtype, inputs[0][0] + 1).values())

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, label: Any, data_lengths: Any = None, label_lengths: Any = None, *,
        out: Any, work: Any,
    ) -> None:  # fmt: skip
        if out is None:
            return
        paths = Paths(xp, a, data.shape, label, data_lengths, label_lengths, work, data.dtype, 2)
        alpha = paths.rows
        paths.begin(alpha[0])
        for t in range(len(data)):
            paths.classes(data[t])
            paths.forward(t, alpha[t % 2], alpha[(t + 1) % 2])
        paths.loss(alpha[len(data) % 2], out)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, label: Any, data_lengths: Any, label_lengths: Any, *,
        d_data: Any, work: Any,
    ) -> None:  # fmt: skip
        if d_data is None:
            return
        count = len(data) + 1
        paths = Paths(xp, a, data.shape, label, data_lengths, label_lengths, work, data.dtype, count)
        alpha = paths.rows
        paths.begin(alpha[0])
        for t in range(len(data)):
            paths.classes(data[t])
            paths.forward(t, alpha[t], alpha[t + 1])
        paths.end()
        for t in range(len(data) - 1, -1, -1):
            paths.classes(data[t])  # before d_data[t] is written: it may alias data[t]
            paths.posterior(t, alpha[t + 1], d_out, d_data[t])


def ctc_pieces(data: Shape, label: Shape, dtype: DType, count: int) -> dict[str, Piece]:
    """Scratch; `count` rows of alpha, each with two unreachable states before the first."""
    kind, whole, yes = accumulator(dtype), np.dtype("int64"), np.dtype(bool)
    _, samples, classes = data
    states = 2 * label[1] + 1
    return {
        "rows": ((count, samples, states + 2), kind),
        "beta": ((samples, states + 2), kind),
        "more": ((samples, states + 2), kind),
        "log": ((samples, states), kind),
        "room": ((samples, states), kind),
        "skip": ((samples, states), kind),
        "softmax": ((samples, classes), kind),
        "most": ((samples, 1), kind),
        "sum": ((samples, 1), kind),
        "total": ((samples, 1), np.dtype("float64")),
        "at": ((samples, states), whole),
        "ends": ((samples, 1), whole),
        "size": ((samples, 1), whole),
        "off": ((samples, 1), yes),
        "none": ((samples, states), yes),
    }


class Paths:
    """The states of all samples, and the steps through them. Arrays are scratch; see `ctc_pieces`."""

    def __init__(
        self, xp: Any, a: Any, shape: Shape, label: Any, ends: Any, sizes: Any, work: Any, dtype: DType,
        count: int,
    ) -> None:  # fmt: skip
        pieces = ctc_pieces(shape, label.shape, dtype, count)
        for name, array in zip(pieces, carve(work, pieces.values())):
            setattr(self, name, array)
        self.xp = xp
        steps, _, classes = shape
        self.blank = 0 if a.blank_label == "first" else classes - 1
        if ends is None:
            self.ends.fill(steps)
        else:
            xp.copyto(self.ends[:, 0], ends, casting="unsafe")
        self._sizes(label, sizes, 0 if a.blank_label == "first" else -1)
        self._states(label, classes)

    rows: Any
    beta: Any
    more: Any
    log: Any
    room: Any
    skip: Any
    softmax: Any
    most: Any
    sum: Any
    total: Any
    at: Any
    ends: Any
    size: Any
    off: Any
    none: Any

    def _sizes(self, label: Any, sizes: Any, padding: int) -> None:
        """Count the labels of each sample."""
        xp, most = self.xp, label.shape[1]
        if sizes is not None:
            xp.copyto(self.size[:, 0], sizes, casting="unsafe")
            xp.clip(self.size, 0, most, out=self.size)
            return
        self.size.fill(0)
        going = self.off
        going.fill(True)
        for i in range(most):
            xp.logical_and(going, label[:, i : i + 1] != padding, out=going)
            xp.add(self.size, going, out=self.size)

    def _states(self, label: Any, classes: int) -> None:
        """at: index of each state's class in a flat step. skip: 0 where a state follows the last but one."""
        xp, at = self.xp, self.at
        at[:, 0::2] = self.blank
        xp.copyto(at[:, 1::2], label, casting="unsafe")
        xp.clip(at, 0, classes - 1, out=at)
        self.skip.fill(-xp.inf)
        self.skip[:, 1:2] = 0
        differ = self.none[:, : label.shape[1]]
        xp.not_equal(at[:, 3::2], at[:, 1:-2:2], out=differ[:, 1:])
        xp.copyto(self.skip[:, 3::2], 0, where=differ[:, 1:])
        xp.add(at, (xp.arange(len(at)) * classes)[:, None], out=at)

    def _off(self, t: int) -> Any:
        """Mask of samples that have ended before step t."""
        self.xp.less_equal(self.ends, t, out=self.off)
        return self.off

    def _largest_to_zero(self, x: Any) -> None:
        """Subtract from each sample's logarithms the largest, which stays in `most`; 0 where all are -inf."""
        xp = self.xp
        xp.max(x, axis=1, keepdims=True, out=self.most)
        xp.copyto(self.most, 0, where=self.most == -xp.inf)
        xp.subtract(x, self.most, out=x)

    def classes(self, x: Any) -> None:
        """Compute softmax: of one step (B, C), and log: its logarithm, at each state's class."""
        xp = self.xp
        xp.copyto(self.softmax, x)
        xp.max(self.softmax, axis=1, keepdims=True, out=self.most)
        xp.subtract(self.softmax, self.most, out=self.softmax)
        xp.take(self.softmax.reshape(-1), self.at, out=self.log, mode="clip")
        xp.exp(self.softmax, out=self.softmax)
        xp.sum(self.softmax, axis=1, keepdims=True, out=self.sum)
        xp.divide(self.softmax, self.sum, out=self.softmax)
        xp.log(self.sum, out=self.most)
        xp.subtract(self.log, self.most, out=self.log)

    def begin(self, alpha: Any) -> None:
        """Initialize alpha before the first step: all in one state before the first two."""
        alpha.fill(-self.xp.inf)
        alpha[:, 1] = 0
        self.total.fill(0)

    def forward(self, t: int, old: Any, new: Any) -> None:
        """Compute alpha of step t from that of the step before."""
        xp = self.xp
        new[:, :2] = -xp.inf
        ahead = new[:, 2:]
        xp.logaddexp(old[:, 2:], old[:, 1:-1], out=ahead)
        xp.add(old[:, :-2], self.skip, out=self.room)
        xp.logaddexp(ahead, self.room, out=ahead)
        xp.add(ahead, self.log, out=ahead)
        xp.copyto(ahead, old[:, 2:], where=self._off(t))
        self._largest_to_zero(ahead)
        xp.add(self.total, self.most, out=self.total)

    def loss(self, alpha: Any, out: Any) -> None:
        """The loss: -log of the probability in the last two states."""
        self._last(self.beta)
        xp = self.xp
        xp.add(alpha[:, 2:], self.beta[:, :-2], out=self.room)
        self._largest_to_zero(self.room)
        xp.add(self.total, self.most, out=self.total)
        xp.exp(self.room, out=self.room)
        xp.sum(self.room, axis=1, keepdims=True, out=self.sum)
        xp.log(self.sum, out=self.sum)
        xp.add(self.total, self.sum, out=self.total)
        xp.copyto(self.total, 0, where=self.sum == -xp.inf)
        xp.negative(self.total, out=self.total)
        xp.copyto(out, self.total[:, 0], casting="unsafe")

    def _last(self, beta: Any) -> None:
        """Set beta after the last step: 0 in the last label and the blank after it, -inf elsewhere.

        Here the two unreachable states lie *after* the last.
        """
        xp = self.xp
        beta.fill(-xp.inf)
        state = xp.arange(beta.shape[1] - 2)
        for back in (0, 1):
            xp.equal(state, 2 * self.size - back, out=self.none)
            xp.copyto(beta[:, :-2], 0, where=self.none)

    def end(self) -> None:
        """Compute beta of the last step."""
        self._last(self.beta)

    def posterior(self, t: int, alpha: Any, d_out: Any, d_x: Any) -> None:
        """d_x = d_out * (softmax - posterior) of step t; then beta goes one step back."""
        xp, off = self.xp, self._off(t)
        beta = self.beta[:, :-2]
        part = self.room
        xp.add(alpha[:, 2:], beta, out=part)
        self._largest_to_zero(part)
        xp.exp(part, out=part)
        xp.sum(part, axis=1, keepdims=True, out=self.sum)
        impossible = self.none[:, :1]
        xp.equal(self.sum, 0, out=impossible)
        xp.copyto(self.sum, 1, where=impossible)
        xp.divide(part, self.sum, out=part)
        # Blanks first, as one number a sample; labels may repeat, hence `at`.
        xp.sum(part[:, 0::2], axis=1, keepdims=True, out=self.most)
        column = self.softmax[:, self.blank : self.blank + 1]
        xp.subtract(column, self.most, out=column)
        xp.subtract.at(self.softmax.reshape(-1), self.at[:, 1::2], part[:, 1::2])
        xp.copyto(self.most[:, 0], d_out)
        xp.copyto(self.most, 0, where=impossible)
        xp.copyto(self.most, 0, where=off)
        xp.copyto(self.softmax, 0, where=self.most == 0)
        xp.multiply(self.softmax, self.most, out=self.softmax)
        xp.copyto(d_x, self.softmax, casting="unsafe")
        # beta[t-1, s] = sum over s' in {s, s+1, s+2} of beta[t, s'] * p[t, s']
        more = self.more
        more[:, -2:] = -xp.inf
        xp.add(beta, self.log, out=more[:, :-2])
        xp.logaddexp(more[:, :-2], more[:, 1:-1], out=part)
        xp.add(more[:, 2:-2], self.skip[:, 2:], out=more[:, 2:-2])
        xp.logaddexp(part, more[:, 2:], out=part)
        xp.copyto(part, beta, where=off)
        self._largest_to_zero(part)
        xp.copyto(beta, part)
