"""`mx.sym`: symbols, and a function for every operator of `mxlite.ops.TABLE`, built at its first use."""

import sys as _sys
from typing import Any

from . import contrib as contrib, image as image, linalg as linalg, random as random, sparse as sparse
from .arithmetic import hypot as hypot, maximum as maximum, minimum as minimum, pow as pow, power as power
from .attribute import AttrScope as AttrScope
from .creation import (
    arange as arange,
    eye as eye,
    full as full,
    linspace as linspace,
    ones as ones,
    split_v2 as split_v2,
    zeros as zeros,
)
from .functions import operator_function as operator_function
from .histogram import histogram as histogram
from .naming import NameManager as NameManager, Prefix as Prefix
from .operator import Custom as Custom
from .symbol import (
    Group as Group,
    load as load,
    load_json as load_json,
    Symbol as Symbol,
)
from .variable import var as var, Variable as Variable

# Modules in which MXNet also keeps its operators.
op = _internal = _sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        from ..core.errors import UnknownAttributeError
        from ..ops import TABLE

        if name in TABLE:
            return operator_function(name)
        why = f"mx.sym has no {name!r}: no operator is called that."
        raise UnknownAttributeError(why, name, lambda: TABLE)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from ..ops import TABLE

    return sorted({*globals(), *TABLE})
