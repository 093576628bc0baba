"""What a norm looks for in its data, apart from what it makes of it."""

from __future__ import annotations

from ..nn.normed_convolution import _norm_line


class _norm_statistics(_norm_line):
    """As `_norm_line`, **once in a step**: a plan keeps what this finds and never looks for it again.

    data: (N, C, ...) with C at `axis`;  gamma, beta, moving_mean, moving_var: (C,)
    ->  factor, shift, mean, var: (C,). As of BatchNorm `var` is the inverse standard deviation.

    `_norm_again` makes the result of the norm of `mean` and `var`, as often as a plan wants it.
    """

    recomputable = False
