"""One function for each ONNX operator, in files by family; each file ends with its part of the table."""

from . import (
    activation,
    control,
    convolution,
    elementwise,
    index,
    matrix,
    normalization,
    pooling,
    reduction,
    shape,
)

_FILES = (
    activation, control, convolution, elementwise, index, matrix, normalization, pooling, reduction, shape,
)  # fmt: skip
FAMILIES = tuple(file.CONVERTERS for file in _FILES)
