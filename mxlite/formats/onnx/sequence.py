"""A sequence of tensors: a value of its own kind in ONNX."""

from __future__ import annotations

from dataclasses import dataclass

from ..building.value import GraphValue


@dataclass(frozen=True)
class SequenceValue:
    """Tensors in their order. How many they are is known while importing, so sequences leave no node."""

    elements: tuple[GraphValue, ...] = ()
