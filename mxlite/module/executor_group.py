"""`mx.module.executor_group`: MXNet's class below its Module, for programs that make one themselves.

A Module here needs none: it binds one executor, which its `_exec_group` shows (`bound_arrays.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..core import Context
from ..core.errors import ArgumentError, ShapeError, StateError
from ..core.wanted import wanted
from ..executor import Executor, simple_bind
from ..executor.request.bind_request import BindRequest
from ..io import DataDesc
from ..ndarray import NDArray
from .batch_parts import BatchParts
from .bound_arrays import BoundArrays

__all__ = ["DataParallelExecutorGroup"]


class DataParallelExecutorGroup(BoundArrays):
    """An executor for each of `contexts`, of which each runs a part of every batch, by its `workload`.

    Gradients are each executor's own; who updates adds them up. `param_names` are the arguments that have
    gradients and that a group made with `shared_group` shares; it shares the others through
    `shared_data_arrays` where they are as large.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Context],
        workload: Sequence[float] | None,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        param_names: Sequence[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: DataParallelExecutorGroup | None = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: Any = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
    ) -> None:
        if group2ctxs is not None:
            raise ArgumentError("DataParallelExecutorGroup: group2ctxs is not supported; give None.")
        self.symbol, self.logger, self.for_training = symbol, logger, for_training
        self.inputs_need_grad = inputs_need_grad
        self.state_names = list(state_names or ())
        self.fixed_param_names = list(fixed_param_names or ())
        self.data_shapes, self.label_shapes = _described(data_shapes), _described(label_shapes or ())
        self.label_names = [d.name for d in self.label_shapes]
        self.output_names = symbol.list_outputs()
        self._axes = {d.name: d.get_batch_axis(d.layout) for d in (*self.data_shapes, *self.label_shapes)}
        outputs = symbol.graph.outputs
        self.output_layouts = [DataDesc.get_batch_axis(e.node.annotations.get("__layout__")) for e in outputs]
        samples = {d.shape[a] for d in self.data_shapes if (a := self._axes[d.name]) >= 0}
        if len(samples) > 1:
            raise ShapeError(f"DataParallelExecutorGroup: data of {sorted(samples)} samples in one batch.")
        count = samples.pop() if samples else len(contexts)
        self.workload = list(workload or [1] * len(contexts))
        self._parts = BatchParts(count, self.workload)
        self.slices = self._parts.slices
        data_names = [d.name for d in self.data_shapes]
        self.grad_req = self._requests(grad_req, param_names, data_names)
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        lenders: Sequence[Executor | None] = [None] * len(contexts)
        if shared_group is not None:
            lenders = shared_group.execs
        made = [
            self._bound(*of, param_names)
            for of in zip(contexts, range(len(contexts)), lenders, self.shared_data_arrays)
        ]
        own = [n for n in symbol.list_arguments() if n in set(param_names)]
        super().__init__(made, own, data_names, count, self._install_monitor)

    def _requests(self, asked: Any, params: Sequence[str], data: Sequence[str]) -> dict[str, str]:
        """The gradient request of each argument, by MXNet's rules."""
        names = self.symbol.list_arguments()
        if isinstance(asked, (list, tuple)):
            return dict(zip(names, asked, strict=True))
        wanted("DataParallelExecutorGroup: grad_req", asked, "text, or a list or dict of it", str, Mapping)
        usual = asked if isinstance(asked, str) else "write"
        wants = set(params) - set(self.fixed_param_names) | (set(data) if self.inputs_need_grad else set())
        found = {n: usual if n in wants and self.for_training else "null" for n in names}
        return found if isinstance(asked, str) or not self.for_training else found | dict(asked)

    def _bound(
        self,
        context: Context,
        number: int,
        lender: Executor | None,
        shared: dict[str, NDArray],
        params: Sequence[str],
    ) -> Executor:
        """The executor for the part of a batch that device `number` gets."""
        inputs = self._parts.described([*self.data_shapes, *self.label_shapes], number)
        shapes = {d.name: d.shape for d in inputs}
        types = {d.name: d.dtype for d in (*self.data_shapes, *self.label_shapes)}
        names = self.symbol.list_arguments()
        found = dict(zip(names, self.symbol.infer_shape(**shapes)[0]))
        fits = {n: a for n, a in shared.items() if n in found and a.shape == found[n]}
        request = BindRequest(self.symbol.graph, context, shapes, grad_req=self.grad_req, type_dict=types)
        made = simple_bind(request, shared_exec=lender, arrays=fits)
        for name in set(names) - set(params):
            array = made.arg_dict[name]
            if name not in shared or shared[name].size < array.size:
                shared[name] = array
        return made

    # -- running -------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run each executor on its part of a batch."""
        feed = dict(zip(self.data_names, data_batch.data))
        if self.label_names and data_batch.label:
            feed |= dict(zip(self.label_names, data_batch.label))
        train = self.for_training if is_train is None else is_train
        for i, executor in enumerate(self.execs):
            executor.forward(
                is_train=train, **{n: self._parts.cut(a, self._axes[n], i) for n, a in feed.items()}
            )

    def backward(self, out_grads: Any = None) -> None:
        """Run each backward pass; `out_grads` are of whole batches."""
        if not self.for_training:
            raise StateError("DataParallelExecutorGroup: backward needs for_training=True.")
        heads = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads or ())
        for i, executor in enumerate(self.execs):
            cut = [self._parts.cut(g, a, i) for g, a in zip(heads, self.output_layouts)]
            executor.backward(cut or None)

    def get_outputs(
        self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None
    ) -> list[Any]:
        """Outputs of the last forward, [begin, end) of them; each a list of parts unless they are merged."""
        where = slice(begin, end)
        parts = [list(arrays) for arrays in zip(*(e.outputs for e in self.execs))][where]
        return self._parts.merged(parts, merge_multi_context, self.output_layouts[where])

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data."""
        if not self.inputs_need_grad:
            raise StateError("DataParallelExecutorGroup: get_input_grads needs inputs_need_grad=True.")
        axes = [self._axes[n] for n in self.data_names]
        return self._parts.merged(self.input_grad_arrays, merge_multi_context, axes)

    def update_metric(self, eval_metric: Any, labels: Sequence[NDArray], pre_sliced: bool = False) -> None:
        """Let the metric see the outputs of each executor with its part of the labels."""
        for i, executor in enumerate(self.execs):
            axes = [self._axes[n] for n in self.label_names]
            mine = labels[i] if pre_sliced else [self._parts.cut(a, x, i) for a, x in zip(labels, axes)]
            eval_metric.update_dict(
                dict(zip(self.label_names, mine)), dict(zip(self.output_names, executor.outputs))
            )

    # -- parameters ----------------------------------------------------------------------------

    def set_params(self, arg_params: Any, aux_params: Any, allow_extra: bool = False) -> None:
        """Copy parameters into every executor."""
        for executor in self.execs:
            executor.copy_params_from(arg_params, aux_params, allow_extra_params=allow_extra)

    def get_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Write the mean over the executors into arrays of these names."""
        for names, arrays, targets in (
            (self.param_names, self.param_arrays, arg_params),
            (self.aux_names, self.aux_arrays, aux_params),
        ):
            for name, parts in zip(names, arrays):
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                (total / len(parts)).astype(targets[name].dtype).copyto(targets[name])

    def _install_monitor(self, mon: Any) -> None:
        for executor in self.execs:
            wanted("install_monitor: mon", mon, "a Monitor", has=("install",)).install(executor)


def _described(shapes: Sequence[Any]) -> list[DataDesc]:
    return [s if isinstance(s, DataDesc) else DataDesc(*s) for s in shapes]
