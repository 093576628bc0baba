"""Methods of an array that are operators under their own names: `a.topk(k=2)` is `mx.nd.topk(a, k=2)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..memory.storage import Storage

if TYPE_CHECKING:
    from ..ndarray import NDArray

NAMES = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax_channel argsort broadcast_axes cbrt ceil cos
    cosh cumsum degrees depth_to_space diag exp expm1 fix floor gather_nd log log10 log1p log2 log_softmax
    nanprod nansum ones_like pad radians rcbrt reciprocal relu rint roll round rsqrt shape_array sigmoid
    sign sin sinh size_array slice_like softmin sort space_to_depth sqrt square take_along_axis tan tanh
    topk tril triu trunc where zeros_like
""".split()
"""MXNet's methods that only call the operator on the array, and a few more of the same kind."""


class OperatorMethods(Storage):
    """Mixin of NDArray: a method for each of NAMES, with the arguments of the operator's function, which is
    attached where that is made.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # those that a type checker shall know
        abs: Callable[..., NDArray]
        ceil: Callable[..., NDArray]
        cos: Callable[..., NDArray]
        exp: Callable[..., NDArray]
        expm1: Callable[..., NDArray]
        floor: Callable[..., NDArray]
        log: Callable[..., NDArray]
        log1p: Callable[..., NDArray]
        ones_like: Callable[..., NDArray]
        reciprocal: Callable[..., NDArray]
        relu: Callable[..., NDArray]
        rint: Callable[..., NDArray]
        round: Callable[..., NDArray]
        rsqrt: Callable[..., NDArray]
        sigmoid: Callable[..., NDArray]
        sign: Callable[..., NDArray]
        sin: Callable[..., NDArray]
        sqrt: Callable[..., NDArray]
        square: Callable[..., NDArray]
        tanh: Callable[..., NDArray]
        zeros_like: Callable[..., NDArray]
