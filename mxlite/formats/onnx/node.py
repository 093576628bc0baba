"""One node of an ONNX graph as a converter sees it: attributes with their types checked, inputs as values."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, TYPE_CHECKING

import numpy as np

from ...core import FormatError
from ...core.errors import nearest
from ..building.errors import NotSupportedError
from ..building.value import GraphValue
from .package import onnx_package
from .sequence import SequenceValue

if TYPE_CHECKING:
    from ..building.builder import Builder
    from .graph_reader import GraphReader

# AttributeProto.AttributeType
_KINDS = {
    1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs",
}  # fmt: skip


Value = GraphValue | SequenceValue


def tensor(value: Value) -> GraphValue:
    """`value`, which must be a tensor."""
    if isinstance(value, SequenceValue):
        raise FormatError("a tensor was wanted, but a sequence was found.")
    return value


class OnnxNode:
    """`n[0]` is the first input (an error if absent), `n.get(0)` the same or None; attributes by kind.

    `version` is the opset of the node's domain: converters ask it where the standard changed its mind.
    """

    def __init__(
        self,
        proto: Any,
        inputs: list[Value | None],
        version: int,
        reader: GraphReader,
        attributes: dict[str, Any],
        scope: dict[str, Value | None],
        read: Set[str],
    ) -> None:
        self.proto = proto
        self.op = proto.op_type
        self.inputs = inputs
        self.version = version
        self.reader = reader
        self.builder: Builder = reader.builder
        self.attributes = attributes
        self.scope = scope  # the names that bodies of control flow see
        self._read = read
        self._asked: set[str | int] = set()  # attributes and places of inputs that the converter has seen

    # -- inputs ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.inputs)

    def value(self, place: int) -> Value | None:
        """The input at `place` of either kind, None if it is left out."""
        self._asked.add(place)
        return self.inputs[place] if place < len(self.inputs) else None

    def get(self, place: int) -> GraphValue | None:
        """The tensor at `place`, None if it is left out."""
        value = self.value(place)
        if isinstance(value, SequenceValue):
            raise FormatError(f"input {place + 1} must be a tensor, but it is a sequence.")
        return value

    def __getitem__(self, place: int) -> GraphValue:
        value = self.get(place)
        if value is None:
            raise self._missing(place)
        return value

    def sequence(self, place: int) -> SequenceValue:
        """The sequence at `place`."""
        value = self.value(place)
        if not isinstance(value, SequenceValue):
            raise FormatError(f"input {place + 1} must be a sequence.")
        return value

    def _missing(self, place: int) -> FormatError:
        return FormatError(f"needs {place + 1} inputs or more; number {place + 1} is missing.")

    def present(self) -> list[GraphValue]:
        """All inputs of a node that takes any number of them, one at least."""
        if not self.inputs:
            raise FormatError("needs one input or more.")
        return self.present_from(0)

    def present_from(self, place: int) -> list[GraphValue]:
        """The inputs from `place` on, none of which may be left out."""
        return [self[i] for i in range(place, len(self.inputs))]

    def values_from(self, place: int) -> list[Value]:
        """As `present_from`, sequences among them."""
        values = [self.value(i) for i in range(place, len(self.inputs))]
        if None in values:
            raise self._missing(place + values.index(None))
        return [v for v in values if v is not None]

    def wants(self, place: int) -> bool:
        """True if something reads the output at `place`."""
        return place < len(self.proto.output) and self.proto.output[place] in self._read

    def names_outputs(self, count: int) -> bool:
        """True if the node names more than `count` outputs, read or not: so old opsets tell of training."""
        return any(self.proto.output[count:])

    def array(self, place: int, what: str) -> np.ndarray:
        """The numbers of an input that must be known while importing."""
        return self.builder.numbers(self[place], f"input {what!r}")

    def known_ints(self, place: int, what: str) -> tuple[int, ...] | None:
        """`array` as whole numbers; None if the input is left out."""
        if self.get(place) is None:
            return None
        return tuple(int(v) for v in self.array(place, what).reshape(-1).tolist())

    def known_number(self, place: int, what: str, default: Any = None) -> Any:
        """The one number of an input that must be known while importing."""
        if self.get(place) is None:
            return default
        array = self.array(place, what)
        if array.size != 1:
            raise FormatError(f"input {what!r} must be one number, got shape {array.shape}.")
        return array.reshape(()).item()

    def axes(self, place: int, name: str = "axes") -> tuple[int, ...] | None:
        """Axes from the attribute of older opsets or the input of newer ones; None if in neither."""
        if self.has(name):
            return self.wholes(name)
        return self.known_ints(place, name)

    # -- attributes --------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return name in self.attributes

    def ignore(self, *names: str | int) -> None:
        """Attributes and places of inputs which the converter knows to change nothing."""
        self._asked.update(names)

    def unread(self) -> list[str]:
        """Attributes with a value other than the standard's default, and inputs, that were not read."""
        inputs = [i for i, v in enumerate(self.inputs) if v is not None and i not in self._asked]
        names = [n for n, p in self.attributes.items() if n not in self._asked and not self._is_default(p)]
        return [*names, *(f"input {i + 1}" for i in inputs)]

    def _is_default(self, proto: Any) -> bool:
        defs = onnx_package().defs
        try:
            known = defs.get_schema(self.op, self.version, self.proto.domain).attributes.get(proto.name)
        except defs.SchemaError:
            return False
        return known is not None and known.default_value == proto

    def _typed(self, name: str, kind: str, default: Any) -> Any:
        self._asked.add(name)
        proto = self.attributes.get(name)
        if proto is None:
            if default is ...:
                raise FormatError(f"needs the attribute {name!r}.{nearest(name, self.attributes)}")
            return default
        found = _KINDS.get(proto.type)
        if found != kind:
            raise FormatError(f"attribute {name!r} must be of kind {kind!r}, got {found!r}.")
        return getattr(proto, kind)

    def whole(self, name: str, default: Any = ...) -> Any:
        return self._typed(name, "i", default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, "i", default))

    def real(self, name: str, default: Any = ...) -> Any:
        return self._typed(name, "f", default)

    def text(self, name: str, default: Any = ...) -> Any:
        value = self._typed(name, "s", default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def texts(self, name: str, default: Any = ...) -> Any:
        value = self._typed(name, "strings", default)
        return [s.decode("utf-8", "replace") for s in value] if name in self.attributes else value

    def wholes(self, name: str, default: Any = ...) -> Any:
        value = self._typed(name, "ints", default)
        return tuple(value) if name in self.attributes else value

    def reals(self, name: str) -> tuple[float, ...]:
        return tuple(self._typed(name, "floats", ...))

    def tensor(self, name: str) -> np.ndarray:
        return self.reader.read(self._typed(name, "t", ...), f"attribute {name!r}")

    def graph(self, name: str) -> Any:
        return self._typed(name, "g", ...)

    def choice(self, name: str, default: str, *others: str) -> str:
        """A text attribute that must be one of those known."""
        value: str = self.text(name, default)
        if value not in (default, *others):
            raise NotSupportedError(f"{name} {value!r} is not supported; known are {(default, *others)}")
        return value
