"""Methods of a symbol that make plans and executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TYPE_CHECKING

from ..core import Context
from ..core.compat.storage_kinds import all_dense
from ..core.errors import MXLiteError
from ..graph import Graph, Shape

if TYPE_CHECKING:
    from ..backends.tune.records import Records
    from ..executor import Calibration, Executor
    from ..executor.request.bind_request import Offload
    from ..memplan import Device, MemoryPlan, Ranks


_PLANNED = (
    "grad_req", "type_dict", "memory_budget", "optimizer", "strategy", "amp", "loss_scale", "device",
    "offload", "records",
)  # fmt: skip
"""Options of `memory_plans` that are no shapes."""


class Bindable:
    """The methods of `Symbol` that plan and bind; the executor's layer is above, so each imports it."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def graph(self) -> Graph: ...

        def list_auxiliary_states(self) -> list[str]: ...

    def memory_plan(
        self,
        ctx: Context | None = None,
        grad_req: Any = "write",
        type_dict: Mapping[str, Any] | None = None,
        memory_budget: int | str | None = None,
        optimizer: Any = None,
        strategy: str = "sharing",
        amp: Any = None,
        loss_scale: float | None = None,
        device: Device | str | None = None,
        offload: Offload = None,
        ranks: Ranks | int = 1,
        records: str | Records | None = None,
        **kwargs: Shape,
    ) -> MemoryPlan:
        """The plan that `simple_bind` with these arguments would run; allocates no array.

        `kwargs` are the shapes of inputs. `device` is the device for which times are estimated: a
        `mx.memplan.Device`, text such as "20TFLOP/s,900GB/s", or "measured" (see `calibrate`); it decides
        what is worth recomputing. A plan for a GPU that is absent counts the needs of mxlite's own kernels;
        libraries may want more scratch. Raises MemoryBudgetError if no plan is found that fits the budget.
        The rest is as in `simple_bind`.
        """
        from ..executor import BindRequest, memory_plan
        from ..memplan import Ranks

        request = BindRequest(
            self.graph,
            ctx,
            kwargs,
            grad_req=grad_req,
            type_dict=type_dict,
            memory_budget=memory_budget,
            optimizer=optimizer,
            strategy=strategy,
            amp=amp,
            loss_scale=loss_scale,
            device=device,
            offload=offload,
            ranks=Ranks.of(ranks),
            records=records,
        )
        return memory_plan(request)

    def memory_plans(
        self, group2ctx: Mapping[str, Context], ctx: Context | None = None, **options: Any
    ) -> dict[Context, MemoryPlan]:
        """The plan of each device that `simple_bind` with this `group2ctx` would run; allocates no array.

        `options` are shapes of inputs and what `memory_plan` takes, but for `ranks`. The devices may be GPUs,
        also absent ones. Raises MemoryBudgetError, which names a device that has no plan within the budget.
        """
        from ..executor import BindRequest, memory_plans

        asked = {n: options.pop(n) for n in _PLANNED if n in options}
        return memory_plans(BindRequest(self.graph, ctx, options, group2ctx=group2ctx, **asked))

    def amp_types(
        self, amp: Any, type_dict: Mapping[str, Any] | None = None, **kwargs: Shape
    ) -> dict[str, Any]:
        """The arguments that mixed precision reads only in 16 bits, with that type: for `type_dict`.

        Stored that way they take half the bytes and need no second copy: data in training, parameters
        too in inference. `kwargs` are the shapes of inputs.
        """
        from ..executor import amp_types

        return amp_types(self.graph, kwargs, type_dict, amp)

    def calibrate(
        self,
        ctx: Context | None = None,
        grad_req: Any = "write",
        type_dict: Mapping[str, Any] | None = None,
        optimizer: Any = None,
        amp: Any = None,
        loss_scale: float | None = None,
        again: bool = False,
        budgets: Sequence[int | str] = (),
        **kwargs: Shape,
    ) -> Calibration:
        """Time each kernel call of a step on scratch arrays, for plans with `device="measured"`.

        The times are kept on disk; `again`: measure known ones anew. Such plans make this call
        themselves; a direct call chooses the moment, and shows the times.
        budgets: the plans of these budgets (bytes, or text such as "512MiB") and the plan without one run in
        turns, so that other load on the machine affects all of them equally: this measures best the extra
        time of each. It takes as many bytes as the step without a budget. Raises MemoryBudgetError if a
        budget has no plan.
        """
        from ..executor import BindRequest, calibrate

        request = BindRequest(
            self.graph,
            ctx,
            kwargs,
            grad_req=grad_req,
            type_dict=type_dict,
            optimizer=optimizer,
            amp=amp,
            loss_scale=loss_scale,
        )
        return calibrate(request, again=again, budgets=budgets)

    def simple_bind(
        self,
        ctx: Context | None = None,
        grad_req: Any = "write",
        type_dict: Mapping[str, Any] | None = None,
        stype_dict: Mapping[str, str] | None = None,
        group2ctx: Mapping[str, Context] | None = None,
        shared_arg_names: Sequence[str] | None = None,
        shared_exec: Executor | None = None,
        shared_buffer: Mapping[str, Any] | None = None,
        memory_budget: int | str | None = None,
        optimizer: Any = None,
        amp: Any = None,
        loss_scale: float | None = None,
        device: Device | str | None = None,
        plan: MemoryPlan | None = None,
        offload: Offload = None,
        streams: int = 1,
        ranks: Ranks | int = 1,
        records: str | Records | None = None,
        **kwargs: Shape,
    ) -> Executor:
        """An executor with arrays of its own, all zero; `kwargs` are the shapes of inputs.

        grad_req: 'write', 'add' or 'null', for all arguments or as a list or dict.
        memory_budget: bytes, or text such as "512MiB", that everything the executor owns must fit in.
        optimizer: its update becomes part of the step, and gradients die at once.
        shared_exec: an executor whose arrays are used where shapes agree.
        amp: 'bfloat16' or 'float16' for mixed precision: parameters, statistics, losses and outputs stay
        float32, activations are computed in 16 bits where that is harmless. An argument that `type_dict`
        gives this type is stored in it; see `amp_types`.
        loss_scale: the factor of 16-bit gradients; float16 needs it, bfloat16 does not.
        device: the device for which times are estimated, as in `memory_plan`.
        plan: the plan to run, as from `MemoryPlan.from_json`, instead of a new one. The judge checks it
        first; PlanError if it is not sound, or made for another step: then it names the first difference.
        offload: within a budget, arrays that backward needs may wait in host memory: "auto", or at most so
        many bytes. On mx.cpu() that is a simulation, and saves nothing.
        streams: streams of kernels that a GPU may run in parallel, where the plan leaves them unordered.
        ranks: processes of the job, over which an update inside the step then sums its gradients: their
        number, or a `mx.memplan.Ranks`, which also says what joins them, and what they share.
        records: a file of measured schedules, as `mxlite tune` writes them: its kernels run in place of the
        default ones. Without it that of MXLITE_RECORDS, if there is one.
        group2ctx: the device of each group of nodes (`mx.AttrScope(ctx_group="a")`). Nodes without a group
        are where the first of their inputs is, arrays without one on `ctx`. Each device has a plan of its
        own, which fits in `memory_budget`; `devices` of the executor shows them.
        stype_dict: as scripts for MXNet have it, if all is dense.
        """
        if stype_dict is not None:
            all_dense(stype_dict)
        if shared_buffer:
            raise MXLiteError("shared_buffer is not supported: a program has arrays of its own.")
        from ..executor import BindRequest, simple_bind
        from ..memplan import Ranks

        request = BindRequest(
            self.graph,
            ctx,
            kwargs,
            grad_req=grad_req,
            type_dict=type_dict,
            memory_budget=memory_budget,
            optimizer=optimizer,
            amp=amp,
            loss_scale=loss_scale,
            device=device,
            offload=offload,
            streams=streams,
            ranks=Ranks.of(ranks),
            records=records,
            group2ctx=group2ctx,
        )
        return simple_bind(request, shared_exec=shared_exec, plan=plan)

    def bind(
        self,
        ctx: Context | None,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: Mapping[str, Context] | None = None,
        shared_exec: Executor | None = None,
        memory_budget: int | str | None = None,
        optimizer: Any = None,
        amp: Any = None,
        loss_scale: float | None = None,
        device: Device | str | None = None,
        plan: MemoryPlan | None = None,
        offload: Offload = None,
        streams: int = 1,
        ranks: Ranks | int = 1,
        records: str | Records | None = None,
    ) -> Executor:
        """An executor on the arrays given: lists in the order of `list_arguments`, or dicts.

        Arguments without an array in `args_grad` get no gradient. `memory_budget`, `optimizer`, `amp`,
        `loss_scale`, `device`, `plan`, `offload`, `streams`, `ranks` and `group2ctx` are as in `simple_bind`;
        arrays may lie on any of the devices.
        """
        from ..executor import bind, BindRequest
        from ..memplan import Ranks

        request = BindRequest(
            self.graph,
            ctx,
            {},
            grad_req=grad_req,
            memory_budget=memory_budget,
            optimizer=optimizer,
            amp=amp,
            loss_scale=loss_scale,
            device=device,
            offload=offload,
            streams=streams,
            ranks=Ranks.of(ranks),
            records=records,
            group2ctx=group2ctx,
        )
        arrays = dict(args_grad=args_grad, aux_states=aux_states)
        return bind(request, args, **arrays, shared_exec=shared_exec, plan=plan)

    def eval(self, ctx: Context | None = None, **kwargs: Any) -> list[Any]:
        """The outputs for arrays given by name; for looking at values, as it binds anew each time."""
        states = {k: kwargs[k] for k in self.list_auxiliary_states() if k in kwargs}
        args = {k: v for k, v in kwargs.items() if k not in states}
        executor = self.bind(ctx, args, grad_req="null", aux_states=states)
        outputs: list[Any] = executor.forward()
        return outputs
