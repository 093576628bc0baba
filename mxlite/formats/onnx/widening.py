"""A node of numbers whose integers no operator takes, such as uint16: computed in int64, and cast back.

Only constants are widened: in a network that runs, every array would be four times as large.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..building.types import RUNS
from ..building.value import GraphValue
from .node import OnnxNode
from .package import onnx_package

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class WiderNode:
    """A node with widened inputs; `kinds`: the standard's name of a type, such as "T" -> what it was."""

    node: OnnxNode
    kinds: dict[str, np.dtype[Any]]
    outputs: list[str]  # the standard's name of each output's type

    def narrowed(self, result: Any) -> Any:
        """The outputs in the types that the standard gives them."""
        if result is NotImplemented:
            return result
        values = list(result) if isinstance(result, (tuple, list)) else [result]
        names = self.outputs + self.outputs[-1:] * (len(values) - len(self.outputs))
        return [
            value.builder.cast(value, self.kinds[name]) if name in self.kinds else value
            for name, value in zip(names, values)
        ]


def widened(node: OnnxNode) -> WiderNode | None:
    """The node in int64; None if it has other inputs than constants whose numbers fit."""
    narrow = [v for v in node.inputs if isinstance(v, GraphValue) and _is_narrow(v)]
    if not narrow or any(v.array is None or (v.size and int(v.array.max()) > _LARGEST) for v in narrow):
        return None
    schema = onnx_package().defs.get_schema(node.op, node.version, node.proto.domain)
    kinds: dict[str, np.dtype[Any]] = {}
    inputs: list[Any] = []
    for place, value in enumerate(node.inputs):
        if isinstance(value, GraphValue) and _is_narrow(value):
            kinds[schema.inputs[min(place, len(schema.inputs) - 1)].type_str] = value.dtype
            value = value.builder.cast(value, np.int64)
        inputs.append(value)
    wider = copy.copy(node)
    wider.inputs = inputs
    return WiderNode(wider, kinds, [o.type_str for o in schema.outputs])


def _is_narrow(value: GraphValue) -> bool:
    return value.dtype.kind in "iu" and value.dtype not in RUNS
