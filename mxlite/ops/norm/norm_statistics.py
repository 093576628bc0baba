"""The statistics of a norm, separate from its result."""

from __future__ import annotations

from ..nn.normed_convolution import NormLine


class NormStatistics(NormLine):
    """`_norm_line` that runs **once in a step**: a plan keeps its statistics and never recomputes them.

    data: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  factor, shift, mean, var: (C,). As in BatchNorm `var` is the inverse standard deviation.

    `_norm_again` computes the norm's result from `mean` and `var`, as often as a plan wants it.
    """

    op_name = "_norm_statistics"
    recomputable = False
