"""Files of `Block.save`, which are MXNet's: parameters, and the blocks of a network as JSON.

    {"net0": {"orig_name": "net0", "children": {"dense0": "hidden"}, "dense1": {...}}}

A block stands under its class's name and its place in the network, each before its children. `children` are
the names of blocks, and the names under which this block knows them. Those may follow from counters
(`dense1`), so another network gets them from the file. Files hold symbols of hybridized blocks as well, for
MXNet; here the network is traced anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from ...core import replacing
from ...core.disk.files import opened, read_at_most
from ...core.errors import FormatError
from ...symbol import Variable
from .nested import Form

_MOST_BYTES = 1 << 28


def save(block: Any, prefix: str) -> None:
    """Write `prefix-model.json` and `prefix-model.params`."""
    described = _described(block, count())
    with replacing(f"{prefix}-model.json", "w") as file:
        json.dump(described, file)
    block.save_parameters(f"{prefix}-model.params")


def load(block: Any, prefix: str) -> None:
    """Give a network like that of the files the names and parameters there, and hybridize what was.

    FormatError, before anything has changed, if the file is damaged or of another network.
    """
    found = list(_matched(block, _read(f"{prefix}-model.json"), f"{prefix}-model.json", count()))
    for each, children, is_hybridized in found:
        each._children = children
        if is_hybridized:
            each.hybridize()
    block.load_parameters(f"{prefix}-model.params")


def _key(block: Any, number: int) -> str:
    return f"{type(block).__name__.lower()}{number}"


def _described(block: Any, numbers: Iterator[int]) -> dict[str, Any]:
    """One block and those below it. The recursion is as deep as blocks are nested."""
    key = _key(block, next(numbers))
    about: dict[str, Any] = {"orig_name": block.name}
    if hasattr(block, "_last_trace"):
        trace = block._last_trace if block._active else None
        about["hybridized"] = trace is not None
        if trace is not None:
            about |= {"in_format": _mxnets(block._form[0]), "out_format": _mxnets(trace.form)}
            about |= {"inputs": [Variable(n).tojson() for n in trace.inputs], "symbol": trace.symbol.tojson()}
    about["children"] = {child.name: name for name, child in block._children.items()}
    for child in block._children.values():
        about |= _described(child, numbers)
    return {key: about}


def _mxnets(form: Form) -> Any:
    """How MXNet says how arrays are nested."""
    if form is None:
        return -1
    return 0 if form == 0 else [_mxnets(f) for f in form[1]]


def _read(file: str) -> dict[str, Any]:
    with opened(file) as source:
        text = read_at_most(source, _MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise FormatError(f"{file} has more than {_MOST_BYTES} bytes, which is too long for a description.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file} is no JSON, or it is cut short: {error}.") from None
    return _object(found, f"{file}: the top")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{what} must be an object, but it is of type {type(value).__name__}.")
    return value


def _matched(
    block: Any, described: dict[str, Any], file: str, numbers: Iterator[int]
) -> Iterator[tuple[Any, dict[str, Any], bool]]:
    """Each block with its children under the names of the file, and True if it was hybridized."""
    key = _key(block, next(numbers))
    if key not in described:
        has = [k for k, v in described.items() if isinstance(v, dict) and k != "children"]
        raise FormatError(
            f"{file} is of another network: it has {', '.join(has[:4]) or 'no block'} where this one has "
            f"{key!r}."
        )
    about = _object(described[key], f"{file}: {key!r}")
    names = _object(about.get("children"), f"{file}: 'children' of {key!r}")
    if len(names) != len(block._children):
        raise FormatError(
            f"{file} is of another network: {key!r} has {len(names)} children, and "
            f"{len(block._children)} here."
        )
    below: list[tuple[Any, dict[str, Any], bool]] = []
    children = {}
    for child, name in zip(block._children.values(), names.values()):
        below += _matched(child, about, file, numbers)
        children[name] = child
    yield block, children, about.get("hybridized") is True
    yield from below
