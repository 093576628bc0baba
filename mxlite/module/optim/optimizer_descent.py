"""Gradient descent, with and without momentum, and the base of all optimizers of one operator.

In the formulas lr and wd are the rates of one parameter in this update, and products are by element.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import ops
from ...core.disk.schema import real
from ...core.errors import nearest, OpAttributeError
from ...core.wanted import number, wanted
from ...graph.update import UpdateRule
from ...ndarray import NDArray, zeros
from ...ndarray.calls.invoke import call_of, invoke
from .optimizer_base import alias, alike, Optimizer, register


class OperatorOptimizer(Optimizer):
    """Family: the update is one operator, called `rule` and, inside the graph, `_fused_<rule>`."""

    rule: ClassVar[str]  # the operator's name without `_update`
    state_names: ClassVar[tuple[str, ...]]
    own_settings: ClassVar[tuple[str, ...]] = ()  # attributes that are parameters of the operator, too
    counts: ClassVar[bool] = False  # the operator wants the count of updates, `t`

    def operator(self) -> tuple[str, tuple[str, ...]]:
        """`rule` and `state_names`, where these numbers do not ask for others."""
        return self.rule, self.state_names

    lazy_update = False  # True if a row_sparse gradient leaves the rows that it lacks unchanged
    lazy_always = True  # or only for a weight that is declared as row_sparse
    lazy_mixed = True  # or only for a weight that is not of 16 bits, whose float32 copy steps as a whole

    def settings_of_operator(self) -> dict[str, Any]:
        """The operator's parameters without the rates."""
        return {**{name: getattr(self, name) for name in self.own_settings}, **self._gradient_attrs()}

    @alike
    def hyper(self, index: Any) -> tuple[float, ...]:
        rates = super().hyper(index)
        return (*rates, float(self._index_update_count[index])) if self.counts else rates

    @property
    def rates_follow_count(self) -> bool:
        return self.lr_scheduler is not None or self.counts or type(self).hyper is not OperatorOptimizer.hyper

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return self.state_of(tuple(zeros_like(weight) for _ in self.operator()[1]))

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._call(ops.find_op(_public(self._operator_of(state))), index, weight, grad, _arrays(state))

    stateful = ""  # the operator for an existing state that these numbers do not need

    def _operator_of(self, state: Any) -> str:
        name, states = self.operator()
        return self.stateful if self.stateful and not states and state is not None else name

    def update_mixed(self, index: Any, weight: NDArray, grad: NDArray, master: NDArray, state: Any) -> None:
        name = _public(self._operator_of(state))
        mixed = "_mp_adamw_update" if name == "_adamw_update" else f"mp_{name}"
        self._call(ops.find_op(mixed), index, weight, grad, (*_arrays(state), master))

    def _call(self, op: Any, index: Any, weight: NDArray, grad: NDArray, states: tuple[NDArray, ...]) -> None:
        wanted("update: weight", weight, "an NDArray", NDArray)
        wanted("update: grad", grad, "an NDArray", NDArray)
        rates = dict(zip(("lr", "wd", "t"), self.hyper(index)))
        if self.counts:
            rates["t"] = int(rates["t"])
        invoke(call_of(op, {**self.settings_of_operator(), **rates}), (weight, grad, *states), weight)

    def update_rule(self) -> UpdateRule | None:
        name, states = self.operator()
        mixed = ops.find_op(f"_fused_mp_{name}") if self.multi_precision else None
        attrs, rates = self.settings_of_operator(), 3 if self.counts else 2
        lazy = ops.find_op(f"_lazy_{name}") if self.lazy_update else None
        lazy_mixed = (
            ops.find_op(f"_lazy_mp_{name}") if mixed and self.lazy_update and self.lazy_mixed else None
        )
        fused = ops.find_op(f"_fused_{name}")
        splits = fused.step_of.splits  # type: ignore[attr-defined]
        return UpdateRule(fused, attrs, states, mixed, rates, lazy, self.lazy_always, lazy_mixed, splits)


def _public(name: str) -> str:
    return "_adamw_update" if name == "adamw" else f"{name}_update"


def _arrays(state: Any) -> tuple[NDArray, ...]:
    return () if state is None else state if isinstance(state, tuple) else (state,)


@alias("ccsgd")  # its name in older examples
@register
class SGD(OperatorOptimizer):
    """Stochastic gradient descent with momentum.

    `g = clip(rescale_grad * grad) + wd * weight;  m = momentum * m - lr * g;  weight += m`. The state is m,
    or None without momentum. With `lazy_update` a row_sparse gradient leaves the rows alone that it has not;
    of 16-bit weights, as in MXNet, all rows are changed.
    """

    lazy_mixed = False
    master_last = True
    stateful = "sgd_mom"

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)
        self.lazy_update = lazy_update

    def operator(self) -> tuple[str, tuple[str, ...]]:
        return ("sgd_mom", ("mom",)) if self.momentum else ("sgd", ())

    def settings_of_operator(self) -> dict[str, Any]:
        own: dict[str, Any] = {"momentum": self.momentum} if self.momentum else {}
        if not self.lazy_update:
            own["lazy_update"] = False
        return {**own, **self._gradient_attrs()}


@register
class NAG(OperatorOptimizer):
    """Nesterov's accelerated gradient.

    `g = clip(rescale_grad * grad) + wd * weight;  m = momentum * m - lr * g;
    weight += momentum * m - lr * g`.
    MXNet 1.9.1 stores another m when it clips or decays; see the operator `nag_mom_update`.
    """

    lazy_mixed = False
    master_last = True
    stateful = "nag_mom"

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)
        self.lazy_update = not self.momentum  # then it is SGD

    def operator(self) -> tuple[str, tuple[str, ...]]:
        return ("nag_mom", ("mom",)) if self.momentum else ("sgd", ())

    def settings_of_operator(self) -> dict[str, Any]:
        own = {"momentum": self.momentum} if self.momentum else {}
        return {**own, **self._gradient_attrs()}


@register
class Signum(OperatorOptimizer):
    """Descent by the sign of the gradient, or of its momentum.

    `m = momentum * m - (1 - momentum) * (clip(rescale_grad * grad) + wd * weight);
    weight = (1 - lr * wd_lh) * weight + lr * sign(m)`; without momentum
    `weight = (1 - lr * wd) * weight - lr * sign(grad)`.
    """

    def __init__(
        self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = number("momentum", momentum)
        self.wd_lh = number("wd_lh", wd_lh)

    def operator(self) -> tuple[str, tuple[str, ...]]:
        return ("signum", ("mom",)) if self.momentum > 0 else ("signsgd", ())

    def settings_of_operator(self) -> dict[str, Any]:
        own = {"momentum": self.momentum, "wd_lh": self.wd_lh} if self.momentum > 0 else {}
        return {**own, **self._gradient_attrs()}


@register
class LBSGD(SGD):
    """Gradient descent in large batches, put together from `batch_scale` small ones.

    The gradients of `batch_scale` updates in a row are added up; the last of these is one of SGD with their
    mean, at a learning rate of lr * m, and the others change nothing. m grows from 1 to `batch_scale` in the
    first `warmup_epochs` * `updates_per_epoch` updates u, the first of epoch `begin_epoch` being number
    begin_epoch * updates_per_epoch + 1: by `warmup_strategy` "linear", with u, "power2", with u^2, or "sqrt".
    With "lars" there is no warm-up: `m = sqrt(|weight|^2 / (|g|^2 + wd * |weight|^2))` in [0.01, 100], where
    g is the mean gradient before `rescale_grad`.

    A scheduler gives the rate of the update before, as in MXNet. Of the very first gradient MXNet adds up
    what its array holds by the second update: under Module that is the second gradient, here it is the
    first. The state is SGD's; with a `batch_scale` other than 1 it is (momentum or None, sum of gradients).
    `num_epochs` is accepted and has no effect.

    Y. You, I. Gitman and B. Ginsburg (2017), Large batch training of convolutional networks.
    """

    master_last = False
    limits = {
        "batch_scale": real(1),
        "warmup_epochs": real(0),
        "updates_per_epoch": real(0),
        "init_updates": real(0),
    }

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: float = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(momentum=momentum, multi_precision=multi_precision, **kwargs)
        if warmup_strategy not in _STRATEGIES:
            raise OpAttributeError(
                f"warmup_strategy is one of {_STRATEGIES}, got {warmup_strategy!r}."
                f"{nearest(str(warmup_strategy), _STRATEGIES)}"
            )
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = number("warmup_epochs", warmup_epochs)
        self.batch_scale = number("batch_scale", batch_scale)
        self.updates_per_epoch = number("updates_per_epoch", updates_per_epoch)
        self.init_updates = number("begin_epoch", begin_epoch) * self.updates_per_epoch
        self.num_epochs = num_epochs
        if self.batch_scale < 1:
            raise OpAttributeError(f"batch_scale must be at least 1, got {batch_scale}.")

    @property
    def _is_plain(self) -> bool:
        """True if each update is one of SGD."""
        return self.batch_scale == 1 and self.warmup_strategy != "lars"

    def hyper(self, index: Any) -> tuple[float, ...]:
        """As in Optimizer, but the rates are those before this update is counted."""
        rates = self._get_lr(index), self._get_wd(index)
        self._update_count(index)
        return rates

    def create_state(self, index: Any, weight: NDArray) -> Any:
        state = super().create_state(index, weight)
        return state if self.batch_scale == 1 else (state, zeros_like(weight))

    def update_rule(self) -> UpdateRule | None:
        return super().update_rule() if self._is_plain else None

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        if self._is_plain:
            super().update(index, weight, grad, state)
            return
        lr, wd = self.hyper(index)
        count = self.init_updates + self._index_update_count[index] - self.begin_num_update
        momentum, mean = state, grad
        if self.batch_scale != 1:
            momentum, total = state
            total += grad
            if count % self.batch_scale:
                return
            mean = total / self.batch_scale
            total[:] = 0
        if self.warmup_strategy == "lars":
            self._step(weight, mean, momentum, lr * _lengths_ratio(weight, mean, wd), wd)
        else:
            self._step(weight, mean, momentum, lr * self._multiplier(count), wd)

    def update_mixed(self, index: Any, weight: NDArray, grad: NDArray, master: NDArray, state: Any) -> None:
        if self._is_plain:
            super().update_mixed(index, weight, grad, master, state)
        else:
            Optimizer.update_mixed(self, index, weight, grad, master, state)

    def _multiplier(self, count: float) -> float:
        """m at this number of updates."""
        warm = self.warmup_epochs * self.updates_per_epoch
        if count >= warm:
            return self.batch_scale
        if warm <= 1:
            return 1.0
        share = count / warm
        grown = {"linear": share, "power2": share**2, "sqrt": math.sqrt(share)}[self.warmup_strategy]
        return 1.0 + (self.batch_scale - 1) * grown

    def _step(self, weight: NDArray, grad: NDArray, momentum: Any, lr: Any, wd: float) -> None:
        """One step of SGD; lr: a number or an NDArray (1,)."""
        g = self._clipped(grad * self.rescale_grad)
        descend(weight, lr * (g + wd * weight), momentum, self.momentum)


def descend(weight: NDArray, step: NDArray, state: NDArray | None, momentum: float) -> None:
    """Subtract a step from a weight: by way of the momentum in `state`, if there is one."""
    if state is None:
        weight -= step
        return
    state *= momentum
    state -= step
    weight += state


_STRATEGIES = ("linear", "power2", "sqrt", "lars")


def _lengths_ratio(weight: NDArray, grad: NDArray, wd: float) -> NDArray:
    """Ratio of the norm of a weight to that of its gradient and decay, (1,) in [0.01, 100]."""
    lengths = [x.astype("float32").square().sum() for x in (weight, grad)]
    ratio = (lengths[0] / (lengths[1] + wd * lengths[0] + 1e-18)).sqrt().clip(0.01, 100)
    return ratio.astype(weight.dtype)


def zeros_like(weight: NDArray) -> NDArray:
    """A state of zeros, of the shape, type and device of `weight`."""
    wanted("create_state: weight", weight, "an NDArray", NDArray)
    return zeros(weight.shape, weight.context, dtype=weight.dtype)
