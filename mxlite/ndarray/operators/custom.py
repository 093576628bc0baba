"""mx.operator: operators in Python, `CustomOp` and `CustomOpProp`, and `mx.nd.Custom` that calls them.

A CustomOpProp declares the operator, a CustomOp computes. Its methods run inside an operation of the
engine, on a worker thread; the arrays they get are NDArrays around the memory of the call, to be used while
it lasts. Their own calls on arrays run at once on the same thread (`engine.inline_engine`) and are not
recorded. They compute on the host: for an operator on a GPU the arrays are copied there and back.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...core import as_dtype, Context, cpu, DefinitionError, OperatorError
from ...core.errors import MissingMethodError, RangeError
from ...engine import inline_engine
from ...graph.opdef import DType
from ...ops.control.custom import custom_operator, Description, KernelCall, Parameters, REGISTRY
from ..gradients.differentiate import scope
from ..gradients.tape import MODE
from ..memory.storage import Storage
from ..ndarray import NDArray
from .functions import function_of

_PACKAGE = str(Path(__file__).resolve().parents[2])


class CustomOp:
    """The computation. One object serves one node: `backward` sees the attributes that `forward` has set."""

    def forward(
        self,
        is_train: bool,
        req: list[str],
        in_data: list[NDArray],
        out_data: list[NDArray],
        aux: list[NDArray],
    ) -> None:
        """Write every output; `self.assign` does what `req` says."""
        raise MissingMethodError(f"{type(self).__name__} has no forward.")

    def backward(
        self,
        req: list[str],
        out_grad: list[NDArray],
        in_data: list[NDArray],
        out_data: list[NDArray],
        in_grad: list[NDArray],
        aux: list[NDArray],
    ) -> None:
        """Write the gradient of every argument; one that is not written is 0, as losses leave a label's.

        An array that was not declared as a dependency is None.
        """
        raise MissingMethodError(f"{type(self).__name__} has no backward.")

    def assign(self, dst: NDArray, req: str, src: Any) -> None:
        """Write `src` to `dst` as `req` says: 'null' not at all, 'add' on top of it, 'write' and 'inplace'
        over it."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] = dst + (src if isinstance(src, NDArray) else NDArray(np.array(src, dst.dtype, order="C")))
        elif req != "null":
            raise RangeError(f"req is 'null', 'write', 'inplace' or 'add', got {req!r}.")


class CustomOpProp:
    """The declaration. Parameters of the call arrive in `__init__` as text.

    need_top_grad: False for a loss, whose backward needs no gradient of its outputs.
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the arrays that `forward` may change."""
        return []

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """(shapes of arguments, of outputs[, of states]); the default says that all outputs are as the first
        argument. An argument whose shape is not known comes as []."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """(types of arguments, of outputs[, of states]); the default: all are as the first argument."""
        return (
            in_type,
            [in_type[0]] * len(self.list_outputs()),
            [in_type[0]] * len(self.list_auxiliary_states()),
        )

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """The numbers, of these, of the arrays that `backward` reads: all others need not be kept for it."""
        return [*(out_grad if self.need_top_grad_ else ()), *in_data, *out_data]

    def create_operator(self, ctx: Context, in_shapes: list[list[int]], in_dtypes: list[Any]) -> CustomOp:
        """The computation for arguments of these shapes and types."""
        return CustomOp()


def register(reg_name: str) -> Callable[[type[CustomOpProp]], type[CustomOpProp]]:
    """Class decorator: `@mx.operator.register("my_softmax")` makes `op_type="my_softmax"` mean this class."""

    def decorate(prop: type[CustomOpProp]) -> type[CustomOpProp]:
        if not (isinstance(prop, type) and issubclass(prop, CustomOpProp)):
            raise DefinitionError(f"register({reg_name!r}) takes a subclass of CustomOpProp, got {prop!r}.")
        REGISTRY[reg_name] = PropAdapter(reg_name, prop)
        return prop

    return decorate


def Custom(*args: Any, op_type: str, out: Any = None, name: Any = None, **kwargs: Any) -> Any:
    """Call the operator registered as `op_type` on arrays; parameters go by keyword, and arrive as text."""
    given = {k: v for k, v in kwargs.items() if not isinstance(v, Storage)}
    op: Any = custom_operator({"op_type": op_type, **given})
    texts = {"op_type": op_type, **dict(op.parameters)}
    arrays = {k: v for k, v in kwargs.items() if isinstance(v, Storage)}
    return _function(op)(*args, out=out, **arrays, **texts)


@functools.lru_cache(maxsize=1024)
def _function(op: Any) -> Callable[..., Any]:
    return function_of(op, "Custom")


class PropAdapter:
    """A CustomOpProp class in the form that `ops.custom` expects."""

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name = name
        self.make = make

    def prop(self, parameters: Parameters) -> Any:
        """A new property object."""
        try:
            return self.make(**dict(parameters))
        except TypeError as error:
            raise DefinitionError(
                f"Custom {self.name!r} does not take {dict(parameters)}: {error}"
            ) from error

    def describe(self, parameters: Parameters) -> Description:
        """Names of arrays, and the arrays that backward reads."""
        prop = self.prop(parameters)
        arguments, outputs = tuple(prop.list_arguments()), tuple(prop.list_outputs())
        states = tuple(prop.list_auxiliary_states() or ())
        groups = [f"d_{o}" for o in outputs], [*arguments], [*outputs]
        names = [n for group in groups for n in group]
        numbers = iter(range(len(names)))
        wanted = set(prop.declare_backward_dependency(*([next(numbers) for _ in g] for g in groups)))
        reads = tuple(n for i, n in enumerate(names) if i in wanted)
        return Description(arguments, outputs, states, reads, any(f"d_{o}" in reads for o in outputs))

    def infer_shape(self, parameters: Parameters, shapes: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Shapes of arguments, outputs and states."""
        return self._three(self.prop(parameters).infer_shape([list(s) for s in shapes]))

    def infer_type(self, parameters: Parameters, dtypes: Sequence[DType]) -> tuple[Any, Any, Any]:
        """Types of arguments, outputs and states."""
        ins, outs, states = self._three(self.prop(parameters).infer_type([d.type for d in dtypes]))
        return [as_dtype(d) for d in ins], [as_dtype(d) for d in outs], [as_dtype(d) for d in states]

    def _three(self, found: Any) -> tuple[Any, Any, Any]:
        ins, outs, *rest = found
        return ins, outs, rest[0] if rest else []

    def forward(self, call: KernelCall) -> None:
        """Run the user's forward on the arrays of a call."""
        with _user_code(call, "forward", self.name):
            kinds = self._kinds(call)
            outs = [self._wrap(a, k) for a, k in zip(call.outputs, kinds[1])]
            req = ["null" if a is None else "write" for a in call.outputs]
            _mark_unwritten(call.outputs)
            self._operator(call).forward(
                is_train=call.train,
                req=req,
                in_data=[_around(a) for a in call.arguments],
                out_data=outs,
                aux=[_around(a) for a in call.states],
            )
        for name, array in zip(self.describe(call.parameters).outputs, call.outputs):
            if _is_unwritten(array):
                raise OperatorError(
                    f"{call.name}.forward returned without writing its output {name!r} of shape "
                    f"{array.shape}, which would hold what others left there. "
                    f"self.assign(out_data[i], req[i], value) writes it.",
                    operation=f"{call.name}.forward",
                )

    def backward(self, call: KernelCall) -> None:
        """Run the user's backward; a head gradient that has not arrived is 0."""
        with _user_code(call, "backward", f"_backward_{self.name}"):
            kinds = self._kinds(call)
            heads = [_around(a) for a in call.d_outputs]
            for i, (n, head) in enumerate(zip(self.describe(call.parameters).outputs, heads)):
                if head is None and f"d_{n}" in self.describe(call.parameters).reads:
                    shape, dtype = kinds[1][i]
                    heads[i] = NDArray(np.zeros(shape, dtype))  # no gradient has arrived: it is 0
            grads = [self._wrap(a, k) for a, k in zip(call.d_arguments, kinds[0])]
            _mark_unwritten(call.d_arguments)
            self._operator(call).backward(
                req=["null" if a is None else "write" for a in call.d_arguments],
                out_grad=heads,
                in_data=[_around(a) for a in call.arguments],
                out_data=[_around(a) for a in call.outputs],
                in_grad=grads,
                aux=[_around(a) for a in call.states],
            )
            for array in call.d_arguments:
                if _is_unwritten(array):
                    array.fill(0)

    def _operator(self, call: KernelCall) -> Any:
        """The node's CustomOp, made at its first call."""
        operator = call.state.get("operator")
        if operator is None:
            prop = self.prop(call.parameters)
            shapes = [list(s) for s in call.shapes[0][: len(call.arguments)]]
            dtypes = [d.type for _, d in self._kinds(call)[0]]
            prop.infer_shape([list(s) for s in shapes])  # some props store shapes here for their operator
            operator = call.state["operator"] = prop.create_operator(cpu(), shapes, dtypes)
        return operator

    def _kinds(self, call: KernelCall) -> tuple[list[Any], list[Any]]:
        """Shapes and dtypes of arguments and outputs; kept from forward, which has all arguments."""
        kinds: Any = call.state.get("kinds")
        if kinds is None:
            arrays = (*call.arguments, *call.outputs, *call.d_outputs, *call.d_arguments)
            first = next(a.dtype for a in arrays if a is not None)
            dtypes = [first if a is None else a.dtype for a in call.arguments]
            _, outs, _ = self.infer_type(call.parameters, dtypes)
            kinds = list(zip(call.shapes[0], dtypes)), list(zip(call.shapes[1], outs))
            call.state["kinds"] = kinds
        return kinds

    def _wrap(self, array: Any, kind: tuple[Any, DType]) -> NDArray:
        """An NDArray around an array; an unused output is scratch, so that code may still write to it."""
        return NDArray(np.empty(*kind) if array is None else array)


_UNWRITTEN = 0xA5FF  # in the first, the middle and the last two bytes of an array


def _ends(array: Any) -> Any:
    """(the array as pairs of bytes, the indices of marked ones); None if it has none."""
    if array is None or not array.size or array.dtype.itemsize < 2 or not array.flags.c_contiguous:
        return None
    pieces = array.reshape(-1).view(np.uint16)
    return pieces, (0, pieces.size // 2, -1)


def _mark_unwritten(arrays: Sequence[Any]) -> None:
    """Write a mark at three places of each array, which the user's code is unlikely to write itself."""
    for ends in map(_ends, arrays):
        if ends is not None:
            ends[0][list(ends[1])] = _UNWRITTEN


def _is_unwritten(array: Any) -> bool:
    """True if all marks are still there."""
    ends = _ends(array)
    return ends is not None and all(ends[0][i] == _UNWRITTEN for i in ends[1])


def _around(array: Any) -> Any:
    return None if array is None else NDArray(array)


@contextmanager
def _user_code(call: KernelCall, method: str, watched: str) -> Iterator[None]:
    """A context for the user's code inside an operation: its exceptions name operator and line.

    `watched` is its name in a profile.
    """
    name = f"{call.name}.{method}"
    captured = MODE.capture(None)
    try:
        with scope(recording=False, training=call.train), inline_engine(watched), cpu():
            yield
    except Exception as error:
        where = _user_line(error)
        text = f"{name} failed at {where} with {type(error).__name__}: {error}"
        raise OperatorError(text, operation=name, where=where) from error
    finally:
        MODE.capture(captured)


def _user_line(error: BaseException) -> str:
    """ "file:line" of the innermost frame outside mxlite."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown line"
