"""The three directions of a convolution as graphs of cuDNN.

Activations may have their channels last, the weight always is (F, C/G, *K): where cuDNN needs another layout
it transposes the weight in its scratch, which is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ....graph.ir import Shape
from ....ops.nn.conv_kernels import Geometry
from ..runtime.device import Device, Run
from ..vendor.cudnn import CudnnPlan, dense, DTYPES, LIMIT, Maker, Session, Tensor
from .windowed import Correlate, Gather

OUT, DATA, WEIGHT = "output", "data", "weight"

ALIGN = 16  # bytes: what cuDNN's engines rely on
X, W, MADE, BIAS_OF, ADDEND = range(1, 6)  # numbers of the tensors; X is the side of the windows, or d_out


@dataclass(frozen=True)
class Tail:
    """The epilogue of the sum: a bias for each channel, an addend like the result, a rectifier."""

    bias: bool = False
    addend: bool = False
    relu: bool = False


@dataclass(frozen=True)
class Convolved:
    """One direction on cuDNN; `own` computes it if arrays are not aligned as cuDNN needs."""

    device: Device
    plan: CudnnPlan
    own: Gather | Correlate

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def nbytes(self) -> int:
        return max(self.plan.workspace, self.own.nbytes)

    @property
    def launches(self) -> int:
        return 1

    def fits(self) -> bool:
        return self.own.fits()

    def connect(self, first: Any, second: Any, out: Any, work: Any, **tail: Any) -> Run:
        """The call; see Gather and Correlate."""
        arrays = {X: first, W: second, MADE: out, BIAS_OF: tail.get("bias"), ADDEND: tail.get("addend")}
        at = {n: self.device.address(x) for n, x in arrays.items() if x is not None}
        scratch = self.device.address(work) if self.plan.workspace else 0
        if any(a % ALIGN for a in (*at.values(), scratch)):
            return self.own.connect(first, second, out, work, **tail)
        return self.plan.call(at, scratch)


def by_cudnn(
    device: Device, session: Session, kind: str, g: Geometry, last: bool, tail: Tail, limit: int
) -> Convolved | None:
    """The direction `kind` of a convolution on cuDNN, or None if it has no engine for it."""
    dtype = str(g.dtype)
    if dtype not in DTYPES or 0 in (g.n, g.c, g.f, *g.size, *g.out):
        return None
    own: Gather | Correlate
    if kind == WEIGHT:
        own = Correlate(device, g, last, limit=0)
    else:
        own = Gather(device, g, last, transposed=kind == DATA)
    plan = planned(session, kind, g, last, tail, limit)
    return None if plan is None else Convolved(device, plan, own)


def planned(
    session: Session, kind: str, g: Geometry, last: bool, tail: Tail, limit: int = LIMIT
) -> CudnnPlan | None:
    """The plan of one direction."""
    key, name = (kind, g, last, tail), f"cudnn {_NAMES[kind]}"
    return session.plan(key, name, str(g.dtype), lambda m: _graph(m, kind, g, last, tail), limit)


_NAMES = {OUT: "convolution", DATA: "convolution by data", WEIGHT: "convolution by weight"}


def _weight_strides(shape: Shape) -> Shape:
    """Strides of (F, C, *K) in C order. One tap, or one channel, has both layouts at once: then the
    channels-last strides are given, which saves cuDNN a copy into that layout.
    """
    c, taps = shape[1], prod(shape[2:])
    if c > 1 and taps > 1:
        return dense(shape)
    return (c * taps, 1, *(s * c for s in dense(shape[2:])))


def _graph(m: Maker, kind: str, g: Geometry, last: bool, tail: Tail) -> None:
    """The operations, from inputs to the output."""
    dtype, line = str(g.dtype), len(g.kernel) == 1  # a 1-D convolution is one on images of height 1

    def axes(values: tuple[int, ...], fill: int) -> list[int]:
        return [fill, *values] if line else list(values)

    data = (g.n, g.c, *g.size)
    out = (g.n, g.f, *g.out)
    kernel = (g.f, g.c // g.groups, *axes(g.kernel, 1))
    how = {
        "pre_padding": axes(g.pad, 0),
        "post_padding": axes(g.pad, 0),
        "stride": axes(g.stride, 1),
        "dilation": axes(g.dilate, 1),
    }
    if kind == WEIGHT:
        x, dy = (m.input(Tensor.activations(i, s, dtype, last)) for i, s in ((X, data), (W, out)))
        made = m.graph.conv_wgrad(image=x, loss=dy, **how)
        m.output(made, Tensor(MADE, kernel, _weight_strides(kernel), dtype))
        return
    read, shape = (out, data) if kind == DATA else (data, out)
    x = m.input(Tensor.activations(X, read, dtype, last))
    w = m.input(Tensor(W, kernel, _weight_strides(kernel), dtype))
    target = Tensor.activations(MADE, shape, dtype, last)
    if kind == DATA:
        made = m.graph.conv_dgrad(loss=x, filter=w, **how)
        made.set_dim(list(target.shape)).set_stride(list(target.strides))
    else:
        made = m.graph.conv_fprop(image=x, weight=w, **how)
    if tail.bias:
        made = m.graph.add(made, m.input(Tensor.channels(BIAS_OF, shape[1], len(target.shape), dtype)))
    if tail.addend:
        made = m.graph.add(made, m.input(Tensor.activations(ADDEND, shape, dtype, last)))
    if tail.relu:
        made = m.graph.relu(made)
    m.output(made, target)
