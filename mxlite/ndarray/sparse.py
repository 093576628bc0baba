"""mx.nd.sparse: arrays that store only some of their elements, and the operators under MXNet's names.

`sparse_array.py` says how they are stored, `sparse_operators.py` which operators keep the storage type.
"""

from functools import partial as _partial

from ..core.compat.namespace import namespace as _namespace
from .operators.functions import FUNCTIONS as _FUNCTIONS
from .sparse_arrays.sparse_array import (
    BaseSparseNDArray as BaseSparseNDArray,
    cast_storage as cast_storage,
    combined as _combined,
    CSRNDArray as CSRNDArray,
    retain as retain,
    RowSparseNDArray as RowSparseNDArray,
)
from .sparse_arrays.sparse_creation import (
    array as array,
    csr_matrix as csr_matrix,
    empty as empty,
    row_sparse_array as row_sparse_array,
    zeros as zeros,
)

add = _partial(_combined, "add")
subtract = _partial(_combined, "sub")
multiply = _partial(_combined, "mul")
divide = _partial(_combined, "div")

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.sparse", ("_sparse_", ""), _FUNCTIONS, _FUNCTIONS.__getitem__
)
