"""Steps of AdamW and LAMB with MXNet's arguments: gradients' scale as an array, lists of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core import OpAttributeError
from ..ndarray import NDArray
from .functions import FUNCTIONS

Scale = NDArray | float


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: Scale,
    lr: float,
    eta: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0,
    clip_gradient: float = -1,
    out: NDArray | None = None,
    name: str | None = None,
) -> NDArray:
    """Adam with decoupled weight decay: ``weight - eta * (lr*mean / (sqrt(var) + epsilon) + wd*weight)``.

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight`; `mean` and `var` are changed. The call
    waits for `rescale_grad` if it is an array of one. If the scale is 0, inf or nan, as after an overflow in
    mixed precision, everything stays as it is.

    I. Loshchilov and F. Hutter, 2019, "Decoupled weight decay regularization".
    """
    rates = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "clip_gradient": clip_gradient}
    return _adamw([(weight, grad, mean, var)], rescale_grad, [lr], [wd], [eta], rates, _listed(out))[0]


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: Scale,
    lr: float,
    eta: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0,
    clip_gradient: float = -1,
    out: NDArray | None = None,
    name: str | None = None,
) -> NDArray:
    """`adamw_update` of a 16-bit weight through `weight32`, its float32 copy, which is changed, too."""
    rates = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "clip_gradient": clip_gradient}
    own = [(weight, grad, mean, var, weight32)]
    return _adamw(own, rescale_grad, [lr], [wd], [eta], rates, _listed(out))[0]


def multi_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    rescale_grad: Scale,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[NDArray] | None = None,
    name: str | None = None,
    size: int = 0,
    **rates: float,
) -> list[NDArray]:
    """`adamw_update` of many weights in one call; `rates` are beta1, beta2, epsilon and clip_gradient."""
    own = _by_weight(size, weights, grads, mean, var)
    return _adamw(own, rescale_grad, lrs, wds, etas, rates, out)


def multi_mp_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    rescale_grad: Scale,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[NDArray] | None = None,
    name: str | None = None,
    size: int = 0,
    **rates: float,
) -> list[NDArray]:
    """`mp_adamw_update` of many weights in one call; `rates` are beta1, beta2, epsilon and clip_gradient."""
    own = _by_weight(size, weights, grads, mean, var, weights32)
    return _adamw(own, rescale_grad, lrs, wds, etas, rates, out)


def multi_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Sequence[NDArray] | None = None,
    num_tensors: int = 0,
    **rates: Any,
) -> list[NDArray]:
    """`lamb_update` of many weights in one call; `step_count` says for each how many updates there were."""
    own = _by_weight(num_tensors, weights, grads, mean, var)
    return _many("_multi_lamb_update", own, out, lrs=lrs, wds=wds, step_count=step_count, **rates)


def multi_mp_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Sequence[NDArray] | None = None,
    num_tensors: int = 0,
    **rates: Any,
) -> list[NDArray]:
    """`multi_lamb_update` of 16-bit weights through their float32 copies `weights32`."""
    own = _by_weight(num_tensors, weights, grads, mean, var, weights32)
    return _many("_multi_mp_lamb_update", own, out, lrs=lrs, wds=wds, step_count=step_count, **rates)


def _adamw(
    own: Sequence[tuple[NDArray, ...]],
    rescale_grad: Scale,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    rates: dict[str, float],
    out: Sequence[NDArray] | None,
) -> list[NDArray]:
    scale = float(rescale_grad.asscalar() if isinstance(rescale_grad, NDArray) else rescale_grad)
    if len(etas) != len(own):
        raise OpAttributeError(f"etas must be {len(own)} numbers, one for each weight, got {len(etas)}.")
    if scale == 0 or not math.isfinite(scale):
        targets = [a[0].copy() for a in own] if out is None else list(out)
        for a, o in zip(own, targets):
            if o is not a[0]:
                a[0].copyto(o)
        return targets
    operator = "_multi_mp_adamw_update" if len(own[0]) == 5 else "_multi_adamw_update"
    # eta is a factor of both rates, and the operator has one eta for all weights.
    lrs, wds = [r * e for r, e in zip(lrs, etas)], [r * e for r, e in zip(wds, etas)]
    return _many(operator, own, out, lrs=lrs, wds=wds, rescale_grad=scale, **rates)


def _many(
    operator: str, own: Sequence[tuple[NDArray, ...]], out: Sequence[NDArray] | None, **rates: Any
) -> list[NDArray]:
    function: Callable[..., Any] = FUNCTIONS[operator]
    target = None if out is None else list(out)
    results = function(*(a for arrays in own for a in arrays), num_weights=len(own), out=target, **rates)
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _by_weight(size: int, *lists: Sequence[NDArray]) -> list[tuple[NDArray, ...]]:
    """The arrays of each weight. OpAttributeError for lists that are not of one length, `size` unless 0."""
    lengths = [len(x) for x in lists]
    wanted = size or lengths[0]
    if wanted < 1 or any(n != wanted for n in lengths):
        raise OpAttributeError(f"The lists must hold {max(1, wanted)} arrays each, got {lengths}.")
    return list(zip(*lists))


def _listed(out: NDArray | None) -> list[NDArray] | None:
    return None if out is None else [out]
