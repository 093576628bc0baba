"""One function for each ONNX operator, in files by family; each file ends with its part of the table."""

from . import (
    activation,
    attention,
    control,
    convolution,
    elementwise,
    index,
    loss,
    matrix,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resizing,
    sampling,
    sequence,
    shape,
    signal,
)

_FILES = (
    activation, attention, control, convolution, elementwise, index, loss, matrix, normalization, pooling,
    quantization, random, recurrent, reduction, resizing, sampling, sequence, shape, signal,
)  # fmt: skip
FAMILIES = tuple(file.CONVERTERS for file in _FILES)
