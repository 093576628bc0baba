"""Dynamic loss scaling inside a training program, without the host.

P. Micikevicius et al. 2018, "Mixed precision training". The scale, its history and the decision lie on the
device of the gradients, so that a step that overflows is skipped and the host waits for nothing:

    gradients --- multi_all_finite --- finite --+
    hyper --------------------------------------+-- _scaled_update --- hyper, or nan --- every update
    scale, history (changed in place) ----------+

An update whose learning rate is nan changes nothing (see `update.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import FLAGS, float32
from ...core.errors import DTypeError, OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op

HISTORY = 3
"""Numbers of a history: good steps since the scale changed last, updates made, updates skipped."""

_float64 = FLAGS[1]


class ScaledUpdate(Op):
    """The rates of this step's updates: `hyper` if all gradients are finite, else nan.

    finite: (1,) float32, 0 where a gradient overflowed;  hyper: (P, R) float64;  scale: (2,) float32, the
    loss scale S and 1 / S;  history: (3,) float64, see HISTORY  ->  out: (P, R) float64.

    `scale` and `history` are changed: with `dynamic`, S is halved after an overflow, to 1 at least, and
    doubled after `window` good steps, to `largest` at most.
    """

    op_name = "_scaled_update"
    inputs = ("finite", "hyper", "scale", "history")
    inferred = ("scale", "history")
    mutates = ("scale", "history")
    recomputable = False

    @record
    class Attrs:
        dynamic: bool = True
        window: int = 2000
        largest: float = 2.0**24

        def __post_init__(self) -> None:
            if self.window < 1 or self.largest < 1:
                raise OpAttributeError(
                    f"window and largest must be 1 or more, got {self.window}, {self.largest}."
                )

    @staticmethod
    def infer_shape(a: Any, finite: Any, hyper: Any, *_: Any) -> Any:
        if finite not in (None, (1,)) or (hyper is not None and len(hyper) != 2):
            raise ShapeError(f"finite must be (1,) and hyper (P, R), got {finite} and {hyper}.")
        return ((1,), hyper, (2,), (HISTORY,)), (hyper,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        wanted = (float32, _float64, float32, _float64)
        if any(d not in (None, w) for d, w in zip(dtypes, wanted)):
            raise DTypeError(f"finite and scale must be float32, hyper and history float64, got {dtypes}.")
        return wanted, (_float64,)

    @staticmethod
    def forward(xp: Any, a: Any, finite: Any, hyper: Any, scale: Any, history: Any, *, out: Any) -> None:
        good = bool(finite[0] != 0)
        if out is not None:
            out[...] = hyper if good else np.nan
        steps, taken, left_out = (float(x) for x in history)
        value = float(scale[0])
        steps = steps + 1 if good else 0.0
        if a.dynamic and not good:
            value = max(1.0, value / 2)
        elif a.dynamic and steps >= a.window:
            value, steps = min(a.largest, 2 * value), 0.0
        history[...] = steps, taken + good, left_out + (not good)
        scale[...] = value, 1 / value
