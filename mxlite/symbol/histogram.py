"""`mx.sym.histogram`: the number of elements between edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import OpAttributeError
from ..core.wanted import whole
from .functions import operator_function
from .symbol import Symbol


def histogram(
    a: Symbol, bins: int | Symbol = 10, range: Sequence[float] | None = None, **options: Any
) -> Symbol:
    """Counts and edges, as those of `mx.nd.histogram`: for `bins` equal bins in `range`, or between the edges
    in the symbol `bins`. OpAttributeError for a number of bins without a range."""
    count = operator_function("_histogram")
    if isinstance(bins, Symbol):
        result: Symbol = count(a, bins, **options)
        return result
    if range is None:
        raise OpAttributeError("histogram: a symbol knows no smallest element; give range=(lowest, highest).")
    result = count(a, bin_cnt=whole("histogram: bins", bins, 1), range=tuple(range), **options)
    return result
