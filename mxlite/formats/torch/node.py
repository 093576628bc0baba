"""One node of an exported program as a converter sees it: arguments by the names of the operator's schema."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import FormatError
from ..building import Builder, GraphValue, NotSupportedError
from .stored import StoredTensor
from .tensor import numpy_dtype

Found = Any
"""A value in a program: GraphValue, StoredTensor, a Python number, a list or tuple of these, or None."""


_WITHOUT_NUMBERS = frozenset(
    "dtype layout device pin_memory memory_format non_blocking copy generator implicit sparse "
    "cudnn_enabled cudnn_enable".split()
)
"""Arguments that change no number of a result; its type is checked by itself."""

_SHAPES = frozenset(
    "size sizes shape split_size split_sizes chunks sections indices_or_sections "
    "tensor_indices_or_sections output_size steps start_dim end_dim".split()
)
"""Arguments that say no more than the shape of the result, where a converter reads that."""


class TorchNode:
    """`n["weight"]` is that tensor, `n.get("bias")` the same or None, `n.plain("stride")` as it is.

    It remembers which arguments the converter reads: `unread` are the others.
    """

    def __init__(
        self, node: Any, arguments: dict[str, Found], builder: Builder, defaults: frozenset[str] = frozenset()
    ) -> None:
        self.node = node
        self.target = str(node.target)
        self.builder = builder
        self._arguments = arguments
        self._read = set(defaults | _WITHOUT_NUMBERS)

    def plain(self, name: str, default: Any = None) -> Any:
        """An argument that is no tensor: a number, a list of numbers, a text; `default` for None."""
        self._read.add(name)
        value = self._arguments.get(name)
        return default if value is None else value

    def get(self, name: str) -> GraphValue | None:
        """The tensor, a Python number as a constant, None where it is left out."""
        value = self.plain(name)
        return None if value is None else self.value(value)

    def ignore(self, *names: str) -> None:
        """Arguments which the converter knows to change nothing."""
        self._read.update(names)

    def unread(self) -> dict[str, Found]:
        """Arguments with a value other than the default that the converter has not read."""
        return {n: v for n, v in self._arguments.items() if n not in self._read and v is not None}

    def __getitem__(self, name: str) -> GraphValue:
        value = self.get(name)
        if value is None:
            raise FormatError(f"needs {name!r}.")
        return value

    def value(self, found: Found) -> GraphValue:
        """A tensor that was found; a buffer is a constant."""
        if isinstance(found, StoredTensor):
            return found.constant(self.builder)
        if isinstance(found, (bool, int, float)):
            return self.builder.constant(np.asarray(found, self.dtype if self.has_dtype else None))
        if not isinstance(found, GraphValue):
            raise NotSupportedError(f"a value of type {type(found).__name__} where a tensor is read")
        return found

    def values(self, name: str) -> list[GraphValue]:
        """A list of tensors."""
        return [self.value(v) for v in self.plain(name, ())]

    def state(self, name: str) -> GraphValue | None:
        """A buffer as a variable, to be an auxiliary state."""
        found = self.plain(name)
        return found.variable(self.builder) if isinstance(found, StoredTensor) else None

    # -- what the program says of the result --------------------------------------------------------

    @property
    def results(self) -> Any:
        """PyTorch's own description of the result: a tensor without numbers, or a tuple of these."""
        self._read |= _SHAPES
        return self._said

    @property
    def _said(self) -> Any:
        return self.node.meta.get("val")

    def is_read(self, index: int) -> bool:
        """True if a node reads this one of several results."""
        return any(user.args[1] == index and user.users for user in self.node.users)

    @property
    def has_dtype(self) -> bool:
        """True if there is one result, and it is a tensor."""
        return hasattr(self._said, "dtype")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the only result."""
        return static_shape(self.results)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the only result."""
        return numpy_dtype(self._said.dtype, "the result")


def static_shape(tensor: Any) -> tuple[int, ...]:
    """The lengths of a tensor. Raises NotSupportedError where one depends on the numbers in a tensor."""
    if not all(isinstance(d, int) for d in tensor.shape):
        raise NotSupportedError(f"the shape {tuple(tensor.shape)} depends on the numbers in a tensor")
    return tuple(int(d) for d in tensor.shape)
