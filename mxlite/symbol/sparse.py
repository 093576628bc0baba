"""mx.sym.sparse: MXNet's names of operators on sparse arrays, served by the dense ones.

Storage is dense: `mx.sym.sparse.dot(a, b)` is `mx.sym.dot(a, b)`.
"""

from ..core.namespace import namespace as _namespace
from ..ops import TABLE as _TABLE
from .functions import operator_function as _operator_function

__getattr__, __dir__ = _namespace(globals(), "mx.sym.sparse", ("_sparse_", ""), _TABLE, _operator_function)
