"""Choice of the kernel for one direction of a convolution: the first that can, or on a device the fastest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from ....core import config
from ....core.errors import OutOfMemoryError
from ....ops.nn.conv_kernels import Geometry
from ..runtime import autotune
from ..runtime.device import Device
from ..vendor.cudnn import LIMIT, Session, session
from . import tensor, windowed
from .apart import Apart
from .by_cudnn import by_cudnn, DATA, Tail, WEIGHT
from .columns import columns
from .depthwise import Depthwise
from .pointwise import pointwise
from .windowed import Correlate, Gather

Way = Any
"""A candidate. It has `name`, `nbytes` of scratch, `launches`, the number of kernels of a call, `fits()` and
`connect(first, second, out, work, **tail)`."""

LEAN = 1 << 20  # bytes of scratch of cuDNN's second offer
MOST = 4 << 30  # bytes of arrays to measure with


def chosen(device: Device, kind: str, g: Geometry, last: bool, tail: Tail) -> Way | None:
    """The candidate chosen for the direction `kind`; None if there is none."""
    key: Any = device
    return _choose(key, kind, g, last, tail, config.gpu_tuning(), config.allow_tf32())


@functools.lru_cache(maxsize=4096)
def _choose(
    device: Any, kind: str, g: Geometry, last: bool, tail: Tail, tunes: bool, tf32: bool
) -> Way | None:
    cudnn = session(device)
    product, own = _product(device, kind, g, last, tail), _own(device, kind, g, last, tail, tf32)
    if not (tunes and hasattr(device, "time")):
        if product:
            return product[0]
        planned = _by_cudnn(device, cudnn, kind, g, last, tail, product)
        ways = [*planned, *own]
        stage = _stage(device, ways, kind, g, tail) if planned and hasattr(device, "time") else None
        if stage is None:
            return ways[0] if ways else None
        return ways[autotune.first_that_runs([_called(way) for way in ways], stage.seconds)]
    version = None if cudnn is None else cudnn.cudnn.backend_version()
    facts = (device.name, getattr(device, "architecture", ""), version, kind, g, last, tail, tf32)
    kept = autotune.chosen(repr(facts))
    if tail == Tail(addend=True):
        alone = _choose(device, kind, g, last, Tail(), tunes, tf32)
        own += [] if alone is None else [Apart(device, alone)]
    for way in (*product, *own):
        if _called(way) == kept:
            return way  # return before cuDNN plans engines that would not be used
    ways = [*product, *_by_cudnn(device, cudnn, kind, g, last, tail, product, kept), *own]
    stage = _stage(device, ways, kind, g, tail) if len(ways) > 1 else None
    if stage is None:
        return ways[0] if ways else None
    return ways[autotune.fastest(repr(facts), [_called(way) for way in ways], stage.seconds)]


def _stage(device: Any, ways: Sequence[Way], kind: str, g: Geometry, tail: Tail) -> _Stage | None:
    """Arrays to measure with; None if they would take too much memory: then the first candidate is taken."""
    try:
        return _Stage(device, ways, kind, g, tail)
    except OutOfMemoryError:
        return None


def _called(way: Way) -> str:
    """Name of a candidate among those for one convolution."""
    return f"{way.name}, {way.nbytes} bytes"


def ways(device: Device, kind: str, g: Geometry, last: bool, tail: Tail, tf32: bool) -> list[Way]:
    """All candidates that need one call, the most promising first."""
    product = _product(device, kind, g, last, tail)
    by_cudnn = _by_cudnn(device, session(device), kind, g, last, tail, product)
    return [*product, *by_cudnn, *_own(device, kind, g, last, tail, tf32)]


def _product(device: Device, kind: str, g: Geometry, last: bool, tail: Tail) -> list[Way]:
    found = pointwise(device, kind, g, last, tail)
    return [] if found is None or not found.fits() else [found]


def _by_cudnn(
    device: Device,
    cudnn: Session | None,
    kind: str,
    g: Geometry,
    last: bool,
    tail: Tail,
    product: Sequence[Way],
    kept: str | None = None,
) -> list[Way]:
    """cuDNN's engines; only the first if that was `kept`."""
    # cuDNN compiles each engine with a fused addition, for a second: cuBLASLt has those of its products
    # ready.
    by_blas = bool(product) and product[0].name == "cublasLt"
    if cudnn is None or (tail.addend and by_blas):
        return []
    found = [by_cudnn(device, cudnn, kind, g, last, tail, LIMIT)]
    if found[0] is not None and found[0].plan.workspace > LEAN and _called(found[0]) != kept:
        found.append(by_cudnn(device, cudnn, kind, g, last, tail, LEAN))
    return [way for way in dict.fromkeys(found) if way is not None and way.fits()]


def _own(device: Device, kind: str, g: Geometry, last: bool, tail: Tail, tf32: bool) -> list[Way]:
    """Our own kernels, and cuBLASLt after one of them."""
    found: list[Way] = []
    matrix = columns(device, kind, g, last, tail)
    if matrix is not None:
        found.append(matrix)
    cores: Way = tensor.gather(device, g, last, kind == DATA, tf32)
    if kind == WEIGHT:
        cores = tensor.correlate(device, g, last, windowed.LIMIT, tf32)
    if cores is not None:
        found.append(cores)
    if last:
        found.append(Depthwise(device, g, kind == DATA, kind == WEIGHT))
    alone: Way = Gather(device, g, last, transposed=kind == DATA)
    found.append(Correlate(device, g, last, windowed.LIMIT) if kind == WEIGHT else alone)
    return [way for way in found if way.fits()]


class _Stage:
    """Arrays to measure with, allocated at the first measurement."""

    def __init__(self, device: Any, ways: Sequence[Way], kind: str, g: Geometry, tail: Tail) -> None:
        """Raises OutOfMemoryError if it would take too much."""
        data, out = (g.n, g.c, *g.size), (g.n, g.f, *g.out)
        weight = (g.f, g.c // g.groups, *g.kernel)
        first = out if kind == DATA else data
        second, made = (out, weight) if kind == WEIGHT else (weight, data if kind == DATA else out)
        self.device, self.ways, self.g = device, ways, g
        self.shapes = {"first": first, "second": second, "out": made}
        if tail.bias:
            self.shapes["bias"] = (made[1],)
        if tail.addend:
            self.shapes["addend"] = made
        self.relu = tail.relu
        self.scratch = max(w.nbytes for w in ways)
        nbytes = self.scratch + sum(map(prod, self.shapes.values())) * g.dtype.itemsize
        if nbytes > MOST:
            raise OutOfMemoryError(f"{nbytes} bytes to measure a convolution with.")
        self.arrays: dict[str, Any] = {}
        self.work: Any = None

    def seconds(self, i: int) -> float:
        """Seconds of one run of candidate i."""
        device, g = self.device, self.g
        if not self.arrays:
            for name, shape in self.shapes.items():
                block = device.empty(prod(shape) * g.dtype.itemsize)
                self.arrays[name] = block.view(g.dtype).reshape(shape)
            self.work = device.empty(self.scratch)
        more = {n: x for n, x in self.arrays.items() if n in ("bias", "addend")}
        more |= {"relu": True} if self.relu else {}
        a = self.arrays
        run = self.ways[i].connect(a["first"], a["second"], a["out"], self.work, **more)
        return float(device.time(run))
