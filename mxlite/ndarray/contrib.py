"""mx.nd.contrib: `mx.nd.contrib.X` is the operator `_contrib_X`; other functions are here."""

from ..core.namespace import namespace as _namespace
from .contrib_updates import (
    adamw_update as adamw_update,
    mp_adamw_update as mp_adamw_update,
    multi_adamw_update as multi_adamw_update,
    multi_lamb_update as multi_lamb_update,
    multi_mp_adamw_update as multi_mp_adamw_update,
    multi_mp_lamb_update as multi_mp_lamb_update,
)
from .control import cond as cond, foreach as foreach, while_loop as while_loop
from .functions import FUNCTIONS as _FUNCTIONS
from .masking import boolean_mask as boolean_mask
from .stored_count import getnnz as getnnz
from .zipfian import rand_zipfian as rand_zipfian

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.contrib", ("_contrib_",), _FUNCTIONS, _FUNCTIONS.__getitem__
)
