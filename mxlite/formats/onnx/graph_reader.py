"""The conversion of an ONNX graph to values, node by node, subgraphs and functions included.

A node is converted by the table's function for its operator. An operator that the table lacks, or whose
function answers NotImplemented, is replaced by the definition that the model or the standard gives of it, if
there is one: its function body, made of other operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...core import FormatError, MXLiteError
from ...graph import Shape
from ..building.builder import Builder
from ..building.errors import NotSupportedError
from ..building.recognition import recognized
from ..building.value import GraphValue
from .dtypes import NUMBER, numpy_type
from .errors import Declared
from .node import OnnxNode, Value
from .package import onnx_package
from .sequence import SequenceValue
from .table import Converter, CONVERTERS
from .tensor import read_tensor
from .widening import widened

DEEPEST = 24
"""The deepest nesting of subgraphs and functions."""

Scope = dict[str, Value | None]

_UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a converter may raise because it trusts a node to follow the standard."""


class GraphReader:
    """Reads graphs of one model into one builder.

    `as_written`: batch normalization trains if the model says so; else if the program that runs it does.
    """

    def __init__(self, model: Any, folder: str | None, as_written: bool = False) -> None:
        self.builder = Builder("onnx")
        self.model = model
        self.folder = folder
        self.as_written = as_written
        self.opsets = {_domain(o.domain): o.version for o in model.opset_import}
        self.functions = {(_domain(f.domain), f.name): f for f in model.functions}
        self._depth = 0

    def read(self, tensor: Any, what: str) -> np.ndarray:
        return read_tensor(tensor, self.folder, what)

    # -- graphs ------------------------------------------------------------------------------------

    def initializers(self, graph: Any, scope: Scope, top: bool) -> None:
        """Arrays stored in the graph: floating ones with axes are parameters, all others are constants."""
        if graph.sparse_initializer:
            raise NotSupportedError("sparse initializers")
        for tensor in graph.initializer:
            array = self.read(tensor, f"initializer {tensor.name!r}")
            scope[tensor.name] = self.parameter(tensor.name, array) if top else self.builder.constant(array)

    def parameter(self, name: str, array: np.ndarray) -> GraphValue:
        """A variable for an array that training may change, a constant for anything else.

        Whole numbers are indices and shapes; a float without axes is part of the formula, such as a scale.
        """
        if array.ndim and (array.dtype.kind == "f" or array.dtype.name == "bfloat16") and array.size:
            return self.builder.variable(name, array.shape, array.dtype, array)
        return self.builder.constant(array)

    def nodes(
        self, nodes: Any, results: Iterable[str], scope: Scope, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Convert nodes in order; `scope` gets their outputs, of which `results` are the graph's.

        `attributes` are those of the function.
        """
        known: set[str] = set()
        read = {*results, *_names_read(nodes)}
        for proto in nodes:
            outputs = self._node(proto, scope, attributes, read)
            for name, value in zip(proto.output, outputs):
                if name in known:
                    raise FormatError(
                        f"Two nodes make {name!r}, the second is {proto.op_type} {proto.name!r}."
                    )
                if name:
                    known.add(name)
                    scope[name] = value

    def subgraph(self, graph: Any, scope: Scope, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a body that also sees the names around it."""
        if len(graph.input) != len(inputs):
            raise FormatError(f"its body takes {len(graph.input)} inputs, {len(inputs)} are there.")
        inner = dict(scope)
        self.initializers(graph, inner, top=False)
        inner.update({i.name: v for i, v in zip(graph.input, inputs)})
        results = [o.name for o in graph.output]
        self._deeper(lambda: self.nodes(graph.node, results, inner, self._outer_attributes))
        return [self.named(inner, name) for name in results]

    def named(self, scope: Scope, name: str) -> Value:
        value = scope.get(name)
        if value is None:
            raise FormatError(f"reads {name!r}, which nothing before it makes.")
        return value

    def _input(self, scope: Scope, name: str) -> Value | None:
        """As `named`; None for an optional value that is absent."""
        return None if name in scope and scope[name] is None else self.named(scope, name)

    _outer_attributes: Mapping[str, Any] | None = None

    def _deeper(self, run: Any) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise FormatError(f"Subgraphs and functions lie in each other more than {DEEPEST} levels deep.")
        try:
            run()
        finally:
            self._depth -= 1

    # -- nodes -------------------------------------------------------------------------------------

    def _node(
        self, proto: Any, scope: Scope, attributes: Mapping[str, Any] | None, read: Set[str]
    ) -> list[Value | None]:
        domain = _domain(proto.domain)
        if not isinstance(proto.op_type, str) or not isinstance(domain, str):
            raise FormatError(f"The operator {proto.op_type!r} of the domain {domain!r} is no text.")
        name = proto.name or ", ".join(map(str, proto.output))
        who = f"{domain + '.' if domain else ''}{proto.op_type} {name!r}"
        who += f" (opset {self.opsets.get(domain, 'unknown')})"
        label = proto.name or next(iter(proto.output), "") or proto.op_type
        outer, self.builder.label = self.builder.label, str(label)
        try:
            inputs = [self._input(scope, i) if i else None for i in proto.input]
            return self._converted(proto, domain, inputs, scope, _resolved(proto, attributes), read)
        except NotSupportedError as error:
            raise NotSupportedError(f"{who}: {error}") from None
        except MXLiteError as error:
            raise FormatError(f"{who}: {error}") from error
        except _UNFIT as error:
            raise FormatError(f"{who}: its inputs and attributes do not fit each other ({error}).") from error
        finally:
            self.builder.label = outer

    def _converted(
        self,
        proto: Any,
        domain: str,
        inputs: list[Value | None],
        scope: Scope,
        attributes: dict[str, Any],
        read: Set[str],
    ) -> list[Value | None]:
        function = self.functions.get((domain, proto.op_type))
        if function is not None:
            return self._call(function, inputs, attributes)
        version = self.opsets.get(domain)
        if version is None:
            raise NotSupportedError(f"the model imports no opset of the domain {domain!r}")
        node = OnnxNode(proto, inputs, version, self, attributes, scope, read)
        convert = CONVERTERS.get((domain, proto.op_type))
        result = NotImplemented if convert is None else self._by(convert, node)
        if result is NotImplemented:
            return self._call(
                self._definition(proto, domain, version, inputs, attributes), inputs, attributes
            )
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        outputs = [recognized(v) if isinstance(v, GraphValue) else v for v in outputs]
        if any(name in read and i >= len(outputs) for i, name in enumerate(proto.output)):
            raise NotSupportedError(f"only {len(outputs)} of its {len(proto.output)} outputs are made")
        return outputs

    def _by(self, convert: Converter, node: OnnxNode) -> Any:
        """The outputs by a converter, in wider integers where no operator takes those of the inputs."""
        try:
            outputs = convert(node)
            if outputs is not NotImplemented and (unread := node.unread()):
                raise NotSupportedError(f"mxlite does not know what {', '.join(unread)} do to it")
            return outputs
        except NotSupportedError:
            wider = widened(node)
            if wider is None:
                raise
            return wider.narrowed(convert(wider.node))

    def _call(
        self, function: Any, inputs: list[Value | None], attributes: dict[str, Any]
    ) -> list[Value | None]:
        """The outputs of a function's body, converted in place of the call."""
        scope: Scope = dict.fromkeys(function.input)
        scope.update(zip(function.input, inputs))
        given = {a.name: a for a in function.attribute_proto} | attributes
        opsets, outer = self.opsets, self._outer_attributes
        self.opsets = opsets | {_domain(o.domain): o.version for o in function.opset_import}
        self._outer_attributes = given
        try:
            self._deeper(lambda: self.nodes(function.node, function.output, scope, given))
        finally:
            self.opsets, self._outer_attributes = opsets, outer
        return [scope.get(name) for name in function.output]

    def _definition(
        self,
        proto: Any,
        domain: str,
        version: int,
        inputs: list[Value | None],
        attributes: dict[str, Any],
    ) -> Any:
        """The standard's function body for an operator. Raises NotSupportedError if it has none."""
        onnx = onnx_package()
        try:
            schema = onnx.defs.get_schema(proto.op_type, version, domain)
        except onnx.defs.SchemaError:
            raise NotSupportedError("there is no such operator in the standard") from None
        for name, default in schema.attributes.items():
            if name not in attributes and default.default_value.name:
                attributes[name] = default.default_value
        function = onnx.FunctionProto()
        if schema.has_function:
            usable = [v for v in schema.function_opset_versions if v <= max(version, schema.since_version)]
            if usable:
                function.ParseFromString(schema.get_function_with_opset_version(max(usable)))
                return function
        if schema.has_context_dependent_function:
            usable = [
                v
                for v in schema.context_dependent_function_opset_versions
                if v <= max(version, schema.since_version)
            ]
            if usable:
                call = onnx.NodeProto()
                call.CopyFrom(proto)
                del call.attribute[:]
                call.attribute.extend(attributes.values())
                types = [_type_proto(onnx, v).SerializeToString() for v in inputs]
                body = schema.get_context_dependent_function_with_opset_version(
                    max(usable), call.SerializeToString(), types
                )
                function.ParseFromString(body)
                return function
        raise NotSupportedError("mxlite has no such operator")


def _names_read(nodes: Any) -> Iterator[str]:
    """The names that nodes read, those in their bodies too."""
    for proto in nodes:
        yield from proto.input
        for attribute in proto.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from (o.name for o in graph.output)
                yield from _names_read(graph.node)


def _type_proto(onnx: Any, value: Value | None) -> Any:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, SequenceValue):
        element = _type_proto(onnx, value.elements[0] if value.elements else None)
        return onnx.helper.make_sequence_type_proto(element)
    return onnx.helper.make_tensor_type_proto(NUMBER[value.dtype], list(value.shape))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _resolved(proto: Any, outer: Mapping[str, Any] | None) -> dict[str, Any]:
    """The node's attributes by name; inside a function some refer to the caller's."""
    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            if outer is None:
                raise FormatError(f"attribute {attribute.name!r} refers to a function's, but this is none.")
            given = outer.get(attribute.ref_attr_name)
            if given is not None:
                renamed = type(given)()
                renamed.CopyFrom(given)
                renamed.name = attribute.name
                attributes[attribute.name] = renamed
        else:
            attributes[attribute.name] = attribute
    return attributes


def declared_shape(info: Any) -> Declared:
    """The declared lengths of an input; a negative one, as some exporters write it, is open."""
    shape = info.type.tensor_type.shape
    if not info.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or "?")
        for d in shape.dim
    )


def input_shape(info: Any, given: Shape | None) -> tuple[Shape, np.dtype[Any]]:
    """Shape and type of a graph's input; `given` fills its open lengths, and those declared as 0."""
    kind = info.type.WhichOneof("value")
    what = f"input {info.name!r}"
    if kind != "tensor_type":
        raise NotSupportedError(f"{what} is no tensor but a {kind or 'value without type'}")
    tensor = info.type.tensor_type
    dtype = numpy_type(tensor.elem_type, what)
    declared = declared_shape(info)
    if given is None:
        given = tuple(d for d in declared or () if not isinstance(d, str))
    shape = tuple(int(d) for d in given)
    fits = declared is None or (
        len(shape) == len(declared)
        and all(isinstance(d, str) or d in (0, s) for d, s in zip(declared, shape))
    )
    if any(d < 0 for d in shape) or not fits:
        raise FormatError(f"{what} must be {declared}, got the shape {shape}.")
    return shape, dtype
