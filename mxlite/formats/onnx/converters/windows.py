"""The geometry of windows: kernel, strides, dilations and pads of ONNX's convolutions and poolings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ....core import FormatError
from ..node import OnnxNode

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Windows:
    """`pads` are (before, after) for each axis; `out` the number of windows along each."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    pads: Pairs
    out: tuple[int, ...]

    @classmethod
    def of(cls, n: OnnxNode, size: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
        """From the node's strides, dilations, pads, auto_pad and ceil_mode, for data of this size."""
        rank = len(size)
        stride = n.wholes("strides", None) or (1,) * rank
        dilate = n.wholes("dilations", None) or (1,) * rank
        flat = n.wholes("pads", None) or (0,) * (2 * rank)
        if not len(kernel) == len(stride) == len(dilate) == rank or len(flat) != 2 * rank:
            raise FormatError(
                f"kernel {kernel}, strides {stride}, dilations {dilate}, pads {flat} do not fit {rank} axes."
            )
        if min((*kernel, *stride, *dilate), default=1) < 1 or min(flat, default=0) < 0:
            raise FormatError(
                f"kernel {kernel}, strides {stride} and dilations {dilate} must be at least 1, pads {flat} 0."
            )
        pads: list[tuple[int, int]] = list(zip(flat[:rank], flat[rank:]))
        auto = n.text("auto_pad", "NOTSET")
        span = [(k - 1) * d + 1 for k, d in zip(kernel, dilate)]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            pads = []
            for d, s, e in zip(size, stride, span):
                total = max(0, (-(-d // s) - 1) * s + e - d)
                small, large = total // 2, total - total // 2
                pads.append((small, large) if auto == "SAME_UPPER" else (large, small))
        elif auto == "VALID":
            pads = [(0, 0)] * rank
        out = []
        for d, s, e, (p, q) in zip(size, stride, span, pads):
            room = d + p + q - e
            count = room // s + 1
            # A window that begins after the data and the padding before it does not count.
            if n.flag("ceil_mode") and room % s and count * s < d + p:
                count += 1
            if room < 0:
                raise FormatError(f"kernel {kernel} does not fit data {size} padded by {tuple(pads)}.")
            out.append(count)
        return cls(size, kernel, stride, dilate, tuple(pads), tuple(out))

    @property
    def reach(self) -> Pairs:
        """Pads for which the windows fit exactly: the last one may reach beyond, or leave some data over."""
        span = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilate)]
        return tuple(
            (p, (o - 1) * s + e - d - p)
            for (p, _), o, s, e, d in zip(self.pads, self.out, self.stride, span, self.size)
        )

    @property
    def simple(self) -> bool:
        """True if mxlite's Pooling and Convolution know these pads as they are."""
        floor = tuple(
            (d + p + q - ((k - 1) * e + 1)) // s + 1
            for d, (p, q), k, e, s in zip(self.size, self.pads, self.kernel, self.dilate, self.stride)
        )
        return all(p == q for p, q in self.pads) and floor == self.out

    def elements(self) -> list[tuple[int, ...]]:
        """Offsets of a window's elements from its first."""
        return list(product(*(range(0, k * d, d) for k, d in zip(self.kernel, self.dilate))))
