"""mx.sym.sparse: MXNet's operators on sparse arrays; `mx.sym.sparse.dot(a, b)` is `mx.sym.dot(a, b)`.

The arrays of a bound program are dense; `executor/plan/row_gradients.py` tells which gradients stay sparse in
it.
"""

from ..core.compat.namespace import namespace as _namespace
from ..ops import TABLE as _TABLE
from .functions import operator_function as _operator_function

__getattr__, __dir__ = _namespace(globals(), "mx.sym.sparse", ("_sparse_", ""), _TABLE, _operator_function)
