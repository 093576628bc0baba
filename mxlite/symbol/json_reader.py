"""From the text of MXNet's Symbol JSON, of any version since 0.8, to a graph.

The text is not trusted: every index is checked, inputs must lie before their node (so there is no
cycle), and nothing is allocated because a number in the file says so. Differences of older versions are
corrected while reading, in `upgrade.py`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.compat.npshape import is_np_shape
from ..core.errors import FormatError, MXLiteError, nearest, OpAttributeError, UnknownNameError
from ..graph import Entry, Graph, Node, Op
from ..ops import find_op
from ..ops.control.custom import custom_operator
from ..ops.control.subgraph import Subgraph, subgraphs_of
from .attribute import is_annotation
from .compose import typed_attrs
from .json_writer import VERSION
from .upgrade import missing_inputs, move_hidden_keys, OLDEST, set_initial_values, without_changed_defaults

LONGEST_TEXT = 1 << 28
"""Characters of the longest text that is read; a graph of 20,000 nodes takes about 4 million."""

_LONGEST_MESSAGE = 600  # characters of an error, which quotes names out of the file
_TOP = ("nodes", "arg_nodes", "node_row_ptr", "heads", "attrs")
_NODE = (
    "op", "name", "attrs", "attr", "param", "inputs", "control_deps", "backward_source_id", "subgraphs"
)  # fmt: skip


def loads(text: str) -> Graph:
    """The graph that `text` describes. O(length). Raises FormatError, naming the node."""
    try:
        return _read(_parse(text))
    except FormatError as error:
        if len(str(error)) <= _LONGEST_MESSAGE:
            raise
        raise FormatError(f"{str(error)[:_LONGEST_MESSAGE]}...") from None


def _read(top: dict[str, Any]) -> Graph:
    version = _version(top.get("attrs", {}))
    _known(top, _TOP, "The symbol")
    raw_nodes = _list(top, "nodes", "The symbol")
    nodes = _Nodes()
    for i, raw in enumerate(raw_nodes):
        nodes.append(_read_node(i, raw, nodes, version))
    if is_np_shape() and "is_np_shape" not in top.get("attrs", {}):
        _open_zeros(nodes.nodes)
    for i in _list(top, "arg_nodes", "The symbol"):
        if type(i) is not int or not 0 <= i < len(nodes.nodes) or nodes.nodes[i].op is not None:
            raise FormatError(f"'arg_nodes' must list variables of the symbol; {_short(i)} is none.")
    _list({"node_row_ptr": [], **top}, "node_row_ptr", "The symbol")
    heads = [_entry(e, nodes, f"output {i}") for i, e in enumerate(_list(top, "heads", "The symbol"))]
    if not heads:
        raise FormatError("The symbol has no outputs: 'heads' is empty.")
    return Graph(tuple(heads))


def _open_zeros(nodes: Sequence[Node]) -> None:
    """Write -1 for 0 in the shapes of variables: a file with old shapes means an open length by it."""
    for node in nodes:
        if node.op is None and "__shape__" in node.annotations:
            node.annotations["__shape__"] = re.sub(r"(?<![\d-])0(?!\d)", "-1", node.annotations["__shape__"])


def _parse(text: str) -> dict[str, Any]:
    if len(text) > LONGEST_TEXT:
        raise FormatError(f"A symbol's JSON may have {LONGEST_TEXT} characters; this has {len(text)}.")
    try:
        top = json.loads(text, strict=False)  # MXNet writes control characters as they are
    except RecursionError:
        raise FormatError(
            "A symbol's JSON has at most four levels of brackets; this is nested too deeply."
        ) from None
    except ValueError as error:
        raise FormatError(f"This is not a symbol's JSON, or it is cut short: {error}.") from None
    if not isinstance(top, dict):
        raise FormatError(f"A symbol's JSON is an object with 'nodes' and 'heads', this is {_short(top)}.")
    return top


def _version(attrs: Any) -> int:
    if not isinstance(attrs, dict):
        raise FormatError(f"The symbol's 'attrs' must be an object, got {_short(attrs)}.")
    if "mxnet_version" not in attrs:
        return OLDEST
    pair = attrs["mxnet_version"]
    if not (isinstance(pair, list) and len(pair) == 2 and pair[0] == "int" and type(pair[1]) is int):
        raise FormatError(f"'mxnet_version' must be [\"int\", number], got {_short(pair)}.")
    version: int = pair[1]
    if version > VERSION:
        warnings.warn(
            f"The symbol was written by MXNet {_dotted(version)}, newer than {_dotted(VERSION)}; "
            f"it may use what mxlite does not know.",
            stacklevel=4,
        )
    return version


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class _Nodes:
    """The nodes read so far, and how many outputs each has: counted once, as some have thousands."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[int] = []

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        self.outputs.append(node.num_visible_outputs)


def _read_node(i: int, raw: Any, before: _Nodes, version: int) -> Node:
    if not isinstance(raw, dict):
        raise FormatError(f"Node {i} must be an object, got {_short(raw)}.")
    op_name, name = _text(raw, "op", f"Node {i}"), _text(raw, "name", f"Node {i}")
    who = f"Node {i}, {op_name} {name!r},"
    _known(raw, _NODE, who)
    if raw.get("control_deps"):
        raise FormatError(f"{who} has 'control_deps', which mxlite cannot run.")
    attrs: dict[str, str] = {}
    for field in ("param", "attr", "attrs"):
        attrs |= _attributes(raw.get(field, {}), field, who)
    inputs = [_entry(e, before, f"{who} input {k}") for k, e in enumerate(_list(raw, "inputs", who))]
    if op_name == "null":
        if inputs:
            raise FormatError(f"{who} is a variable and cannot have inputs.")
        return Node(None, None, (), name, annotations=move_hidden_keys(attrs, None, [], version))
    try:
        op = custom_operator(_parameters(attrs)) if op_name == "Custom" else find_op(op_name)
        return _operator(op, name, attrs, inputs, version, subgraphs_of(op, raw, who))
    except (OpAttributeError, UnknownNameError) as error:
        raise FormatError(f"Node {i}, {name!r}: {error}") from None
    except FormatError:
        raise
    except MXLiteError as error:
        raise FormatError(f"{who} {error}") from None


def _operator(
    op: type[Op],
    name: str,
    attrs: dict[str, str],
    inputs: list[Entry],
    version: int,
    subgraphs: Mapping[str, Subgraph],
) -> Node:
    who = f"{op.op_name} {name!r}"
    attrs = move_hidden_keys(attrs, op, inputs, version)
    annotations = {k: v for k, v in attrs.items() if is_annotation(k)}
    given = without_changed_defaults(_parameters(attrs), op, version)
    if op.variadic:
        given.setdefault("num_args", str(len(inputs) + len(subgraphs)))
    typed = typed_attrs(op, {**given, **subgraphs}, who)
    if op.variadic and typed.num_args != len(inputs) + len(subgraphs):
        raise FormatError(f"{who} has num_args={typed.num_args}, but {len(inputs)} inputs.")
    names = op.input_names(typed)
    inputs = missing_inputs(op, name, names, inputs, given, annotations, version)
    if len(inputs) != len(names):
        raise FormatError(f"{who} takes {len(names)} inputs, {', '.join(names[:12])}; it has {len(inputs)}.")
    set_initial_values(op, names, inputs, version)
    return Node(op, typed, tuple(inputs), name, given, annotations)


def _parameters(attrs: Mapping[str, str]) -> dict[str, str]:
    """The operator's own parameters among `attrs`."""
    return {k: v for k, v in attrs.items() if not is_annotation(k)}


def _attributes(raw: Any, field: str, who: str) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise FormatError(f"{who} must have an object as {field!r}, got {_short(raw)}.")
    for key, value in raw.items():
        if not isinstance(value, str):
            raise FormatError(f"{who} has the attribute {key!r} = {_short(value)}; it must be text.")
        _encodable(f"{key}{value}", who)
    return raw


def _entry(raw: Any, before: _Nodes, who: str) -> Entry:
    """`[node, output, version]`, or `[node, output]` in old files."""
    if not (isinstance(raw, list) and len(raw) in (2, 3) and all(type(x) is int for x in raw)):
        raise FormatError(f"{who} must be [node, output, version], got {_short(raw)}.")
    number, index = raw[:2]
    if not 0 <= number < len(before.nodes):
        raise FormatError(
            f"{who} is output {index} of node {number}, which does not come before it: a graph lists its "
            f"nodes in an order of computing them and has no cycle."
        )
    node, count = before.nodes[number], before.outputs[number]
    if not 0 <= index < count:
        raise FormatError(f"{who} is output {index} of {node.name!r}, which has {count}.")
    return Entry(node, index)


def _known(raw: Mapping[str, Any], fields: tuple[str, ...], who: str) -> None:
    for key in raw:
        if key not in fields:
            raise FormatError(f"{who} has an unknown field {_short(key)}.{nearest(key[:100], fields)}")


def _list(raw: Mapping[str, Any], field: str, who: str) -> list[Any]:
    value = raw.get(field)
    if not isinstance(value, list):
        problem = "it is missing" if field not in raw else f"got {_short(value)}"
        raise FormatError(f"{who} must have a list {field!r}; {problem}.")
    return value


def _text(raw: Mapping[str, Any], field: str, who: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str):
        problem = "it is missing" if field not in raw else f"got {_short(value)}"
        raise FormatError(f"{who} must have text as {field!r}; {problem}.")
    return _encodable(value, who)


def _encodable(text: str, who: str) -> str:
    """`text`, if it can be encoded: JSON's escapes can express half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{who} has the name {_short(text)}, which is no text of Unicode.") from None
    return text


def _short(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
