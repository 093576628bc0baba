"""Arrays of a batch as programs for several devices have them: a part on each, where there is one device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def by_device(
    arrays: list[Any], merged: bool, devices: int = 1, samples: int = 0, axes: Sequence[int] = ()
) -> list[Any]:
    """`arrays`, or as MXNet gives them unmerged: for each a list over devices.

    Several devices are one here, and what each would have is its part of the batch, as a copy: of each array
    along its number in `axes` (0 if that is empty), which belongs to `samples` samples. What is not of the
    batch, every device has. Merged, arrays are copies too, which the next batch leaves alone.
    """
    if devices == 1:
        return arrays if merged else [[a] for a in arrays]
    if merged:
        return [None if a is None else a.copy() for a in arrays]
    return [_parts(a, devices, samples, axes[i] if axes else 0) for i, a in enumerate(arrays)]


def _parts(array: Any, devices: int, samples: int, axis: int) -> list[Any]:
    if array is None or axis < 0 or axis >= array.ndim or samples < devices or array.shape[axis] % samples:
        return [array] * devices
    each = array.shape[axis] // samples  # rows of a sample
    ends = [each * (samples * i // devices) for i in range(devices + 1)]
    return [array.slice_axis(axis=axis, begin=i, end=j) for i, j in pairwise(ends)]
