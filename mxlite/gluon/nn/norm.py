"""Normalization layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import StateError
from ...symbol import autograd
from ..blocks.hybrid_block import HybridBlock


class _Norm(HybridBlock):
    """What all have in common: a scale gamma and a shift beta for each channel."""

    def _make(
        self, size: int, given: dict[str, Any], center: bool, scale: bool, differentiable: bool = True
    ) -> None:
        """Make the two parameters; without `scale` or `center` they are constant."""
        for name, learns in (("gamma", scale), ("beta", center)):
            made = self.params.get(
                name,
                grad_req="write" if learns else "null",
                shape=(size,),
                init=given[f"{name}_initializer"],
                allow_deferred_init=True,
                **({"differentiable": learns} if differentiable else {}),
            )
            setattr(self, name, made)

    def __repr__(self) -> str:
        size = self.gamma.shape[0] or None  # type: ignore[attr-defined]
        told = ", ".join(f"{k}={v}" for k, v in self._kwargs.items())  # type: ignore[attr-defined]
        return f"{type(self).__name__}({told}, in_channels={size})"


class BatchNorm(_Norm):
    """(x - mean) / sqrt(variance + epsilon) gamma + beta, with a batch's mean and variance in training.

    Running averages of these, of which a step keeps `momentum`, serve inference. axis: the channels'.
    Ioffe and Szegedy 2015.
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = dict(
            axis=axis, eps=epsilon, momentum=momentum, fix_gamma=not scale, use_global_stats=use_global_stats
        )
        given = dict(beta_initializer=beta_initializer, gamma_initializer=gamma_initializer)
        self._make(in_channels, given, center, scale)
        running = dict(grad_req="null", shape=(in_channels,), allow_deferred_init=True, differentiable=False)
        self.running_mean = self.params.get("running_mean", init=running_mean_initializer, **running)
        self.running_var = self.params.get("running_var", init=running_variance_initializer, **running)

    def cast(self, dtype: Any) -> None:
        """Convert its parameters, which stay float32 beside float16 data."""
        super().cast("float32" if np.dtype(dtype).name == "float16" else dtype)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        """See the class."""
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class BatchNormReLU(BatchNorm):
    """relu(BatchNorm(x))."""

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        """See the class."""
        return F.relu(super().hybrid_forward(F, x, gamma, beta, running_mean, running_var))


class SyncBatchNorm(BatchNorm):
    """BatchNorm by the mean and variance of all ranks' batches, where a Trainer with kvstore='dist_sync'
    updates it and it is hybridized; else BatchNorm.

    num_devices: several devices of one process have each its own batch, whatever it says. StateError for a
    training step of several ranks that is not hybridized: its messages have no order.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1,
            momentum,
            epsilon,
            center,
            scale,
            use_global_stats,
            beta_initializer,
            gamma_initializer,
            running_mean_initializer,
            running_variance_initializer,
            in_channels,
            **kwargs,
        )
        del self._kwargs["axis"]
        self._kwargs.update(ndev=num_devices or 1, key=self.prefix)

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        """See the class."""
        trainer = self._reg_params["gamma"].trainer()
        alone = F is not nd or trainer is None or trainer.ranks == 1
        if not alone and autograd.is_training() and not self._kwargs["use_global_stats"]:
            raise StateError(
                f"SyncBatchNorm {self.name!r} trains on {trainer.ranks} ranks, and is called by itself: "
                f"hybridize() the network, whose program orders the messages of ranks."
            )
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class InstanceNorm(_Norm):
    """(x - mean) / sqrt(variance + epsilon) gamma + beta, over the pixels of each sample and channel.

    Ulyanov et al. 2016.
    """

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = dict(eps=epsilon, axis=axis, center=center, scale=scale)
        self._axis, self._epsilon = axis, epsilon
        given = dict(beta_initializer=beta_initializer, gamma_initializer=gamma_initializer)
        self._make(in_channels, given, center, scale, differentiable=False)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        """See the class."""
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        x = F.swapaxes(x, dim1=1, dim2=self._axis)
        out = F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        return F.swapaxes(out, dim1=1, dim2=self._axis)


class LayerNorm(_Norm):
    """(x - mean) / sqrt(variance + epsilon) gamma + beta, along one axis. Ba et al. 2016."""

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = dict(eps=epsilon, axis=axis, center=center, scale=scale)
        given = dict(beta_initializer=beta_initializer, gamma_initializer=gamma_initializer)
        self._make(in_channels, given, center, scale, differentiable=False)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        """See the class."""
        return F.LayerNorm(data, gamma, beta, axis=self._kwargs["axis"], eps=self._kwargs["eps"])


class GroupNorm(_Norm):
    """(x - mean) / sqrt(variance + epsilon) gamma + beta, over the channels of a group; one gamma for each
    group.

    Wu and He 2018; with a scale for each group, not for each channel, as in MXNet.
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = dict(eps=epsilon, num_groups=num_groups, center=center, scale=scale)
        given = dict(beta_initializer=beta_initializer, gamma_initializer=gamma_initializer)
        self._make(num_groups, given, center, scale, differentiable=False)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        """See the class."""
        return F.GroupNorm(data, gamma, beta, num_groups=self._kwargs["num_groups"], eps=self._kwargs["eps"])
