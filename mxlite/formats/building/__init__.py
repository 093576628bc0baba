"""The graph that an importer builds: values whose shapes are known, and calls of operators on them."""

from .builder import broadcast_shapes as broadcast_shapes, Builder as Builder
from .call import evaluate as evaluate
from .errors import NotSupportedError as NotSupportedError
from .types import is_float as is_float, running_type as running_type
from .value import GraphValue as GraphValue
