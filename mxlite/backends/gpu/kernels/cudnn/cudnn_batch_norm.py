"""Batch normalization on cuDNN, with the sum and the rectifier that follow it, where that measures faster.

It serves training with the channels last: cuDNN's kernels read data once where it fits the multiprocessors,
ours read it twice. They keep what ours keep: mean and 1 / std go from forward to backward, and the
rectifier's mask is read off `out` if there is a sum, else recomputed. Our kernels update moving averages:
cuDNN does that in the forward pass, which may run twice. Without a measurement nothing is planned, since a
plan takes seconds.

Our own kernels serve `fix_gamma`, channels elsewhere, and, in two-byte floats, the gradient through a
rectifier without a sum, for which cuDNN needs room for all of d_out once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .....core import config
from .....core.dtype import float32
from .....core.errors import OutOfMemoryError
from .....graph.opdef import Op
from .....ops.norm.norm import BatchNorm, BatchNorm_v1, ContribSyncBatchNorm
from .....ops.norm.norm_act import NormAct
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...runtime import autotune
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import begin, room
from ...vendor.cudnn import CudnnPlan, DTYPES, Maker, Session, session, Tensor
from ..norm import batch_norm
from ..norm.batch_norm import Kernels

ALIGN = 16  # bytes: of addresses
LIMIT = 1 << 20  # bytes of cuDNN's own scratch
MOST = 4 << 30  # bytes of arrays to measure with
WIDE = ("data", "addend", "out", "d_out", "d_data", "d_addend")
NAMES = (*WIDE, *"gamma beta mean var d_gamma d_beta old_mean old_var new_mean new_var".split())
"""Names of the arrays, numbered from 1. The last four are averages that cuDNN insists on updating."""


class Case:
    """One norm with its inputs and outputs, forward (`gradient` False) or backward."""

    def __init__(self, r: Request, gradient: bool) -> None:
        self.a, self.shape, self.dtype, self.gradient = r.attrs, r.inputs[0], r.dtypes[0], gradient
        self.relu, self.add = bool(getattr(r.attrs, "relu", False)), bool(getattr(r.attrs, "plus", ""))
        more = ("addend",) if self.add else ()
        reads: tuple[str, ...] = ("data", "gamma", "beta", *more, "old_mean", "old_var")
        makes: tuple[str, ...] = ("out", "mean", "var", "new_mean", "new_var")
        if gradient:
            mask = () if not self.relu else ("out",) if self.add else ("beta",)
            reads = ("d_out", "data", "gamma", "mean", "var", *mask)
            makes = ("d_data", "d_gamma", "d_beta", *(("d_addend",) if self.add else ()))
        self.reads, self.makes = reads, makes

    @property
    def fits(self) -> bool:
        """True if cuDNN may have a plan."""
        a, rank = self.a, len(self.shape)
        if str(self.dtype) not in DTYPES or a.fix_gamma or a.use_global_stats or 0 in self.shape:
            return False
        if getattr(a, "slope", 0.0) or getattr(a, "plus", "") == "behind":
            return False  # its rectifiers have no slope parameter, and come last
        if rank < 2 or a.axis % rank != rank - 1:
            return False
        if not self.gradient or self.relu == self.add:
            return True
        return self.relu and self.dtype == float32

    @property
    def key(self) -> tuple[Any, ...]:
        return ("batch norm", self.gradient, self.relu, self.add, self.a.eps, self.shape, str(self.dtype))

    @property
    def spare(self) -> list[Piece]:
        """Scratch for averages that are not used."""
        return [((2, self.shape[-1]), float32)]

    def plan(self, cudnn: Session) -> CudnnPlan | None:
        """cuDNN's plan; None if it has none."""
        name = f"cudnn batch norm{' gradient' if self.gradient else ''}"
        build = self._backward if self.gradient else self._forward
        return cudnn.plan(self.key, name, str(self.dtype), build, LIMIT, (*self.reads, *self.makes))

    def _forward(self, m: Maker) -> None:
        x, gamma, beta, old_mean, old_var = (
            m.input(self._tensor(n)) for n in ("data", "gamma", "beta", "old_mean", "old_var")
        )
        made, *rest = m.graph.batchnorm(
            input=x, scale=gamma, bias=beta, in_running_mean=old_mean, in_running_var=old_var,
            epsilon=m.number(self.a.eps), momentum=m.number(0.0),
        )  # fmt: skip
        if self.add:
            made = m.graph.add(made, m.input(self._tensor("addend")))
        if self.relu:
            made = m.graph.relu(made)
        for array, name in zip((made, *rest), self.makes):
            m.output(array, self._tensor(name))

    def _backward(self, m: Maker) -> None:
        have = {n: m.input(self._tensor(n)) for n in self.reads}
        graph, head, x, mean, var, gamma = (
            m.graph,
            *(have[n] for n in ("d_out", "data", "mean", "var", "gamma")),
        )
        if self.relu:
            if self.add:
                line = have["out"]
            else:
                line = graph.mul(graph.mul(graph.sub(x, mean), var), gamma)
                line = graph.add(line, have["beta"])
            passed = graph.cmp_gt(input=line, comparison=m.number(0.0))
            passed.set_data_type(m.cudnn.data_type.BOOLEAN)
            head = graph.mul(head, passed)
        found = graph.batchnorm_backward(grad=head, input=x, scale=gamma, mean=mean, inv_variance=var)
        for array, name in zip((*found, head), self.makes):
            m.output(array, self._tensor(name))

    def _tensor(self, name: str) -> Tensor:
        number, (n, *size, c) = NAMES.index(name) + 1, self.shape
        if name in WIDE:
            return Tensor.activations(number, (n, c, *size), str(self.dtype), last=True)
        return Tensor.channels(number, c, max(4, len(self.shape)), "float32")


class Norm:
    """Both implementations of a case on a device."""

    def __init__(self, device: Device, cudnn: Session, case: Case, own: Kernels) -> None:
        self.device, self.cudnn, self.case, self.own = device, cudnn, case, own

    @property
    def workspace(self) -> int:
        plan = self.case.plan(self.cudnn)
        assert plan is not None
        return max(self.own.workspace, scratch_bytes(self.case.spare) + room(plan.workspace))

    def by_cudnn(self, arrays: Mapping[str, Any], work: Any) -> Run | None:
        """The call for these arrays; None if they are not aligned, or not all there."""
        plan, at = self.case.plan(self.cudnn), self.device.address
        assert plan is not None
        (averages,) = carve(work, self.case.spare)
        have = {**arrays, "new_mean": averages[0], "new_var": averages[1]}
        if any(have.get(n) is None for n in plan.names):
            return None
        addresses = {NAMES.index(n) + 1: at(have[n]) for n in plan.names}
        scratch = begin(self.device, work[scratch_bytes(self.case.spare) :]) if plan.workspace else 0
        if any(a % ALIGN for a in (*addresses.values(), scratch)):
            return None
        return plan.call(addresses, scratch)

    def by_own(self, arrays: Mapping[str, Any], work: Any, moving: tuple[Any, Any]) -> Run:
        """The call of our kernels; backward they update the averages `moving`."""
        a = arrays.get
        if not self.case.gradient:
            made = (a("out"), a("mean"), a("var"))
            return self.own.forward(a("data"), a("gamma"), a("beta"), (), a("addend"), made, work)
        vectors = (a("gamma"), a("beta"), a("mean"), a("var"))
        grads = (a("d_data"), a("d_gamma"), a("d_beta"), a("d_addend"))
        return self.own.backward(a("d_out"), a("data"), a("out"), vectors, moving, grads, work, True)

    def is_faster(self) -> bool:
        """True if cuDNN was measured to be faster; see `autotune`."""
        device: Any = self.device
        facts = (device.name, getattr(device, "architecture", ""), self.cudnn.cudnn.backend_version())
        key = repr((*facts, self.case.key, config.allow_tf32()))
        try:
            stage = _Stage(self)
        except OutOfMemoryError:
            return False
        return autotune.fastest(key, ("ours", "cudnn"), stage.seconds) == 1


class _Stage:
    """Arrays to measure with, allocated at the first measurement."""

    def __init__(self, norm: Norm) -> None:
        """Raises OutOfMemoryError if it would take too much."""
        self.norm, case = norm, norm.case
        names = {*case.reads, *case.makes, "beta", "old_mean", "old_var"}
        narrow = case.shape[-1:]
        self.sizes = {
            n: (case.shape, case.dtype) if n in WIDE else (narrow, float32) for n in NAMES if n in names
        }
        nbytes = sum(prod(s) * d.itemsize for s, d in self.sizes.values())
        if nbytes > MOST:
            raise OutOfMemoryError(f"{nbytes} bytes to measure a norm with.")
        self.arrays: dict[str, Any] = {}

    def seconds(self, i: int) -> float:
        """Seconds of one run of our kernels (0), or of cuDNN's (1)."""
        norm, device = self.norm, self.norm.device
        timer: Any = device
        if i and norm.case.plan(norm.cudnn) is None:
            return float("inf")
        for n, (shape, dtype) in self.sizes.items():
            if n not in self.arrays:
                self.arrays[n] = device.empty(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
        work = device.empty(norm.workspace if i else norm.own.workspace)
        moving = (self.arrays["old_mean"], self.arrays["old_var"])
        run = norm.by_cudnn(self.arrays, work) if i else norm.by_own(self.arrays, work, moving)
        return float("inf") if run is None else float(timer.time(run))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    cudnn = session(device)
    if cudnn is None or not hasattr(device, "time"):
        return {}
    own = batch_norm.rows(device)

    def norm(r: Request, gradient: bool) -> Norm | None:
        case = Case(r, gradient)
        if not r.train or not case.fits or not config.gpu_tuning():
            return None
        if not all(r.is_used(n) for n in (*case.reads, *case.makes) if n not in NAMES[-4:]):
            return None
        if any(row(r) is None for row in own[r.op]):
            return None
        found = Norm(device, cudnn, case, Kernels(device, r.attrs, case.shape, str(case.dtype)))
        return found if found.is_faster() and case.plan(cudnn) is not None else None

    def row(r: Request) -> ChosenKernel | None:
        back = r.op.forward_op is not None
        n = norm(r, back)
        plan = None if n is None else n.case.plan(cudnn)
        if n is None or plan is None:
            return None
        names = r.op.signature.needs if back else r.op.input_names(r.attrs)

        def connect(xp: Any, a: Any, *given: Any, work: Any, train: bool, **made: Any) -> Run:
            arrays, moving = _arrays(names, given, made)
            run = n.by_cudnn(arrays, work)
            if run is None:
                return n.by_own(arrays, work, moving)
            if not back:
                return run
            gradients = dict.fromkeys(("d_data", "d_gamma", "d_beta", "d_addend"))
            return InOrder([run, n.by_own({**arrays, **gradients}, work, moving)])

        always = n.case.makes if back else ("out", "mean", "var")
        return connected(connect, n.workspace, plan.name, like=r.op.forward, mutates=back, always=always)

    norms = (BatchNorm, BatchNorm_v1, ContribSyncBatchNorm, NormAct)
    return {op: [row] for of in norms for op in (of, of.grad_op) if op is not None}


def _arrays(
    names: Sequence[str], given: Sequence[Any], made: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Arrays by the names of NAMES, and the moving averages among them."""
    arrays = {**dict(zip(names, given)), **made}
    moving = arrays.pop("moving_mean"), arrays.pop("moving_var")
    return {**arrays, "old_mean": moving[0], "old_var": moving[1]}, moving
