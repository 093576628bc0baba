"""mx.nd.image: `mx.nd.image.X` is the operator `_image_X`."""

from ..core.compat.namespace import namespace as _namespace
from .operators.functions import FUNCTIONS as _FUNCTIONS

__getattr__, __dir__ = _namespace(globals(), "mx.nd.image", ("_image_",), _FUNCTIONS, _FUNCTIONS.__getitem__)
