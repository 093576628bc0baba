"""Zero states for a recurrent net: of a given batch size, or of that of an input."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...ndarray import NDArray


def zeros_for(shapes: Any, inputs: Any, F: Any, batch_axis: int) -> list[Any]:
    """Zeros of these shapes, in which 0 stands for the batch size, on the device and of the type of `inputs`.

    For a symbol, whose batch size is not known, they are made of a slice of it.
    """
    if isinstance(inputs, NDArray):
        size = inputs.shape[batch_axis]
        return [nd.zeros(tuple(n or size for n in s), ctx=inputs.context, dtype=inputs.dtype) for s in shapes]
    made = []
    for shape in shapes:
        # (..., batch, ...) -> one element a sample -> the axes of the state, with the batch where its 0 is
        one = F.slice_axis(
            F.swapaxes(inputs, dim1=0, dim2=batch_axis) if batch_axis else inputs, axis=1, begin=0, end=1
        )
        one = F.slice_axis(F.Flatten(F.zeros_like(one)), axis=1, begin=0, end=1)
        axis = shape.index(0)
        one = F.reshape(one, shape=tuple(-1 if i == axis else 1 for i in range(len(shape))))
        others = [i for i in range(len(shape)) if i != axis]
        made.append(F.broadcast_axis(one, axis=tuple(others), size=tuple(shape[i] for i in others)))
    return made
