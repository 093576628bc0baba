"""Interface of all modules, and the states they can be in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

from ..core import StateError
from ..core.errors import MissingMethodError
from ..core.log import logger_of
from ..ndarray import NDArray
from .metrics.metric_base import EvalMetric


def as_list(value: Any) -> list[Any]:
    """A list or tuple as a list, None as the empty one, anything else as a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def by_device(
    arrays: list[Any], merged: bool, devices: int = 1, samples: int = 0, axes: Sequence[int] = ()
) -> list[Any]:
    """`arrays`, or in MXNet's unmerged form: for each a list over devices.

    Several devices are one here, and each one's list entry is a copy of its part of the batch: of each array
    along its axis in `axes` (0 if that is empty), which belongs to `samples` samples. An array without a
    batch axis is given to every device. Merged arrays are copies too, which the next batch leaves unchanged.
    """
    if devices == 1:
        return arrays if merged else [[a] for a in arrays]
    if merged:
        return [None if a is None else a.copy() for a in arrays]
    return [_parts(a, devices, samples, axes[i] if axes else 0) for i, a in enumerate(arrays)]


def _parts(array: Any, devices: int, samples: int, axis: int) -> list[Any]:
    if array is None or axis < 0 or axis >= array.ndim or samples < devices or array.shape[axis] % samples:
        return [array] * devices
    each = array.shape[axis] // samples  # of the array for one sample
    ends = [each * (samples * i // devices) for i in range(devices + 1)]
    return [array.slice_axis(axis=axis, begin=i, end=j) for i, j in pairwise(ends)]


def missing(module: Any, what: str, name: str) -> MissingMethodError:
    """The error of a module that "does not say how to bind", since its class has no `name`."""
    return MissingMethodError(f"{type(module).__name__} {what}: its class must define {name}.")


class ModuleContract:
    """Interface that `fit`, `score` and `predict` need; see Module.

    A subclass has bind, init_params, init_optimizer, forward, backward, update, get_outputs, update_metric,
    get_params, set_params and the three `save_resume_state`, `load_resume_state`, `prepare_fit`.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger_of(logger)
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    # -- what subclasses do --------------------------------------------------------------------

    @property
    def data_names(self) -> Any:
        """Names of the data that a batch feeds."""
        raise missing(self, "does not say what its data is called", "data_names")

    @property
    def output_names(self) -> Any:
        """Names of the outputs."""
        raise missing(self, "does not say what its outputs are called", "output_names")

    @property
    def data_shapes(self) -> Any:
        """Bound data: a DataDesc, or (name, shape), for each of `data_names`."""
        raise missing(self, "does not say what its data is", "data_shapes")

    @property
    def label_shapes(self) -> Any:
        """Bound labels; nothing if it has none."""
        raise missing(self, "does not say what its labels are", "label_shapes")

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of each output."""
        raise missing(self, "does not say what its outputs are", "output_shapes")

    def bind(self, data_shapes: Any, label_shapes: Any = None, **options: Any) -> None:
        """Plan and allocate for these input shapes: lists of (name, shape) or DataDesc."""
        raise missing(self, "does not say how to bind", "bind()")

    def init_params(self, *args: Any, **options: Any) -> None:
        """Give every parameter a value."""
        raise missing(self, "does not say how to initialise parameters", "init_params()")

    def init_optimizer(self, *args: Any, **options: Any) -> None:
        """Create the object that updates the parameters."""
        raise missing(self, "does not say how to make an optimizer", "init_optimizer()")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run forward on a batch; `is_train` None: as it was bound."""
        raise missing(self, "does not say how to run forward", "forward()")

    def backward(self, out_grads: Any = None) -> None:
        """Run backward, with the gradients of the outputs unless they are losses."""
        raise missing(self, "does not say how to run backward", "backward()")

    def update(self) -> None:
        """Apply the optimizer to all parameters."""
        raise missing(self, "does not say how to update", "update()")

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Outputs of the last forward."""
        raise missing(self, "does not say what its outputs are", "get_outputs()")

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """The arrays named by `state_names`, if the module has any."""
        self.need(params=True)
        return []

    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Assign the states; refused if there are none."""
        self.need(params=True)
        if states or value:
            raise StateError(
                f"set_states: this {type(self).__name__} has no states; name them in state_names."
            )

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of the last forward."""
        raise missing(self, "does not say how to update a metric", "update_metric()")

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of (arguments, auxiliary states) by name."""
        raise missing(self, "does not say what its parameters are", "get_params()")

    def install_monitor(self, mon: Any) -> None:
        """Have a Monitor look into this module."""
        raise missing(self, "has nothing that a monitor could look into", "install_monitor()")

    def prepare_fit(self, train_data: Any = None) -> None:
        """Called by `fit` before bind."""
        self.await_optimizer()

    def expecting(self, train_data: Any, eval_data: Any = None) -> AbstractContextManager[None]:
        """Context in which `fit` plans its steps: a budget is for those on `train_data` and for inference on
        `eval_data`. Programs for their shapes are bound at its end."""
        return nullcontext()

    def await_optimizer(self) -> None:
        """Announce before bind that `init_optimizer` will follow: a budget then includes its states."""

    def resume_moment(self, train_data: Any) -> Any:
        """Positions of random numbers and data, for `save_resume_state`; None if unknown."""
        return None

    def save_resume_state(
        self, prefix: str, epoch: int, nbatch: int, train_data: Any, moment: Any = None
    ) -> None:
        """Write the state for `load_resume_state`: the current one, or that of a `resume_moment`."""
        raise missing(self, "cannot be resumed", "save_resume_state()")

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        """Continue from the saved state: (epoch, batches done in it); None if nothing was written."""
        raise missing(self, "cannot be resumed", "load_resume_state()")

    # -- use -----------------------------------------------------------------------------------

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    def stays_bound(self, force_rebind: bool) -> bool:
        """True if `bind` has nothing to do, which it logs: MXNet keeps an existing binding."""
        if not self.binded or force_rebind:
            return False
        self.logger.warning("Already bound, ignoring bind()")
        return True

    def need(self, *, params: bool = False, optimizer: bool = False) -> None:
        """Raise StateError unless bound (and initialised)."""
        if not self.binded:
            raise StateError("call bind first: this module has no arrays yet.")
        if params and not self.params_initialized:
            raise StateError("call init_params first: the parameters have no values yet.")
        if optimizer and not self.optimizer_initialized:
            raise StateError("call init_optimizer first: nothing says how to update.")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Counterpart of the call that loops in the style of MXNet's `fit` make ahead of a batch: a no-op."""
        self.need()

    def forward_backward(self, data_batch: Any) -> None:
        """Forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def prepare_metric(self, metric: EvalMetric) -> None:
        """Announce to the module, before there is an optimizer, the `metric` that `fit` will use."""

    def counting(self) -> AbstractContextManager[None]:
        """Context in which training steps may add to that metric by themselves."""
        return nullcontext()

    def train_step(self, data_batch: Any) -> None:
        """One step of training: forward, backward, update."""
        self.forward_backward(data_batch)
        self.update()
