"""One function for each ONNX operator, in files by family; each file ends with its part of the table."""

from . import (
    activation,
    attention,
    control,
    convolution,
    elementwise,
    index,
    matrix,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    sampling,
    shape,
    signal,
)

_FILES = (
    activation, attention, control, convolution, elementwise, index, matrix, normalization, pooling,
    quantization, recurrent, reduction, resizing, sampling, shape, signal,
)  # fmt: skip
FAMILIES = tuple(file.CONVERTERS for file in _FILES)
