"""Function: a user's operation whose forward and backward are written with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Context, DTypeError, MXLiteError, ShapeError, StateError
from ...core.errors import ArgumentError, MissingMethodError
from ...graph.opdef import DType
from ..memory.storage import form_of, Shape, Storage
from ..memory.transfer import push_fill
from .differentiate import scope
from .host import note_python
from .tape import MODE, origin_of


class Function:
    """Override `forward(*inputs)` and `backward(*output_gradients)`; then `MyFunction()(x, y)`.

        class scaled_tanh(mx.autograd.Function):
            def forward(self, x):
                y = mx.nd.tanh(x)
                self.save_for_backward(y)
                return y

            def backward(self, dy):
                (y,) = self.saved_tensors
                return dy * (1 - y * y)

    Both return one array or a tuple: forward the outputs, backward a gradient for each input, None for one
    that has none; it is converted to the input's dtype and device. `forward` is not recorded. An object
    serves one call and may hold its state.
    """

    def __init__(self) -> None:
        self._used = False
        self._saved: tuple[Any, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._inputs: tuple[tuple[Shape, DType, Context] | None, ...] = ()

    def forward(self, *inputs: Any) -> Any:
        """The outputs."""
        raise MissingMethodError(f"{type(self).__name__} has no forward.")

    def backward(self, *output_grads: Any) -> Any:
        """The gradient of each input."""
        raise MissingMethodError(f"{type(self).__name__} has no backward.")

    def save_for_backward(self, *arrays: Any) -> None:
        """Keep arrays until backward. Writing to one of them before that is an error there."""
        self._saved = arrays
        self._versions = tuple(a.var.pushes for a in arrays)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The arrays that `save_for_backward` has kept."""
        return self._saved

    def __call__(self, *inputs: Any) -> Any:
        if self.__dict__.get("_used", False):
            raise StateError(f"a {type(self).__name__} object serves one call; make another one.")
        if "_used" not in self.__dict__:  # a subclass without super().__init__()
            Function.__init__(self)
        self._used = True
        with scope(recording=False):
            outputs = self.forward(*inputs)
        outs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        for i, out in enumerate(outs):
            if not isinstance(out, Storage):
                raise ArgumentError(
                    f"{type(self).__name__}.forward must return NDArrays, got {type(out).__name__}."
                )
            if out.origin is not None or any(out is x for x in inputs):
                outs[i] = out.alias(out.storage)
        arrays = [x for x in inputs if isinstance(x, Storage)]
        origins = [origin_of(x) for x in arrays]
        if MODE.recording and any(o is not None for o in origins):
            self._inputs = tuple((*form_of(x), x.context) if isinstance(x, Storage) else None for x in inputs)
            note_python(type(self).__name__, self, origins, arrays, outs)
        return tuple(outs) if isinstance(outputs, (tuple, list)) else outs[0]

    def differentiate(self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]) -> list[Any]:
        """Call `backward` and check its result; for the backward pass."""
        name = type(self).__name__
        if any(a.var.pushes != v for a, v in zip(self._saved, self._versions)):
            raise StateError(f"an array that {name} saved for backward was written after that.")
        gradients = self.backward(*heads)
        grads = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        if len(grads) != len(self._inputs):
            raise MXLiteError(
                f"{name}.backward must return a gradient for each of {len(self._inputs)} inputs, "
                f"got {len(grads)}."
            )
        result: list[Any] = []
        for kind, grad in zip(self._inputs, grads):
            if kind is None:
                continue
            if not wanted[len(result)]:
                result.append(None)
            elif grad is None:
                result.append(heads[0].fresh(*kind))
                push_fill(result[-1], 0, name="full")
            else:
                result.append(self._checked(grad, kind))
        return result

    def _checked(self, grad: Any, kind: tuple[Shape, DType, Context]) -> Any:
        """A gradient from `backward`, converted to an input's kind."""
        shape, dtype, context = kind
        name = type(self).__name__
        if not isinstance(grad, Storage):
            raise DTypeError(f"{name}.backward must return NDArrays, got {type(grad).__name__}.")
        if grad.storage.shape != shape:
            raise ShapeError(
                f"{name}.backward returned a gradient of shape {grad.storage.shape} for an input of "
                f"shape {shape}."
            )
        return grad.as_in_context(context).astype(dtype, copy=False)  # type: ignore[attr-defined]
