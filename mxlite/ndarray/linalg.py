"""mx.nd.linalg: `mx.nd.linalg.X` is the operator `_linalg_X`."""

from ..core.compat.namespace import namespace as _namespace
from .operators.functions import FUNCTIONS as _FUNCTIONS

__getattr__, __dir__ = _namespace(
    globals(), "mx.nd.linalg", ("_linalg_",), _FUNCTIONS, _FUNCTIONS.__getitem__
)
