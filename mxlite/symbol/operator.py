"""mx.operator: operators in Python (`operators/custom.py`), `mx.sym.Custom`, and the older NumpyOp."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from ..ndarray import NDArray
from ..ndarray.operators.custom import (
    CustomOp as CustomOp,
    CustomOpProp as CustomOpProp,
    PropAdapter,
    register as register,
)
from ..ops import find_op, TABLE
from ..ops.control.custom import custom_operator, REGISTRY
from .functions import apply, arguments_of
from .symbol import Symbol


def Custom(*args: Symbol, op_type: str, **kwargs: Any) -> Symbol:
    """The operator registered as `op_type`; inputs that are not given become variables NODE_INPUT.

    Parameters other than `name` and `attr` go to its CustomOpProp, as text.
    """
    given = {k: v for k, v in kwargs.items() if k not in ("name", "attr") and not isinstance(v, Symbol)}
    op = custom_operator({"op_type": op_type, **given})
    named = {k: v for k, v in kwargs.items() if k not in given}
    return apply(op, "custom", args, {**named, "op_type": op_type, **dict(op.parameters)})


class OperatorArguments(NamedTuple):
    """Inputs and parameters of an operator: their number, names and types."""

    narg: int
    names: list[str]
    types: list[str]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, those of aliases included."""
    return sorted(TABLE)


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """The inputs, then the parameters, of an operator. UnknownNameError for a name that none has."""
    told = arguments_of(find_op(op_name))
    return OperatorArguments(len(told), list(told), list(told.values()))


class PythonOp:
    """An operator of the kind before CustomOp: one object is declaration and computation, and makes symbols.

        class Softmax(mx.operator.NumpyOp):
            def __init__(self):
                super().__init__(need_top_grad=False)
            def forward(self, in_data, out_data): ...
            def backward(self, out_grad, in_data, out_data, in_grad): ...
        net = Softmax()(data=fc, name="softmax")

    A symbol with such a node cannot be loaded by another process, which does not have the object.
    """

    _numbers = count()

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad
        self._name = f"_python_op{next(PythonOp._numbers)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Symbol:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Symbol:
        """A symbol that computes with this object."""
        REGISTRY.setdefault(self._name, PropAdapter(self._name, lambda: _OldProp(self)))
        return Custom(*args, op_type=self._name, **kwargs)

    def forward(self, in_data: list[Any], out_data: list[Any]) -> None:
        """Write every output in place; the default copies the first input."""
        out_data[0][:] = in_data[0]

    def backward(
        self, out_grad: list[Any], in_data: list[Any], out_data: list[Any], in_grad: list[Any]
    ) -> None:
        """Write every gradient in place; the default says 1."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        """(shapes of inputs, of outputs); the default: one output as the first input."""
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def need_top_grad(self) -> bool:
        """True if backward reads the gradients of the outputs."""
        return self.need_top_grad_

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        """See CustomOpProp.declare_backward_dependency."""
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]

    _view: Callable[[NDArray], Any] = staticmethod(lambda a: a)


class NDArrayOp(PythonOp):
    """A PythonOp whose methods get NDArrays."""


class NumpyOp(PythonOp):
    """A PythonOp whose methods get numpy arrays, the memory of the call itself."""

    _view = staticmethod(lambda a: a.storage)


class _OldProp(CustomOpProp):
    """A PythonOp as a CustomOpProp."""

    def __init__(self, op: PythonOp) -> None:
        super().__init__(op.need_top_grad())
        self.op = op

    def list_arguments(self) -> list[str]:
        return self.op.list_arguments()

    def list_outputs(self) -> list[str]:
        return self.op.list_outputs()

    def infer_shape(self, in_shape: list[list[int]]) -> Any:
        return self.op.infer_shape(in_shape)

    def declare_backward_dependency(
        self, out_grad: list[int], in_data: list[int], out_data: list[int]
    ) -> list[int]:
        return self.op.declare_backward_dependency(out_grad, in_data, out_data)

    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> CustomOp:
        return _OldOperator(self.op)


class _OldOperator(CustomOp):
    def __init__(self, op: PythonOp) -> None:
        self.op = op

    def _views(self, arrays: list[Any]) -> list[Any]:
        return [None if a is None else self.op._view(a) for a in arrays]

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.op.forward(in_data=self._views(in_data), out_data=self._views(out_data))

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        self.op.backward(
            out_grad=self._views(out_grad),
            in_data=self._views(in_data),
            out_data=self._views(out_data),
            in_grad=self._views(in_grad),
        )
