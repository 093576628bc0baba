"""One function for each ATen operator, in files by family; each file ends with its part of the table."""

from . import (
    activation,
    arithmetic,
    attention,
    constants,
    convolution,
    index,
    linear,
    loss,
    normalization,
    pooling,
    random,
    recurrent,
    reduction,
    resizing,
    shape,
)

_FILES = (
    activation, arithmetic, attention, constants, convolution, index, linear, loss, normalization, pooling,
    random, recurrent, reduction, resizing, shape,
)  # fmt: skip
FAMILIES = tuple(file.CONVERTERS for file in _FILES)
