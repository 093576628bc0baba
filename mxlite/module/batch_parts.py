"""The parts of a batch that several devices get: each a slice of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import ShapeError
from ..io import DataDesc
from ..ndarray import concat, NDArray, slice_axis


class BatchParts:
    """The slices of a batch of `samples`, one for each device, in proportion to the work loads.

    An array has its samples along an axis, -1 if it has none: then every device gets the whole array. Its
    length there is a multiple of `samples`, and as many rows belong to each sample.
    """

    def __init__(self, samples: int, work_loads: Sequence[float]) -> None:
        self.samples = samples
        self.slices = split_input_slice(samples, work_loads) if len(work_loads) > 1 else [slice(0, samples)]

    def __len__(self) -> int:
        return len(self.slices)

    def described(self, descs: Sequence[DataDesc], number: int) -> list[DataDesc]:
        """Inputs as device `number` gets them."""
        found = []
        for d in descs:
            axis, shape = DataDesc.get_batch_axis(d.layout), list(d.shape)
            if axis >= 0 and len(self) > 1:
                begin, end = self._ends(d.shape, axis, number, d.name)
                shape[axis] = end - begin
            found.append(DataDesc(d.name, tuple(shape), d.dtype, d.layout))
        return found

    def cut(self, array: Any, axis: int, number: int) -> Any:
        """The part of an array (NDArray or numpy) that device `number` gets."""
        if axis < 0 or len(self) == 1:
            return array
        begin, end = self._ends(array.shape, axis, number)
        if isinstance(array, NDArray):
            return slice_axis(array, axis=axis, begin=begin, end=end)
        return array[(slice(None),) * axis + (slice(begin, end),)]

    def merged(self, parts: Sequence[Sequence[Any]], merge: bool, axes: Sequence[int]) -> list[Any]:
        """Arrays of which each device has a part, as wholes; without `merge` as lists over the devices."""
        if not merge:
            return [list(arrays) for arrays in parts]
        return [_whole(arrays, axis) for arrays, axis in zip(parts, axes)]

    def _ends(self, shape: Sequence[int], axis: int, number: int, name: str = "") -> tuple[int, int]:
        length = shape[axis] if axis < len(shape) else 0
        rows, rest = divmod(length, self.samples) if self.samples else (0, 1)
        if rest or not rows:
            raise ShapeError(
                f"{name or 'An array'} of shape {tuple(shape)} cannot be shared among {len(self)} devices: "
                f"along axis {axis} it is no multiple of the batch's {self.samples} samples."
            )
        part = self.slices[number]
        return rows * part.start, rows * part.stop


def split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """The samples of a batch that each device gets, in proportion to its work load; the last gets the rest.

    ShapeError where a device would get none.
    """
    shares = [round(load * batch_size / sum(work_load_list)) for load in work_load_list]
    shares[-1] += max(0, batch_size - sum(shares))
    cuts, begin = [], 0
    for share in shares:
        end = min(begin + share, batch_size)
        if begin >= end:
            raise ShapeError(f"{batch_size} samples are too few for work loads {list(work_load_list)}.")
        cuts.append(slice(begin, end))
        begin = end
    return cuts


def _whole(arrays: Sequence[Any], axis: int) -> Any:
    first = arrays[0]
    if first is None or len(arrays) == 1 or not 0 <= axis < first.ndim:
        return first
    return concat(*(a.as_in_context(first.context) for a in arrays), dim=axis)
