"""Reads an exported program node by node, and gathers all that cannot be converted."""

from __future__ import annotations

import operator
import re
from typing import Any

from ...core import MXLiteError
from ..building import Builder, GraphValue, NotSupportedError
from .errors import Place
from .node import Found, static_shape, TorchNode
from .program import counts_batches, is_library
from .stored import StoredTensor
from .table import converter
from .tensor import numpy_dtype

_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_UNFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)  # of a converter


class ProgramReader:
    """`run` fills `failures`, and gives the outputs if there are none."""

    def __init__(self, program: Any, stored: dict[str, StoredTensor]) -> None:
        self.program = program
        self.stored = stored
        self.builder = Builder("torch")
        self.inputs: dict[str, tuple[int, ...]] = {}  # name -> shape
        self.failures: list[tuple[Place, str]] = []
        self.missing: set[Any] = set()  # targets without a converter
        self._found: dict[Any, Found] = {}
        self._failed: set[Any] = set()  # nodes that were not converted, or that read one
        self._absent: dict[Any, str] = {}  # results that no converter computes -> which these are

    def run(self) -> list[tuple[str, GraphValue]]:
        """The outputs that are tensors, by name."""
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                return self._outputs(node)
        return []

    # -- nodes -------------------------------------------------------------------------------------

    def _placeholder(self, node: Any) -> None:
        name = _state_name(self.program.graph_signature, node.name)
        if name is not None:
            self._found[node] = self.stored[name]
            return
        value = node.meta.get("val")
        if not hasattr(value, "dtype"):
            self._found[node] = value
            return
        try:
            shape, dtype = static_shape(value), numpy_dtype(value.dtype, f"input {node.name!r}")
            self._found[node] = self.builder.variable(node.name, shape, dtype)
            self.inputs[node.name] = shape
        except MXLiteError as error:
            self._fail(node, str(error))

    def _call(self, node: Any) -> None:
        if counts_batches(node, self.program.graph_signature.inputs_to_buffers):
            return
        if any(argument in self._failed for argument in node.all_input_nodes):
            self._failed.add(node)
            if converter(str(node.target)) is None and node.target is not operator.getitem:
                self._fail(node, self._no_converter(node))
            return
        if node.target is operator.getitem:
            maker, i = node.args
            results = self._look_up(maker)
            found = self._found[node] = results[i] if i < len(results) else None
            if found is None:
                self._absent[node] = f"result {i} of {maker.target}, which mxlite does not compute"
            return
        absent = [self._absent[argument] for argument in node.all_input_nodes if argument in self._absent]
        if absent:
            self._fail(node, f"it reads {absent[0]}")
            return
        convert = converter(str(node.target))
        if convert is None:
            self._fail(node, self._no_converter(node))
            return
        self.builder.label = label(node)
        try:
            seen = TorchNode(node, self._arguments(node), self.builder, _defaults(node))
            result = convert(seen)
            self._check(node, result)
            if ignored := seen.unread():
                values = ", ".join(f"{name}={_short(value)}" for name, value in ignored.items())
                raise NotSupportedError(f"mxlite does not know what {values} does to it")
            self._found[node] = result
        except MXLiteError as error:
            self._fail(node, str(error))
        except _UNFIT as error:
            self._fail(node, f"its arguments are not as the converter takes them ({error})")

    def _no_converter(self, node: Any) -> str:
        self.missing.add(node.target)
        return "mxlite has no converter for this operator"

    def _arguments(self, node: Any) -> dict[str, Found]:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return {str(i): self._look_up(a) for i, a in enumerate(node.args)}
        given: dict[str, Found] = {}
        for i, argument in enumerate(schema.arguments):
            if i < len(node.args):
                given[argument.name] = self._look_up(node.args[i])
            elif argument.name in node.kwargs:
                given[argument.name] = self._look_up(node.kwargs[argument.name])
            elif argument.has_default_value():
                given[argument.name] = argument.default_value
        return given

    def _look_up(self, argument: Any) -> Found:
        if isinstance(argument, (list, tuple)):
            return [self._look_up(a) for a in argument]
        if type(argument).__name__ == "Node":
            return self._found.get(argument)
        return argument

    def _check(self, node: Any, result: Found) -> None:
        """Raise NotSupportedError if a result is not of the shape and type that PyTorch says."""
        results = result if isinstance(result, (list, tuple)) else [result]
        said = node.meta.get("val")
        for ours, theirs in zip(results, said if isinstance(said, (list, tuple)) else [said]):
            if not isinstance(ours, GraphValue) or not hasattr(theirs, "dtype"):
                continue
            shape, dtype = static_shape(theirs), numpy_dtype(theirs.dtype, "the result")
            if (ours.shape, ours.dtype) != (shape, dtype):
                raise NotSupportedError(
                    f"PyTorch's result is {dtype}{list(shape)}, ours would be {ours.dtype}{list(ours.shape)}"
                )

    def _outputs(self, node: Any) -> list[tuple[str, GraphValue]]:
        outputs = []
        for spec, value in zip(self.program.graph_signature.output_specs, node.args[0]):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                self._moved(spec, value)
            elif kind in ("USER_OUTPUT", "LOSS_OUTPUT") and type(value).__name__ == "Node":
                found = self._look_up(value)
                if value in self._absent:
                    self._fail(value, f"the network returns {self._absent[value]}")
                if isinstance(found, StoredTensor):
                    found = found.constant(self.builder)
                if isinstance(found, GraphValue):
                    outputs.append((label(value), found))
            elif kind == "USER_INPUT_MUTATION":
                self._fail(value, f"it writes to the input {spec.target!r}; give forward a clone of it")
        return outputs

    def _moved(self, spec: Any, value: Any) -> None:
        """A buffer that forward writes: batch normalization's averages are moved by its own operator."""
        source = value.args[0] if value.target is operator.getitem else value
        if "batch_norm" in str(getattr(source, "target", "")) or spec.target.endswith("num_batches_tracked"):
            return
        self._fail(
            value, f"it writes to the buffer {spec.target!r}, and a graph's constants stay as they are"
        )

    def _fail(self, node: Any, why: str) -> None:
        self._failed.add(node)
        self.failures.append((place(node), why.rstrip(".")))


def _defaults(node: Any) -> frozenset[str]:
    """The arguments that have the value of the schema's default."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return frozenset(str(i) for i in range(len(node.args)))
    given = {a.name: v for a, v in zip(schema.arguments, node.args)} | node.kwargs
    return frozenset(
        a.name
        for a in schema.arguments
        if a.has_default_value()
        and _is_plain(value := given.get(a.name, a.default_value))
        and value == a.default_value
    )


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple))


def _short(value: Any) -> str:
    """An argument in a message."""
    return "a tensor" if isinstance(value, (GraphValue, StoredTensor)) else repr(value)


def _state_name(signature: Any, placeholder: str) -> str | None:
    """The name of the parameter, buffer or constant behind a placeholder; None for an input."""
    for names in (
        signature.inputs_to_parameters,
        signature.inputs_to_buffers,
        signature.inputs_to_lifted_tensor_constants,
    ):
        if placeholder in names:
            return str(names[placeholder])
    return None


def module_path(node: Any) -> str:
    """The innermost module in which a node was made, as in `named_modules`."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]).split("@")[0] if stack else ""


def label(node: Any) -> str:
    """A node's name in the graph: the module's path if it is one of PyTorch's, else with the operator."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = module_path(node)
    own = bool(stack) and str(stack[-1][1]).startswith("torch.nn.")
    return path if own and path else f"{path}.{node.name}" if path else str(node.name)


def place(node: Any) -> Place:
    """The place in the module that a node comes from."""
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    own = [line for line in lines if not is_library(line[0])] or lines
    line = ":".join(own[-1]) if own else ""
    return Place(node.name, str(node.target), module_path(node), line, _origin(node))


def _origin(node: Any) -> str:
    """The name of the node in the program that torch.export made, before operators were decomposed."""
    source = node
    while found := getattr(source, "from_node", None) or getattr(source, "meta", {}).get("from_node"):
        source = found[-1]
    return str(source.name)
