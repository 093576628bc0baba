"""HybridBlock: a block that works with arrays and with symbols, and so can run as a bound program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ndarray as nd, symbol as sym
from ...core import Context, DeferredInitializationError
from ...core.errors import ArgumentError, MissingMethodError, OpAttributeError, RangeError
from ...core.wanted import wanted_function
from ...ndarray import NDArray
from ...symbol import autograd, Symbol
from ..parameters.parameter import Parameter
from .block import Block
from .bound_call import BoundCalls
from .call_errors import explained, NAMED
from .nested import flat, Form
from .op_hook import OpHook
from .trace import Trace, traced

_MXNETS = ("static_alloc", "static_shape", "inline_limit", "forward_bulk_size", "backward_bulk_size")
"""Options of MXNet's `hybridize` that are accepted: a bound program has what they ask for."""
_OPTIONS = ("memory_budget", "amp", "device", "offload", "streams", "records")
"""Options of `Symbol.bind` that `hybridize` takes."""


class HybridBlock(Block):
    """Base of blocks that can become bound programs: override `hybrid_forward(F, x, *args, **params)`.

        class Scaled(gluon.HybridBlock):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.scale = self.params.get("scale", shape=(1,), init="ones")

            def hybrid_forward(self, F, x, scale):
                return F.broadcast_mul(x, scale)

    `F` is mx.nd, or mx.sym while the block is traced; the parameters arrive under the names of the
    attributes. All children are hybrid blocks.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        self._active = False
        self._options: dict[str, Any] = {}
        self._traces: dict[Any, Trace] = {}
        self._form: tuple[Form, int] | None = None  # of the inputs of the last call
        self._calls: BoundCalls | None = None
        self._computed: bool | None = None
        self._hook: OpHook | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, (Block, Parameter)):
            self._forget()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block`, which must be a hybrid block, a child."""
        if not isinstance(block, HybridBlock):
            raise ArgumentError(
                f"Children of the hybrid block {self.name!r} must be hybrid blocks, but {block.name!r} is a "
                f"{type(block).__name__}. Sequential takes any block, where HybridSequential does not."
            )
        super().register_child(block, name)
        self._forget()

    def _forget(self) -> None:
        """Forget traces and bound programs, after a change of the network."""
        self._traces = {}
        self._calls = None
        self._computed = None

    # -- as a symbol ---------------------------------------------------------------------------

    def _trace(self, form: Form, count: int) -> Trace:
        """The block as a symbol, for so many inputs that are nested as `form` says."""
        found = self._traces.get((form, count))
        if found is None:
            found = self._traces[form, count] = traced(self, form, count)
        return found

    @property
    def _last_trace(self) -> Trace | None:
        """The symbol for inputs as in the last call on arrays; None before one."""
        return None if self._form is None else self._trace(*self._form)

    def infer_shape(self, *args: Any) -> None:
        """Find the shapes of parameters that are not known from those of the inputs."""
        inputs, form = flat(args)
        found = self._trace(form, len(inputs))
        parameters = self.collect_params()
        shapes = {n: tuple(a.shape) for n, a in zip(found.inputs, inputs)}
        arguments, _, states = found.symbol.infer_shape_partial(**shapes)
        names = [*found.symbol.list_arguments(), *found.symbol.list_auxiliary_states()]
        for name, shape in zip(names, [*(arguments or ()), *(states or ())]):
            if name in parameters and shape:
                parameters[name].shape = shape

    def infer_type(self, *args: Any) -> None:
        """Give the parameters the types that follow from those of the inputs."""
        inputs, form = flat(args)
        found = self._trace(form, len(inputs))
        parameters = self.collect_params()
        types = {n: a.dtype for n, a in zip(found.inputs, inputs)}
        arguments, _, states = found.symbol.infer_type(**types)
        names = [*found.symbol.list_arguments(), *found.symbol.list_auxiliary_states()]
        for name, dtype in zip(names, [*(arguments or ()), *(states or ())]):
            if name in parameters:
                parameters[name].dtype = dtype

    def _finish(self, args: tuple[Any, ...]) -> None:
        """Initialize the parameters that have waited for a forward pass with these arguments."""
        if all(isinstance(value, NDArray) for value in flat(args)[0]):
            self.infer_shape(*args)
        if any(p.is_deferred and not p.is_known for p in self.collect_params().values()):
            self._run_once(args)  # shapes that do not follow from the symbol, as a recurrent layer's
        for parameter in self.collect_params().values():
            parameter.finish()

    def _run_once(self, args: tuple[Any, ...]) -> None:
        """Run call by call, without any effect but that each block below finds its own shapes."""
        active = [b for b in self._below() if isinstance(b, HybridBlock) and b._active]
        for block in active:
            block._active = False
        try:
            with autograd.pause():
                own = self._values(_tensors(flat(args)[0])[0].context)
                self.hybrid_forward(nd, *args, **own)
        finally:
            for block in active:
                block._active = True

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write `path-symbol.json` and `path-0000.params`, which `SymbolBlock.imports` and Module load.

        StateError before the first forward pass, which tells the number of inputs. Returns the two names.
        """
        from .export import exported

        return exported(self, path, epoch)

    # -- running -------------------------------------------------------------------------------

    def hybridize(
        self,
        active: bool = True,
        backend: Any = None,
        clear: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Run as a bound program from the next call on: one for each form of the inputs, planned at the
        first.

        memory_budget: bytes, or text such as "1GiB", that a program with its parameters and gradients must
        fit in: then the plan recomputes what it has no room to keep, with bitwise the same results.
        MemoryBudgetError, at the first call, names the least budget that will do. amp, device, offload,
        streams, records: as in `Symbol.simple_bind`. MXNet's own options are accepted: a program has fixed
        arrays and shapes anyway. `active=False` returns to calls one by one.
        """
        if backend is not None:
            raise OpAttributeError(
                f"hybridize: there are no backends such as {backend!r}; passes choose kernels."
            )
        if unknown := [k for k in kwargs if k not in _OPTIONS]:
            raise OpAttributeError(
                f"hybridize has no option {unknown[0]!r}: it takes {', '.join(_OPTIONS)}, and MXNet's "
                f"{', '.join(_MXNETS)}."
            )
        self._active = bool(active)
        self._options = kwargs if active else {}
        self._forget()
        super().hybridize(active, **kwargs)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Call `callback(name, operator, array)` for what each operator of its programs computes, as
        `fc1_output` of `FullyConnected`; with `monitor_all` also for what it reads (`fc1_weight`).

        The array is an NDArray that holds the result until the next pass. Programs are planned anew, keep all
        these results, and run forward and backward apart from the trainer's step. It is the same for the
        hybrid blocks below, where those are called by themselves.
        """
        wanted_function("register_op_hook: callback", callback)
        for block in self._below():
            if isinstance(block, HybridBlock):
                block._hook = OpHook(callback, bool(monitor_all))
                block._calls = None

    def optimize_for(self, x: Any, *args: Any, backend: Any = None, **kwargs: Any) -> None:
        """`hybridize`, and one forward pass."""
        kwargs.pop("clear", None)
        self.hybridize(True, backend, **kwargs)
        self(x, *args)

    def cast(self, dtype: Any) -> None:
        """Convert all parameters to another type."""
        super().cast(dtype)
        self._forget()

    @property
    def memory_plan(self) -> Any:
        """The memory plan of the bound program that ran last. StateError if none has run."""
        return self._programs.last.executor.memory_plan

    @property
    def executor(self) -> Any:
        """The executor of the bound program that ran last. StateError if none has run."""
        return self._programs.last.executor

    @property
    def _programs(self) -> BoundCalls:
        if self._calls is None:
            self._calls = BoundCalls(self, self._options, self._hook)
        return self._calls

    def forward(self, *args: Any) -> Any:
        """The outputs: of symbols a symbol, of arrays arrays, from the bound program if it is hybridized.

        Besides, a block that is not hybridized takes anything that its `hybrid_forward` does. RangeError for
        inputs of other kinds, as it is a ValueError in MXNet.
        """
        inputs, form = flat(args)
        tensors = _tensors(inputs)
        if not tensors:
            wrong = f"takes NDArrays or Symbols, got {type(inputs[0]).__name__}" if inputs else ""
            raise RangeError(f"{type(self).__name__} {self.name!r} {wrong or 'was called without an array'}.")
        if len({isinstance(value, Symbol) for value in tensors}) > 1:
            raise RangeError(
                f"{type(self).__name__} {self.name!r} takes all arrays or all symbols, got both."
            )
        if isinstance(tensors[0], Symbol):
            return self.composed(*args)
        if len(tensors) == len(inputs):
            self._form = form, len(inputs)
        if self._active and BoundCalls.serves() and not self._is_computed:
            if len(tensors) < len(inputs):
                other = next(v for v in inputs if not isinstance(v, NDArray))
                raise RangeError(
                    f"{type(self).__name__} {self.name!r} is hybridized, so it takes NDArrays or Symbols, "
                    f"got {type(other).__name__}. Without hybridize() it takes whatever hybrid_forward does."
                )
            devices = {v.context for v in inputs if v.context.device_type != "cpu_pinned"}
            if len(devices) > 1:
                raise RangeError(
                    f"{type(self).__name__} {self.name!r} is hybridized, and its inputs are on several "
                    f"devices, {' and '.join(sorted(map(str, devices)))}: as_in_context() brings them to one."
                )
            try:
                return self._programs(inputs, form)
            except DeferredInitializationError:
                self._finish(args)
                return self._programs(inputs, form)
        context = tensors[0].context
        try:
            parameters = self._values(context)
        except DeferredInitializationError:
            self._finish(args)
            parameters = self._values(context)
        try:
            return self.hybrid_forward(nd, *args, **parameters)
        except NAMED as error:
            told = explained(self, error, args, tensors)
            if told is error:
                raise
            raise told from error

    @property
    def _is_computed(self) -> bool:
        """True if some parameter's array is made anew at each call, and so is no array of a program."""
        if self._computed is None:
            self._computed = any(p.is_computed for p in self.collect_params().values())
        return self._computed

    def composed(self, *args: Any) -> Any:
        """The outputs for symbols: what `hybrid_forward` makes of them, whatever a subclass's `forward` does
        before.
        """
        with self.name_scope():
            variables = {n: p.var() for n, p in self._reg_params.items()}
            try:
                return self.hybrid_forward(sym, *args, **variables)
            except TypeError as error:
                told = explained(self, error, args, ())
                if told is error:
                    raise
                raise told from error

    def _values(self, context: Context) -> dict[str, NDArray]:
        return {n: p.data(context) for n, p in self._reg_params.items()}

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs for inputs and parameters that are all arrays or all symbols; `F` is mx.nd or
        mx.sym.
        """
        raise MissingMethodError(f"{type(self).__name__} has no hybrid_forward.")


def _tensors(values: Sequence[Any]) -> list[Any]:
    """The arrays and symbols among these."""
    return [value for value in values if isinstance(value, (NDArray, Symbol))]
