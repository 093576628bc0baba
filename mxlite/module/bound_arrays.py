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
    """Executors, of a module its present one, and their arrays in the order of `param_names`.

    The arrays are those that `forward`, `backward` and `update` use. A gradient is None where there is none:
    with a fused update, without training, of fixed parameters.
    """

    def __init__(
        self,
        executors: Sequence[Executor],
        param_names: Sequence[str],
        data_names: Sequence[str],
        batch_size: int,
        install_monitor: Callable[[Any], None],
    ) -> None:
        self.execs = list(executors)
        self.contexts = [e.context for e in executors]
        self.param_names = list(param_names)
        self.data_names = list(data_names)
        self.arg_names = list(executors[0].arg_dict)
        self.aux_names = list(executors[0].aux_dict)
        self.batch_size = batch_size
        self.install_monitor = install_monitor  # the module's

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """The parameters."""
        return [[e.arg_dict[n] for e in self.execs] for n in self.param_names]

    @property
    def grad_arrays(self) -> list[list[NDArray | None]]:
        """Their gradients."""
        return [[e.grad_dict[n] for e in self.execs] for n in self.param_names]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """The auxiliary states."""
        return [[e.aux_dict[n] for e in self.execs] for n in self.aux_names]

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]]:
        """The gradients of the data, in the order of `data_names`."""
        return [[e.grad_dict[n] for e in self.execs] for n in self.data_names]
