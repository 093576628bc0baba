"""`module._exec_group` as MXNet's programs use it: the executor of a Module and its arrays, as lists over
devices, of which there is one.

    saved = [[g.copy() for g in grads] for grads in module._exec_group.grad_arrays]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..executor import Executor
from ..ndarray import NDArray


class BoundArrays:
    """The present executor of a module, and its arrays in the order of `param_names`.

    The arrays are those that `forward`, `backward` and `update` use. A gradient is None where there is none:
    with a fused update, without training, of fixed parameters.
    """

    def __init__(
        self,
        executor: Executor,
        param_names: Sequence[str],
        data_names: Sequence[str],
        batch_size: int,
        install_monitor: Callable[[Any], None],
    ) -> None:
        self.execs = [executor]
        self.contexts = [executor.context]
        self.param_names = list(param_names)
        self.data_names = list(data_names)
        self.arg_names = list(executor.arg_dict)
        self.aux_names = list(executor.aux_dict)
        self.batch_size = batch_size
        self.install_monitor = install_monitor  # the module's

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The parameters."""
        return [[self.execs[0].arg_dict[n]] for n in self.param_names]

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """Their gradients."""
        return [[self.execs[0].grad_dict[n]] for n in self.param_names]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The auxiliary states."""
        return [[a] for a in self.execs[0].aux_arrays]

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of the data, in the order of `data_names`."""
        return [[self.execs[0].grad_dict[n]] for n in self.data_names]
