"""Fourier transforms, as products with small constant matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.builder import LARGEST_FOLDED
from ...building.errors import NotSupportedError
from ...building.matrices import along_axis
from ...building.moves import padded
from ...building.value import GraphValue
from ..node import OnnxNode


def _waves(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2 pi j k / size for k < count, j < size."""
    if count * size > LARGEST_FOLDED:
        raise NotSupportedError(f"a transform of length {size}; it would be a matrix of {count}x{size}")
    angle = 2 * np.pi * (np.arange(count)[:, None] * np.arange(size) % size) / size
    return np.cos(angle), np.sin(angle)


def _parts(x: GraphValue) -> tuple[GraphValue, GraphValue | None]:
    """Real and imaginary part of an array whose last axis has one or both, that axis dropped."""
    b, shape = x.builder, x.shape[:-1]
    if x.shape[-1] == 1:
        return b.reshape(x, shape), None
    if x.shape[-1] != 2:
        raise FormatError(f"the last axis of {x.shape} must have length 1 (real) or 2 (complex).")
    return b.reshape(b.slice(x, -1, 0, 1), shape), b.reshape(b.slice(x, -1, 1, 2), shape)


def _joined(real: GraphValue, imaginary: GraphValue) -> GraphValue:
    b, shape = real.builder, (*real.shape, 1)
    return b.concat([b.reshape(real, shape), b.reshape(imaginary, shape)], real.rank)


Complex = tuple[GraphValue, GraphValue | None]


def _times(x: Complex, cos: Any, sin: Any, product: Callable[[GraphValue, Any], GraphValue]) -> Complex:
    """x * (cos + i sin) in the sense of `product`."""
    b, (real, imaginary) = x[0].builder, x
    out_real, out_imaginary = product(real, cos), product(real, sin)
    if imaginary is not None:
        out_real = b.binary("sub", out_real, product(imaginary, sin))
        out_imaginary = b.binary("add", out_imaginary, product(imaginary, cos))
    return out_real, out_imaginary


def _prime_factors(size: int) -> list[int]:
    factors, d = [], 2
    while d * d <= size:
        while size % d == 0:
            factors.append(d)
            size //= d
        d += 1
    return [*factors, size] if size > 1 or not factors else factors


def _fourier(x: Complex, sign: int) -> Complex:
    """The transform of the last axis; sign -1 is forward.

    J. Cooley, J. Tukey, 1965, "An algorithm for the machine calculation of complex Fourier series": a length
    p * m is p transforms of length m after m of length p. p is the largest prime factor while the numbers
    are real, as the first transforms then cost half, and the smallest of complex ones.
    """
    b, shape = x[0].builder, x[0].shape
    size = shape[-1]
    factors = _prime_factors(size)
    p = factors[-1] if x[1] is None else factors[0]
    if p == size:
        cos, sin = _waves(size, size)
        return _times(x, cos, sign * sin, lambda v, matrix: along_axis(v, -1, matrix))
    m = size // p
    parts = (x[0], x[1])
    split = tuple(None if v is None else b.reshape(v, (*shape[:-1], p, m)) for v in parts)
    cos, sin = _waves(p, p)
    inner = _times(split, cos, sign * sin, lambda v, matrix: along_axis(v, -2, matrix))  # type: ignore[arg-type]
    cos, sin = (w[:, :m] for w in _waves(p, size))
    turned = _times(inner, cos, sign * sin, lambda v, wave: b.binary("mul", v, b.constant(wave, v.dtype)))
    real, imaginary = _fourier(turned, sign)
    order = (*range(len(shape) - 1), len(shape), len(shape) - 1)
    assert imaginary is not None
    return tuple(b.reshape(b.transpose(v, order), shape) for v in (real, imaginary))  # type: ignore[return-value]


def _transform(
    real: GraphValue, imaginary: GraphValue | None, axis: int, count: int, sign: int
) -> tuple[GraphValue, GraphValue]:
    """(re, im) of the first `count` frequencies along an axis."""
    b = real.builder
    order = [i for i in range(real.rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(real.rank)]
    turned = b.transpose(real, order), None if imaginary is None else b.transpose(imaginary, order)
    out = []
    for part in _fourier(turned, sign):
        assert part is not None
        out.append(b.transpose(b.slice(part, -1, 0, count), back))
    return out[0], out[1]


def dft(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    default = -2 if n.version >= 20 else 1
    axis = int(n.known_number(2, "axis", default)) if n.version >= 20 else n.whole("axis", default)
    axis = b.axis(axis, x.rank)
    if axis == x.rank - 1:
        raise FormatError("axis cannot be the last, which holds real and imaginary part.")
    inverse, onesided = n.flag("inverse"), n.flag("onesided")
    given = int(n.known_number(1, "dft_length", 0))
    length = given or (2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis])
    present = length // 2 + 1 if inverse and onesided else length
    more = present - x.shape[axis]
    if more:
        x = padded(x, [(0, more if i == axis else 0) for i in range(x.rank)])
    real, imaginary = _parts(x)
    if inverse and onesided:
        return _real_inverse(real, imaginary, axis, length)
    count = length // 2 + 1 if onesided else length
    out = _joined(*_transform(real, imaginary, axis, count, 1 if inverse else -1))
    return out * (1 / length) if inverse else out


def _real_inverse(real: GraphValue, imaginary: GraphValue | None, axis: int, length: int) -> GraphValue:
    """From the first half of a spectrum, whose other half mirrors it; the result is real."""
    b = real.builder
    cos, sin = _waves(length, length)
    half = real.shape[axis]
    twice = np.full(half, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    out = along_axis(real, axis, cos[:, :half] * twice / length)
    if imaginary is not None:
        out = b.binary("add", out, along_axis(imaginary, axis, -sin[:, :half] * twice / length))
    return b.reshape(out, (*out.shape, 1))


def stft(n: OnnxNode) -> GraphValue:
    """Frames of the signal, each times the window, each transformed."""
    b, x, window = n.builder, n[0], n.get(2)
    step = int(n.known_number(1, "frame_step"))
    length = int(n.known_number(3, "frame_length", window.size if window is not None else 0))
    if step < 1 or not 0 < length <= x.shape[1]:
        raise FormatError(f"frame_step {step} and frame_length {length} do not fit a signal of {x.shape[1]}.")
    frames = (x.shape[1] - length) // step + 1
    onesided = n.flag("onesided", True)
    places = (np.arange(frames)[:, None] * step + np.arange(length)).reshape(-1)
    parts = []
    for part in _parts(x):
        if part is not None:
            part = b.reshape(b.op("take", part, b.constant(places), axis=1), (x.shape[0], frames, length))
            part = part if window is None else b.binary("mul", part, window)
        parts.append(part)
    count = length // 2 + 1 if onesided else length
    return _joined(*_transform(parts[0], parts[1], 2, count, -1))  # type: ignore[arg-type]


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"DFT": dft, "STFT": stft}
