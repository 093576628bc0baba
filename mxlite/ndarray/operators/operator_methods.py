"""Methods of an array that are operators under their own names: `a.topk(k=2)` is `mx.nd.topk(a, k=2)`."""

from __future__ import annotations

from ..memory.storage import Storage

NAMES = """
    arccos arccosh arcsin arcsinh arctan arctanh argmax_channel argsort broadcast_axes cbrt cosh cumsum
    degrees depth_to_space diag fix gather_nd log10 log2 log_softmax nanprod nansum pad radians rcbrt roll
    shape_array sinh size_array slice_like softmin sort space_to_depth take_along_axis tan topk tril triu
    trunc where
""".split()
"""MXNet's methods that only call the operator on the array, and a few more of the same kind."""


class OperatorMethods(Storage):
    """Mixin of NDArray: a method for each of NAMES, with the arguments of the operator's function, which is
    attached where that is made.
    """

    __slots__ = ()
