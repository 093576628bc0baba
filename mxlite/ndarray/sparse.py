"""mx.nd.sparse: MXNet's names of operators on sparse arrays, served by the dense ones.

Storage is dense: `mx.nd.sparse.dot(a, b)` is `mx.nd.dot(a, b)`, on arrays that hold their zeros.
"""

from typing import Any as _Any

from ..core.errors import MXLiteError as _MXLiteError
from ..core.namespace import namespace as _namespace
from .functions import FUNCTIONS as _FUNCTIONS

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.sparse", ("_sparse_", ""), _FUNCTIONS, _FUNCTIONS.__getitem__
)


def csr_matrix(*args: _Any, **options: _Any) -> _Any:
    """Refused: there is no sparse storage."""
    raise _MXLiteError("mx.nd.sparse.csr_matrix: arrays are dense here; mx.nd.array keeps the zeros, too.")


def row_sparse_array(*args: _Any, **options: _Any) -> _Any:
    """Refused: there is no sparse storage."""
    raise _MXLiteError(
        "mx.nd.sparse.row_sparse_array: arrays are dense here; mx.nd.array keeps the zeros, too."
    )
