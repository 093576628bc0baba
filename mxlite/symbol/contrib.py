"""mx.sym.contrib: `mx.sym.contrib.X` is the operator `_contrib_X`; other functions are here."""

from typing import Any, NoReturn

from ..core.compat.namespace import namespace as _namespace
from ..core.errors import ShapeError as _ShapeError
from ..ndarray.operators.zipfian import log_range as _log_range, zipfian_of as _zipfian_of
from ..ops import TABLE as _TABLE
from .control import cond as cond, foreach as foreach, while_loop as while_loop
from .functions import operator_function as _operator_function
from .random import uniform as _uniform


def boolean_mask(data: Any, index: Any, axis: int = 0, name: str | None = None) -> NoReturn:
    """Refused: its result's size depends on values, and a graph knows all shapes before it runs."""
    raise _ShapeError(
        "boolean_mask: the shape of the result depends on values, so it cannot be part of a graph; use "
        "mx.nd.contrib.boolean_mask on arrays, or mx.sym.where, which keeps the shape."
    )


def rand_zipfian(true_classes: Any, num_sampled: int, range_max: int) -> tuple[Any, Any, Any]:
    """As `mx.nd.contrib.rand_zipfian`, drawn anew in each step."""
    drawn = _uniform(0, _log_range(num_sampled, range_max), shape=(num_sampled,), dtype="float64")
    return _zipfian_of(drawn, true_classes, num_sampled, range_max)


__getattr__, __dir__ = _namespace(globals(), "mx.sym.contrib", ("_contrib_",), _TABLE, _operator_function)
