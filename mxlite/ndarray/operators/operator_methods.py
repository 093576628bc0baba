"""Methods of an array that are operators under their own names: `a.topk(k=2)` is `mx.nd.topk(a, k=2)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..memory.storage import Storage

NAMES = """
    arccos arccosh arcsin arcsinh arctan arctanh argmax_channel argsort broadcast_axes cbrt cosh cumsum
    degrees depth_to_space diag fix gather_nd log10 log2 log_softmax nanprod nansum pad radians rcbrt roll
    shape_array sinh size_array slice_like softmin sort space_to_depth take_along_axis tan topk tril triu
    trunc where
""".split()
"""MXNet's methods that only call the operator on the array, and a few more of the same kind."""


class OperatorMethods(Storage):
    """Mixin of NDArray: a method for each of NAMES, with the arguments of the operator's function."""

    __slots__ = ()


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **parameters: Any) -> Any:
        from .functions import FUNCTIONS

        return FUNCTIONS[name](self, *args, **parameters)

    method.__name__ = name
    method.__qualname__ = f"NDArray.{name}"
    method.__doc__ = f"`mx.nd.{name}` of this array; see there."
    return method


for _name in NAMES:
    setattr(OperatorMethods, _name, _method(_name))
