"""mx.nd: arrays whose operations run later, and the operators as functions.

Every operator of `mxlite.ops` is a function here under each of its names: `mx.nd.Convolution`, `mx.nd.exp`.
"""

from typing import Any

from ..core.errors import UnknownAttributeError as _UnknownAttributeError
from . import contrib as contrib, image as image, linalg as linalg, random as random, sparse as sparse
from .files.persistence import load as load, load_frombuffer as load_frombuffer, save as save
from .memory.capsule import (
    to_dlpack_for_read as to_dlpack_for_read,
    to_dlpack_for_write as to_dlpack_for_write,
)
from .memory.dlpack import (
    from_cuda_array_interface as from_cuda_array_interface,
    from_dlpack as from_dlpack,
)
from .memory.waiting import waitall as waitall
from .ndarray import NDArray as NDArray
from .operators.binary import (
    add as add,
    divide as divide,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    hypot as hypot,
    lesser as lesser,
    lesser_equal as lesser_equal,
    maximum as maximum,
    minimum as minimum,
    modulo as modulo,
    multiply as multiply,
    not_equal as not_equal,
    power as power,
    subtract as subtract,
    true_divide as true_divide,
)
from .operators.creation import (
    arange as arange,
    array as array,
    concatenate as concatenate,
    empty as empty,
    eye as eye,
    from_numpy as from_numpy,
    full as full,
    linspace as linspace,
    ones as ones,
    zeros as zeros,
)
from .operators.custom import Custom as Custom
from .operators.functions import FUNCTIONS as _FUNCTIONS
from .operators.histogram import histogram as histogram
from .operators.namespaces import _internal as _internal, op as op
from .operators.rearrange import moveaxis as moveaxis, onehot_encode as onehot_encode, split_v2 as split_v2
from .sparse_arrays.sparse_array import cast_storage as cast_storage
from .supplies import supply_all as _supply_all

_supply_all()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = _FUNCTIONS.get(name)
    if function is None:
        raise _UnknownAttributeError(f"mx.nd has no function {name!r}.", name, __dir__)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})
