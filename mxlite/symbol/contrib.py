"""mx.sym.contrib: `mx.sym.contrib.X` is the operator `_contrib_X`. Functions that are none go here."""

from ..core.namespace import namespace as _namespace
from ..ops import TABLE as _TABLE
from .control import cond as cond, foreach as foreach, while_loop as while_loop
from .functions import operator_function as _operator_function

__getattr__, __dir__ = _namespace(globals(), "mx.sym.contrib", ("_contrib_",), _TABLE, _operator_function)
