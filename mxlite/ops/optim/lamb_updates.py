"""LAMB: Adam's step, scaled layer by layer by the ratio of the norms of weight and step.

Y. You et al., 2020, "Large batch optimization for deep learning: training BERT in 76 minutes".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ...core.dtype import float32
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.opdef import DType, Op
from .adaptive_updates import moments
from .recording import Evaluation, evaluation, Rates
from .update import CHUNK, chunks, forms, in_chunks, mixed_types, one, prepared, settings, Update


@record
class Phase1Attrs:
    """`t` counts updates of the weight from 1, for the bias correction."""

    t: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0

    @property
    def lr(self) -> float:
        return 1.0


@record
class Phase2Attrs:
    """Bounds of the weight's norm; negative ones do not count."""

    lr: float
    lower_bound: float = -1.0
    upper_bound: float = -1.0


@record
class LambAttrs:
    """Both phases' parameters."""

    lr: float
    t: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True
    lower_bound: float = -1.0
    upper_bound: float = -1.0
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


def direction(xp: Any, a: Any, r: Rates, weight: Any, mean: Any, var: Any) -> Any:
    """``m / (sqrt(v) + epsilon) + wd*weight`` with bias-corrected moments."""
    first, second = (1 - a.beta1**r.t, 1 - a.beta2**r.t) if a.bias_correction else (1.0, 1.0)
    made = mean / first / (xp.sqrt(var / second) + a.epsilon)
    return made + weight * r.wd if r.wd else made


def moved(xp: Any, a: Any, r: Rates, weight: Any, step: Any) -> Any:
    """The weight after a step; the learning rate has the layer's factor in it."""
    return weight - step * r.lr


def moved_again(xp: Any, a: Any, r: Rates, weight: Any, mean: Any, var: Any) -> Any:
    """The same, with the direction of these moments."""
    return moved(xp, a, r, weight, direction(xp, a, r, weight, mean, var))


def ratio(a: Any, weight_norm: float, step_norm: float) -> float:
    """The layer's factor; 1 where a norm is 0."""
    if a.lower_bound >= 0:
        weight_norm = max(weight_norm, a.lower_bound)
    if a.upper_bound >= 0:
        weight_norm = min(weight_norm, a.upper_bound)
    return weight_norm / step_norm if weight_norm and step_norm else 1.0


def ratio_of(a: Any, r1: Any, r2: Any) -> float:
    """`ratio` of norms in arrays of one element."""
    return ratio(a, float(r1.reshape(())), float(r2.reshape(())))


def phase2_shapes(a: Any, *shapes: Any) -> Any:
    """`Op.infer_shape` of the second phase."""
    weight, g, r1, r2, *more = shapes
    if any(s != weight for s in (g, *more)):
        raise ShapeError(f"the arrays must be as the weight, {weight}, got {(g, *more)}.")
    for name, s in (("r1", r1), ("r2", r2)):
        if math.prod(s) != 1:
            raise ShapeError(f"{name} must have one element, got {s}.")
    return shapes, (weight,)


class lamb_update_phase1(Update):
    """LAMB's direction; `mean` and `var` are changed in place.

    ``g = clip(rescale_grad*grad)``;  mean and var as in `adam_update`;
    ``out = mean/(1-beta1**t) / (sqrt(var/(1-beta2**t)) + epsilon) + wd*weight``

    weight, grad, mean, var: (...)  ->  out: (...), the direction, whose norm is an input of
    `lamb_update_phase2`.
    """

    inputs = ("weight", "grad", "mean", "var")
    in_place = {}
    rates = ("lr", "wd", "t")
    Attrs = Phase1Attrs

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
        mean, var = moments(a, prepared(xp, a, grad), mean, var)
        return direction(xp, a, r, weight, mean, var), mean, var


class lamb_update_phase2(Op):
    """LAMB's step, ``out = weight - lr * r1/r2 * g``, r1 cut to [`lower_bound`, `upper_bound`].

    weight, g: (...);  r1, r2: (1,), the norms of weight and of g  ->  out: (...), usually `weight` itself.
    If a norm is 0 the factor r1/r2 is 1.
    """

    inputs = ("weight", "g", "r1", "r2")
    in_place = {"out": ("weight", "g")}
    accepts = "float"
    recomputable = False
    Attrs = Phase2Attrs

    infer_shape = staticmethod(phase2_shapes)

    @staticmethod
    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        return 2 * min(CHUNK, math.prod(inputs[0])) * dtype.itemsize

    @staticmethod
    def forward(xp: Any, a: Any, weight: Any, g: Any, r1: Any, r2: Any, *, out: Any, work: Any) -> None:
        factor = weight.dtype.type(a.lr * ratio_of(a, r1, r2))
        in_chunks(xp, evaluation(moved, None, 2, weight.dtype), Rates(factor, 0), (weight, g, out), work)


class mp_lamb_update_phase1(Op):
    """`lamb_update_phase1` of a 16-bit weight: reads the float32 copy `weight32`; the direction is float32.

    weight, grad: (...) of 16 bits;  mean, var, weight32: (...) float32  ->  out: (...) float32.
    """

    inputs = ("weight", "grad", "mean", "var", "weight32")
    mutates = ("mean", "var")
    same_shape = True
    recomputable = False
    Attrs = Phase1Attrs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        return mixed_types(cls, a, *dtypes)[0], (float32,)

    @staticmethod
    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        return 4 * min(CHUNK, math.prod(inputs[0])) * 4

    @staticmethod
    def forward(
        xp: Any, a: Any, weight: Any, grad: Any, mean: Any, var: Any, weight32: Any, *, out: Any, work: Any
    ) -> None:
        one(lamb_update_phase1, xp, a, Rates(1.0, a.wd, a.t), (weight32, grad, mean, var, out), work)


class mp_lamb_update_phase2(Op):
    """`lamb_update_phase2` of a 16-bit weight: `weight32` is changed and rounded into `out`.

    weight: (...) of 16 bits;  g, weight32: (...) float32;  r1, r2: (1,)  ->  out: (...) as weight.
    """

    inputs = ("weight", "g", "r1", "r2", "weight32")
    mutates = ("weight32",)
    in_place = {"out": "weight"}
    recomputable = False
    Attrs = Phase2Attrs

    infer_shape = staticmethod(phase2_shapes)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        weight, *rest = dtypes
        mixed_types(cls, a, weight, weight, *rest)
        return (weight, *(float32 for _ in rest)), (weight,)

    @staticmethod
    def workspace(a: Any, inputs: Any, outputs: Any, dtype: Any) -> int:
        return 2 * min(CHUNK, math.prod(inputs[0])) * 4

    @staticmethod
    def forward(
        xp: Any, a: Any, weight: Any, g: Any, r1: Any, r2: Any, weight32: Any, *, out: Any, work: Any
    ) -> None:
        lamb_update_phase2.forward(xp, a, weight32, g, r1, r2, out=weight32, work=work)
        if out is not None:
            xp.copyto(out, weight32, casting="unsafe")


class lamb_update(Update):
    """LAMB, both phases in one; `mean` and `var` are changed in place.

    ``out = weight - lr * |weight| / |d| * d`` with the direction d of `lamb_update_phase1`, the weight's norm
    cut to [`lower_bound`, `upper_bound`], and 1 for the quotient if a norm is 0.

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight` itself. The direction is computed
    twice, for its norm and for the step, and never stored whole.
    """

    inputs = ("weight", "grad", "mean", "var")
    rates = ("lr", "wd", "t")
    splits = False
    Attrs = LambAttrs

    @classmethod
    def scratch(cls, a: Any, dtype: DType) -> int:
        first, second = _passes(a, dtype, True)
        return max(first.scratch + 1, second.scratch)  # one for the direction

    @classmethod
    def whole(cls, xp: Any, a: Any, r: Rates, arrays: Sequence[Any], work: Any) -> None:
        weight, grad, mean, var, out = arrays
        first, second = _passes(a, weight.dtype, bool(r.wd))
        run = first.bound(xp, r)
        weight_square = step_square = 0.0
        for scratch, parts in chunks(xp, work, first.scratch, (weight, grad, mean, var, None)):
            run(parts, scratch)
            step_square += float(xp.vdot(parts[-1], parts[-1]))
            weight_square += float(xp.vdot(parts[0], parts[0]))
        factor = r.lr.dtype.type(r.lr * ratio(a, math.sqrt(weight_square), math.sqrt(step_square)))
        in_chunks(xp, second, r._replace(lr=factor), (weight, mean, var, out), work)


@functools.lru_cache(maxsize=1024)
def _passes(a: Any, dtype: DType, decays: bool) -> tuple[Evaluation, Evaluation]:
    """Both passes over the arrays: the first phase, and the step along its direction."""
    own = settings(lamb_update_phase1, a)
    first = evaluation(lamb_update_phase1.step, own, 4, dtype, decays, apart=True)
    return first, evaluation(moved_again, own, 3, dtype, decays)


globals().update(forms(lamb_update, multi="_multi_"))
