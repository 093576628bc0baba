"""`mx.contrib`: operators whose names begin with `_contrib_`, on symbols and arrays; `text`, `io`,
`autograd`, `onnx`, `amp`."""

from typing import Any

from ..core.compat.absent import absent
from ..core.errors import UnknownAttributeError
from ..formats import onnx as onnx
from ..io import loader_iter, text as text
from ..ndarray import contrib as nd
from ..ndarray.gradients import old_autograd
from ..symbol import contrib as sym
from . import amp_names

_ABSENT = {
    "quantization": "there are no kernels of 8 bits; Module(..., amp='bfloat16') halves activations",
    "tensorboard": "metrics go where a callback of fit writes them",
    "svrg_optimization": "the optimizers are those of mx.optimizer",
}


def __getattr__(name: str) -> Any:
    raise UnknownAttributeError(absent("mx.contrib", name, _ABSENT), name, lambda: sorted(globals()))


amp = amp_names
autograd = old_autograd
io = loader_iter
ndarray = nd
symbol = sym
