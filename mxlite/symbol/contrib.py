"""mx.sym.contrib: `mx.sym.contrib.X` is the operator `_contrib_X`. Functions that are none go here."""

from typing import Any, NoReturn

from ..core.errors import ShapeError as _ShapeError
from ..core.namespace import namespace as _namespace
from ..ops import TABLE as _TABLE
from .control import cond as cond, foreach as foreach, while_loop as while_loop
from .functions import operator_function as _operator_function


def boolean_mask(data: Any, index: Any, axis: int = 0, name: str | None = None) -> NoReturn:
    """Refused: its result is as large as values say, and a graph knows all shapes before it runs."""
    raise _ShapeError(
        "boolean_mask: the shape of the result depends on values, so it cannot be part of a graph; use "
        "mx.nd.contrib.boolean_mask on arrays, or mx.sym.where, which keeps the shape."
    )


__getattr__, __dir__ = _namespace(globals(), "mx.sym.contrib", ("_contrib_",), _TABLE, _operator_function)
