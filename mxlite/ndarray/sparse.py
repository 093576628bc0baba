"""mx.nd.sparse: MXNet's names of operators on sparse arrays, served by the dense ones.

Storage is dense: `mx.nd.sparse.dot(a, b)` is `mx.nd.dot(a, b)`, on arrays that hold their zeros.
"""

from ..core.namespace import namespace as _namespace
from .functions import FUNCTIONS as _FUNCTIONS

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.sparse", ("_sparse_", ""), _FUNCTIONS, _FUNCTIONS.__getitem__
)
