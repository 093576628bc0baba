"""The way one direction of a convolution is computed: the first that can, or on a device the fastest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from ....core import config
from ....core.errors import OutOfMemoryError
from ....ops.conv_kernels import Geometry
from .. import autotune
from ..cudnn import LIMIT, Session, session
from ..device import Device
from . import tensor, windowed
from .apart import Apart
from .by_cudnn import by_cudnn, DATA, Tail, WEIGHT
from .columns import columns
from .depthwise import Depthwise
from .pointwise import pointwise
from .windowed import Correlate, Gather

Way = Any
"""Has `name`, `nbytes` of scratch, `fits()` and `connect(first, second, out, work, **tail)`."""

LEAN = 1 << 20  # bytes of scratch of cuDNN's second offer
MOST = 4 << 30  # bytes of arrays to measure with


def chosen(device: Device, kind: str, g: Geometry, last: bool, tail: Tail) -> Way | None:
    """The way for the direction `kind`; None where there is none."""
    key: Any = device
    return _choose(key, kind, g, last, tail, config.gpu_tuning(), config.allow_tf32())


@functools.lru_cache(maxsize=4096)
def _choose(
    device: Any, kind: str, g: Geometry, last: bool, tail: Tail, tunes: bool, tf32: bool
) -> Way | None:
    cudnn = session(device)
    ways = _ways(device, cudnn, kind, g, last, tail, tf32)
    measures = tunes and hasattr(device, "time")
    if measures and tail == Tail(addend=True):
        alone = _choose(device, kind, g, last, Tail(), tunes, tf32)
        ways += [] if alone is None else [Apart(device, alone)]
    if len(ways) < 2 or not measures:
        return ways[0] if ways else None
    version = None if cudnn is None else cudnn.cudnn.backend_version()
    facts = (device.name, getattr(device, "architecture", ""), version, kind, g, last, tail, tf32)
    names = [f"{way.name}, {way.nbytes} bytes" for way in ways]
    try:
        stage = _Stage(device, ways, kind, g, tail)
    except OutOfMemoryError:
        return ways[0]
    return ways[autotune.fastest(repr(facts), names, stage.seconds)]


def _ways(
    device: Device, cudnn: Session | None, kind: str, g: Geometry, last: bool, tail: Tail, tf32: bool
) -> list[Way]:
    """All that need one call, the likeliest first."""
    found: list[Way] = []
    product = pointwise(device, kind, g, last, tail)
    if product is not None:
        found.append(product)
    by_blas = product is not None and product.name == "cublasLt"
    # cuDNN compiles each kernel that adds, for a second: cuBLASLt has those of its products.
    if cudnn is not None and not (tail.addend and by_blas):
        offer = by_cudnn(device, cudnn, kind, g, last, tail, LIMIT)
        lean = offer
        if offer is not None and offer.plan.workspace > LEAN:
            lean = by_cudnn(device, cudnn, kind, g, last, tail, LEAN)
        found += dict.fromkeys(way for way in (offer, lean) if way is not None)
    matrix = columns(device, kind, g, last, tail)
    if matrix is not None:
        found.append(matrix)
    cores: Way = tensor.gather(device, g, last, kind == DATA, tf32)
    if kind == WEIGHT:
        cores = tensor.correlate(device, g, last, windowed.LIMIT, tf32)
    if cores is not None:
        found.append(cores)
    alone = Depthwise(device, g, kind == DATA, kind == WEIGHT)
    if last:
        found.append(alone)
    own: Way = Gather(device, g, last, transposed=kind == DATA)
    found.append(Correlate(device, g, last, windowed.LIMIT) if kind == WEIGHT else own)
    return [way for way in found if way.fits()]


class _Stage:
    """Arrays to measure with, made when the first measurement is."""

    def __init__(self, device: Any, ways: Sequence[Way], kind: str, g: Geometry, tail: Tail) -> None:
        """Raises OutOfMemoryError where it would take too much."""
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
        """Of one run of way i."""
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
