"""One function for each ATen operator, in files by family; each file ends with its part of the table."""

from . import (
    activation,
    arithmetic,
    attention,
    constants,
    convolution,
    distance,
    factorization,
    index,
    linear,
    loss,
    normalization,
    order,
    pooling,
    random,
    recurrent,
    reduction,
    resizing,
    scatter,
    shape,
)

_FILES = (
    activation, arithmetic, attention, constants, convolution, distance, factorization, index, linear, loss,
    normalization, order, pooling, random, recurrent, reduction, resizing, scatter, shape,
)  # fmt: skip
FAMILIES = tuple(file.CONVERTERS for file in _FILES)
