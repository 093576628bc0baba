"""`mx.contrib`: the operators whose names begin with `_contrib_`, on symbols and on arrays; `text`."""

from ..io import text as text
from ..ndarray import contrib as nd
from ..symbol import contrib as sym

ndarray = nd
symbol = sym
