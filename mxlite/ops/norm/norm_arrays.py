"""Arrays of normalizations in groups, for kernels of many parameters (see `graph/grouped.py`)."""

from __future__ import annotations

from typing import Any, NamedTuple


class NormVectors(NamedTuple):
    """The vectors that forward reads, (C,) each."""

    gamma: Any
    beta: Any
    moving_mean: Any
    moving_var: Any


class NormAffine(NamedTuple):
    """The vectors of which a norm's affine map is made, (C,) each; `var` is the inverse deviation."""

    gamma: Any
    beta: Any
    mean: Any
    var: Any


class NormMoments(NamedTuple):
    """Mean and inverse standard deviation of a batch, and the moving averages, (C,) each. Backward moves the
    averages.
    """

    mean: Any
    var: Any
    moving_mean: Any
    moving_var: Any


class NormOutputs(NamedTuple):
    """Outputs of a norm; `var` is the inverse standard deviation."""

    out: Any
    mean: Any
    var: Any


class NormAddend(NamedTuple):
    """An array that is added to a norm's result, and the affine map that it has before."""

    addend: Any = None
    addend_factor: Any = None
    addend_shift: Any = None


class PrologueArrays(NamedTuple):
    """Factor and shift of a norm that a kernel applies to its data, and what is added to the result."""

    factor: Any = None
    shift: Any = None
    addend: Any = None
    addend_factor: Any = None
    addend_shift: Any = None


NO_PROLOGUE = PrologueArrays()


class NormResults(NamedTuple):
    """Outputs of a norm that can be recomputed: its result, statistics, and its affine map."""

    out: Any
    mean: Any
    var: Any
    factor: Any = None
    shift: Any = None


class NormGradients(NamedTuple):
    """Outputs of backward."""

    d_data: Any
    d_gamma: Any
    d_beta: Any
    d_addend: Any = None
