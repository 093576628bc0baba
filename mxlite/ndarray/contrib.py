"""mx.nd.contrib: `mx.nd.contrib.X` is the operator `_contrib_X`; other functions are here."""

from ..core.compat.namespace import namespace as _namespace
from .operators.contrib_updates import (
    adamw_update as adamw_update,
    mp_adamw_update as mp_adamw_update,
    multi_adamw_update as multi_adamw_update,
    multi_lamb_update as multi_lamb_update,
    multi_mp_adamw_update as multi_mp_adamw_update,
    multi_mp_lamb_update as multi_mp_lamb_update,
)
from .operators.control import cond as cond, foreach as foreach, while_loop as while_loop
from .operators.functions import FUNCTIONS as _FUNCTIONS
from .operators.masking import boolean_mask as boolean_mask
from .operators.zipfian import rand_zipfian as rand_zipfian
from .sparse_arrays.stored_count import getnnz as getnnz

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.contrib", ("_contrib_",), _FUNCTIONS, _FUNCTIONS.__getitem__
)
