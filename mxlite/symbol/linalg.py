"""mx.sym.linalg: `mx.sym.linalg.X` is the operator `_linalg_X`."""

from ..core.compat.namespace import namespace as _namespace
from ..ops import TABLE as _TABLE
from .functions import operator_function as _operator_function

__getattr__, __dir__ = _namespace(globals(), "mx.sym.linalg", ("_linalg_",), _TABLE, _operator_function)
