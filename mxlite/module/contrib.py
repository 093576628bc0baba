"""`mx.contrib`: operators whose names begin with `_contrib_`, on symbols and arrays; `text`, `autograd`,
`onnx`."""

from ..formats import onnx as onnx
from ..io import text as text
from ..ndarray import contrib as nd, old_autograd
from ..symbol import contrib as sym

autograd = old_autograd
ndarray = nd
symbol = sym
