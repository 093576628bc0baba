"""The executors of one module: the one for the shapes of the present batch, and cached ones for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import BindError, Context, is_floating, nearest, ShapeError, StateError
from ..core.errors import MemoryBudgetError
from ..core.wanted import wanted
from ..dist.parts import keep_parts
from ..executor import amp_types, BindRequest, Executor, ExecutorGroup, expect, GroupPlace, hold, simple_bind
from ..executor.plan.metrics import Counted
from ..executor.request.amp import LossScale as Asked
from ..executor.request.infer import infer
from ..executor.request.watch import Watch
from ..graph import dtype_from_text, Entry, Graph, Node, Shape
from ..io import DataDesc
from ..ndarray import NDArray
from .argument_names import ArgumentNames
from .batch_parts import BatchParts

Shapes = tuple[list[DataDesc], list[DataDesc]]  # of data and of labels


class Binding:
    """A symbol's executors, one for each set of input shapes, in a group that other modules may share.

    `executor` is the present one. `data_shapes` and `label_shapes` are those it was bound for.

    If the optimizer's update is to be part of the step, nothing can be planned before it is known: the
    binding `waits`. Until then it has parameters, and plans a program for inference on request.
    """

    def __init__(self, symbol: Any, context: Context, names: ArgumentNames, **options: Any) -> None:
        self.symbol = symbol
        self.context = context
        self.names = names
        self.options = options  # of every `simple_bind`: amp, device, offload, streams, records, group2ctx
        self.owner = object()  # a name in the group, which then does not keep this alive
        # Makes the group expect programs that are still to come beside steps of these shapes.
        self.others: Callable[[ExecutorGroup, Shapes], None] | None = None
        self.group = ExecutorGroup()
        self.data_shapes: list[DataDesc] = []
        self.label_shapes: list[DataDesc] = []
        self.grad_req: Any = "write"
        self.inputs_need_grad = False
        self.optimizer: Any = None  # whose update is part of the step
        self.plan_gradients = False
        self.waits = False  # for its optimizer
        self.narrow_params = False
        self.forward_only = False  # no step is planned before training starts; see Evaluation
        self.metrics: tuple[Counted, ...] = ()  # that training steps add to
        self.monitor: Any = None
        self._shown: Executor | None = None  # to the monitor
        self._executor: Executor | None = None
        self._ranks = 1  # for which it was planned
        self.whole: dict[str, NDArray] = {}  # weights of which a rank is to keep its parts
        self._graph: Graph | None = None  # while it waits, with shapes and types
        self._loss_scale: Asked | None = None

    def anew(self) -> Binding:
        """The same with nothing bound, in a group of its own."""
        new = self._unbound()
        new.metrics, new.monitor = self.metrics, self.monitor
        new.narrow_params = self.narrow_params
        new.owner, new.others = self.owner, self.others
        return new

    def _unbound(self) -> Binding:
        return Binding(self.symbol, self.context, self.names, **self.options)

    @property
    def shapes(self) -> Shapes:
        return self.data_shapes, self.label_shapes

    @property
    def samples(self) -> int:
        """Batch size: the length along the N of the layout of the first data; 0 without data."""
        return self.samples_of(self.data_shapes)

    @staticmethod
    def samples_of(data: Sequence[DataDesc]) -> int:
        """The samples of a batch of this data."""
        if not data:
            return 0
        return int(data[0].shape[max(0, DataDesc.get_batch_axis(data[0].layout))])

    @property
    def output_axes(self) -> list[int]:
        """The axis of each output along which its samples lie."""
        layouts = [e.node.annotations.get("__layout__") for e in self.symbol.graph.outputs]
        return [DataDesc.get_batch_axis(layout) for layout in layouts]

    @property
    def executor(self) -> Executor:
        return self._ready()

    @property
    def devices(self) -> Sequence[Binding]:
        """The bindings that run: of one device this one."""
        return (self,)

    @property
    def has_program(self) -> bool:
        """True if `executor` need not be created first."""
        return self._executor is not None

    @property
    def executors(self) -> list[Executor]:
        """The executor of each device."""
        return [device.executor for device in self.devices]

    @property
    def parts(self) -> BatchParts:
        """The parts of a batch that the devices get."""
        return BatchParts(self.samples, (1,))

    @property
    def planned_bytes(self) -> int:
        """Planned bytes of the whole group, this binding's program included."""
        self._ready()
        return self.group.planned_bytes

    def _ready(self) -> Executor:
        """The executor, created now if none was requested while this waits."""
        if self._executor is None:
            if self._graph is None:
                raise StateError("call bind first: this module has no arrays yet.")
            self._executor = self._made(self.data_shapes, self.label_shapes)
            self.show()
        return self._executor

    @property
    def is_fused(self) -> bool:
        """True if the update is part of the step."""
        return self._executor is not None and bool(self._executor.updated)

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """The arguments by name; without inputs as long as there is no program."""
        if self._executor is not None:
            return self._executor.arg_dict
        return self._held(() if self._graph is None else self._graph.arguments)

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """The auxiliary states by name."""
        if self._executor is not None:
            return self._executor.aux_dict
        return self._held(() if self._graph is None else self._graph.auxiliary)

    @property
    def of_ranks(self) -> Mapping[str, Shape]:
        """Arrays of which this rank has a part, with the shapes of the whole; see Executor."""
        return {} if self._executor is None else self._executor.parts

    def take_parts(self) -> None:
        """Keep this rank's parts of weights that ranks share, in place of the whole arrays."""
        for name, array in self.whole.items():
            keep_parts(array, self.arg_dict[name])
            self.group.held.pop(("var", name), None)
        self.whole = {}

    def refresh_masters(self) -> None:
        """Refresh float32 copies after weights were changed by other means than a step; see Executor."""
        if self._executor is not None:
            self._executor.refresh_masters()

    @property
    def mean_aux_dict(self) -> dict[str, NDArray]:
        """The auxiliary states by name, of several devices their means, which are copies."""
        return self.aux_dict

    def _held(self, nodes: Sequence[Node]) -> dict[str, NDArray]:
        held = {k: array for group in self._groups for k, array in group.held.items()}
        return {n.name: held["var", n.name] for n in nodes if ("var", n.name) in held}

    @property
    def _groups(self) -> list[ExecutorGroup]:
        """The groups where its executors have shares: on several devices of one program, one for each."""
        return self.group.of_devices if self.options.get("group2ctx") else [self.group]

    @property
    def output_shapes(self) -> list[Shape]:
        if self._executor is None and self._graph is not None:
            return [self._graph.shapes[e] for e in self._graph.outputs]
        return [o.shape for o in self.executor.outputs]

    def feed(self, batch: Any) -> dict[str, Any]:
        """The arrays of a batch by name; labels may be left out, all of them. Raises ShapeError."""
        data_names = [d.name for d in self.data_shapes]
        label_names = [d.name for d in self.label_shapes] or self.names.label
        labels = getattr(batch, "label", None)  # a named tuple with data only is accepted
        labels = [] if labels is None else labels
        wanted("forward: the batch", batch, "a DataBatch", has=("data",))
        wanted("forward: the batch's data", batch.data, "a list of NDArrays", list, tuple)
        wanted("forward: the batch's label", labels, "a list of NDArrays", list, tuple)
        for array in (*batch.data, *labels):
            wanted("Each array of a batch", array, "an NDArray", has=("shape", "dtype"))
        if len(batch.data) != len(data_names):
            raise ShapeError(f"forward: the batch's data has {len(batch.data)} arrays for {data_names}.")
        if 0 < len(labels) < len(label_names):
            raise ShapeError(f"forward: the batch's label has {len(labels)} arrays for {label_names}.")
        return {**dict(zip(data_names, batch.data)), **dict(zip(label_names, labels))}

    def forward(self, feed: Mapping[str, Any], is_train: bool) -> None:
        """Push the forward pass on these inputs."""
        self.executor.forward(is_train=is_train, **feed)

    def forward_backward(self, feed: Mapping[str, Any]) -> None:
        """Push forward in training mode and backward."""
        self.executor.forward_backward(**feed)

    def backward(self, out_grads: Any) -> None:
        """Push backward, with head gradients of the whole batch."""
        self.executor.backward(out_grads)

    def sum_gradients(self) -> None:
        """Give the first device the sums of all devices' gradients, once after each backward."""

    def average_states(self) -> None:
        """Give each of several devices the means of their auxiliary states."""

    def other_shapes(self, batch: Any, feed: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Data and label shapes for a batch of other shapes than the bound ones; None for one of these."""
        shapes = {d.name: tuple(d.shape) for d in (*self.data_shapes, *self.label_shapes)}
        if all(n not in shapes or tuple(a.shape) == shapes[n] for n, a in feed.items()):
            return None
        data = getattr(batch, "provide_data", None)
        data = data or [(d.name, feed[d.name].shape) for d in self.data_shapes]
        labels = getattr(batch, "provide_label", None)
        if labels is None and self.label_shapes:
            if getattr(batch, "label", None):
                labels = [(d.name, feed[d.name].shape) for d in self.label_shapes]
            else:
                n = feed[self.data_shapes[0].name].shape[0]
                labels = [(d.name, (n, *d.shape[1:])) for d in self.label_shapes]
        return data, labels

    def use(self, data_shapes: Any, label_shapes: Any, loss_scale: Asked | None) -> None:
        """Select the executor for these shapes, a cached or a new one. Nothing changes if that fails."""
        data, labels = self._descriptions(data_shapes, label_shapes)
        self._loss_scale = loss_scale
        found = self.group.get(self.owner, _key(data, labels))
        graph = None
        if found is None and self.waits:
            graph = self._hold(data, labels)
        elif found is None:
            found = self._made(data, labels)
        self._executor, self._graph = found, graph
        self.data_shapes, self.label_shapes = data, labels
        self.show()

    def _hold(self, data: Sequence[DataDesc], labels: Sequence[DataDesc]) -> Graph:
        """The network for these inputs, with parameters but without a program."""
        shapes, types = self._given(data, labels)
        return hold(self.symbol.graph, self.context, shapes, types, self.group, self.options.get("group2ctx"))

    def has(self, data_shapes: Any, label_shapes: Any) -> bool:
        """True if there is an executor for these shapes."""
        return (self.owner, _key(*self._descriptions(data_shapes, label_shapes))) in self.group.members

    def rest(self, stays: bool) -> None:
        """Deselect the executor: existing ones stay in the group, unless `stays` only while there is room."""
        self.hide()
        if not stays:
            self.group.rest(self.owner)
        self._executor = None

    def expect(self, data_shapes: Any, label_shapes: Any, loss_scale: Asked | None) -> None:
        """Make the group count the program that `use` of these shapes will create, in another binding."""
        self.data_shapes, self.label_shapes = self._descriptions(data_shapes, label_shapes)
        self._loss_scale = loss_scale
        request = self._request(self.symbol.graph, self.data_shapes, self.label_shapes)
        expect(request, self._place(self.data_shapes, self.label_shapes))

    def _expect_others(self, data: list[DataDesc], labels: list[DataDesc]) -> None:
        if self.others is not None and self.group.budget is not None:
            self.others(self.group, (data, labels))

    def remake(self, loss_scale: Asked | None) -> None:
        """Create the executor anew, after its options have changed; those for other shapes are dropped."""
        self._loss_scale = loss_scale
        for group in self._groups:
            group.drop(self.owner, _key(self.data_shapes, self.label_shapes))
        if self._executor is not None or not self.waits:
            self._executor = self._made(self.data_shapes, self.label_shapes)
            self.show()

    def train_with(self, optimizer: Any, loss_scale: Asked | None) -> None:
        """Plan training, with the update of `optimizer` if there is one. Nothing changes if that fails."""
        before = self.optimizer, self.plan_gradients, self.waits, self.forward_only
        now = optimizer, True, False, False
        has_ranks = self._ranks == self.options["ranks"].count
        if optimizer is None and before == now and has_ranks:  # the same step, with other bytes beside it
            self._expect_others(*self.shapes)
            key = self.owner, _key(self.data_shapes, self.label_shapes)
            if len(self._groups) == 1 and self.group.replan(key):
                return
        self.optimizer, self.plan_gradients, self.waits, self.forward_only = now
        try:
            self.remake(loss_scale)
        except BaseException:
            self.optimizer, self.plan_gradients, self.waits, self.forward_only = before
            raise
        self._graph = None

    def show(self) -> None:
        """Show the present executor to the monitor, in place of the previous one."""
        if self.monitor is None or self._executor is None:
            return
        self.hide()
        self.monitor.install(self._executor)
        self._shown = self._executor

    def hide(self) -> None:
        """Hide all executors from the monitor."""
        seen = getattr(self.monitor, "exes", [])
        if self._shown in seen:
            seen.remove(self._shown)
        self._shown = None

    @property
    def _watch(self) -> Watch | None:
        """Arrays that the monitor watches."""
        if self.monitor is None:
            return None
        pattern = getattr(self.monitor, "re_prog", None)
        wants_all = bool(getattr(self.monitor, "monitor_all", False))
        return Watch(".*" if pattern is None else pattern.pattern, wants_all)

    def leave(self) -> None:
        """Drop all executors; the arrays that others share stay."""
        self.hide()
        for group in self._groups:
            group.drop(self.owner)
        self._executor = self._graph = None

    def _descriptions(self, data: Any, labels: Any) -> tuple[list[DataDesc], list[DataDesc]]:
        """Data and labels as DataDesc. Raises BindError."""
        described = self._described(data, self.names.data, "data")
        return described, self._described(labels, self.names.label, "label") if labels else []

    def _described(self, shapes: Any, names: list[str], kind: str) -> list[DataDesc]:
        bound = {d.name: d.dtype for d in (*self.data_shapes, *self.label_shapes)}
        try:
            descs = [s if isinstance(s, DataDesc) else DataDesc(*s) for s in shapes]
        except TypeError:
            raise BindError(
                f"bind: {kind}_shapes must be a list of DataDesc or (name, shape), got {shapes!r}."
            ) from None
        for d, given in zip(descs, shapes):
            for n in d.shape:
                wanted(f"bind: the shape of {d.name!r}", n, "of whole numbers", int, np.integer)
            if not isinstance(given, DataDesc) and len(given) == 2 and d.name in bound:
                d.dtype = bound[d.name]
        known = {*self.names.label, *self.names.data}
        found = [d.name for d in descs]
        for name in names:
            if name not in found:
                raise BindError(
                    f"bind: {kind}_shapes lacks {name!r}; it has {found}.{nearest(name, found)} An "
                    f"iterator's names are those of the network's arguments: {kind}_name= gives them."
                )
        for d in descs:
            if d.name not in known and kind == "data":
                raise BindError(
                    f"bind: {kind}_shapes has {d.name!r}, but the module's {kind} names are {names}."
                )
            if d.name in self.names.parameters:
                raise BindError(
                    f"bind: {kind}_shapes has {d.name!r}, an argument of the network that the module takes "
                    f"for a parameter, as its {kind} names are {names}. "
                    f"Module(symbol, {kind}_names=({d.name!r},)) makes it an input."
                )
        return [d for d in descs if d.name in known]

    def _requests(self) -> dict[str, str]:
        """Gradient request of each argument, with MXNet's reading of a module's `grad_req`.

        Parameters that are declared as whole numbers are constants: no optimizer steps them.
        """
        asked, names = self.grad_req, self.symbol.list_arguments()
        if isinstance(asked, (list, tuple)):
            return dict(zip(names, asked))
        usual = asked if isinstance(asked, str) else "write"
        constants = {n.name for n in self.symbol.graph.arguments if _is_declared_whole(n)}
        constants.update(self.names.fixed)
        found = {n: "null" if n in constants else usual for n in self.names.parameters}
        found |= dict.fromkeys(self.names.data, usual if self.inputs_need_grad else "null")
        if isinstance(asked, str):
            return found
        wanted("bind: grad_req", asked, "text, or a list or dict of it", Mapping)
        return found | {n: asked[n] for n in names if n in asked}  # one mapping may serve several networks

    def _given(
        self, data: Sequence[DataDesc], labels: Sequence[DataDesc]
    ) -> tuple[dict[str, Shape], dict[str, np.dtype[Any]]]:
        """Shapes and types of the inputs by name; those of states follow from the others."""
        descs = [*data, *labels]
        shapes = {d.name: tuple(d.shape) for d in descs}
        types = {d.name: np.dtype(d.dtype) for d in descs}
        if self.names.states:
            found = dict(zip(self.symbol.list_arguments(), self.symbol.infer_shape_partial(**shapes)[0]))
            shapes |= {n: found[n] for n in self.names.states if found[n]}
        return shapes, types

    def _narrowed(self, shapes: Mapping[str, Shape], types: Mapping[str, Any]) -> dict[str, np.dtype[Any]]:
        """Types of inputs that mixed precision reads only in 16 bits and that users of the module never see:
        batches, and if requested parameters.

        Batches for a GPU stay float32: the device casts them faster than the host.
        """
        asked = self._requests()
        names = {n for n in self.names.data if self.context.device_type == "cpu" and asked[n] == "null"}
        names |= set(self.names.parameters) if self.narrow_params else set()
        found = amp_types(self.symbol.graph, shapes, types, self.options["amp"])
        return {n: t for n, t in found.items() if n in names}

    def _request(self, graph: Graph, data: Sequence[DataDesc], labels: Sequence[DataDesc]) -> BindRequest:
        """The bind request of the group's programs."""
        shapes, types = self._given(data, labels)
        if self.options["amp"] is not None:
            types |= self._narrowed(shapes, types)
        return BindRequest(
            graph,
            self.context,
            shapes,
            grad_req=self._wants_gradients or "null",
            type_dict=types,
            optimizer=self.optimizer,
            loss_scale=self._loss_scale,
            watch=self._watch,
            forward_only=self.forward_only,
            **self.options,
        )

    def _place(self, data: Sequence[DataDesc], labels: Sequence[DataDesc]) -> GroupPlace:
        return GroupPlace(self.group, self.owner, _key(data, labels), for_now=self.waits)

    @property
    def _wants_gradients(self) -> dict[str, str]:
        return self._requests() if self.plan_gradients else {}

    def _made(self, data: list[DataDesc], labels: list[DataDesc]) -> Executor:
        self._ranks = self.options["ranks"].count
        if not self.waits:
            self._expect_others(data, labels)
        graph = self.symbol.graph if self._graph is None else self._graph
        request, place = self._request(graph, data, labels), self._place(data, labels)
        shapes, types = request.shapes, request.type_dict or {}
        arrays: dict[str, NDArray] = {}
        before = self.arg_dict if self._executor is not None or self._graph is not None else {}
        if self._executor is not None and (data, labels) == (self.data_shapes, self.label_shapes):
            have = self._executor.arg_dict
            arrays = {n: have[n] for n, s in shapes.items() if n in have and have[n].shape == s}
            arrays = {n: a for n, a in arrays.items() if np.dtype(a.dtype) == types.get(n, a.dtype)}
        metrics = () if self.forward_only else self.metrics
        try:
            made = simple_bind(replace(request, metrics=metrics), arrays=arrays, place=place)
            self.whole |= {
                n: before[n] for n, s in made.parts.items() if n in before and before[n].shape == s
            }
            return made
        except MemoryBudgetError as error:
            if metrics:
                # A budget without room for their sums.
                return simple_bind(request, arrays=arrays, place=place)
            if self._wants_gradients and self.optimizer is None and not self.group.extra:
                self._announce_states(error, shapes, types)
            raise

    def _announce_states(
        self, error: MemoryBudgetError, shapes: Mapping[str, Shape], types: Mapping[str, Any]
    ) -> None:
        """Tell in the error what an optimizer would need, which is not known yet."""
        graph = infer(self.symbol.graph, shapes, types)
        trained = {*self.names.parameters} - {*self.names.fixed}
        nbytes = sum(graph.nbytes(Entry(n)) for n in graph.arguments if n.name in trained)
        least = error.least_feasible_bytes
        error.remark(
            f"An optimizer's states come on top, with init_optimizer: a budget of {least + nbytes} bytes "
            f"does with sgd with momentum, one of {least + 2 * nbytes} with adam."
        )


def _key(data: Sequence[DataDesc], labels: Sequence[DataDesc]) -> tuple[Any, ...]:
    return tuple((d.name, tuple(d.shape), str(np.dtype(d.dtype))) for d in (*data, *labels))


def _is_declared_whole(argument: Node) -> bool:
    declared = argument.annotations.get("__dtype__")
    return declared is not None and not is_floating(dtype_from_text(declared))
