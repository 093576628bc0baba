"""Operators that can be imported: ATen target -> the function that converts a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .converters import FAMILIES
from .node import TorchNode

Converter = Callable[[TorchNode], Any]

CONVERTERS: dict[str, Converter] = {
    f"aten.{name}": convert for family in FAMILIES for name, convert in family.items()
}
"""By name without overload, as `aten.add`; one with it, as `aten.add.Tensor`, is found first."""


def register(target: str) -> Callable[[Converter], Converter]:
    """A decorator that adds a converter for `target`, as "aten.add", "aten.add.Tensor" or "mylib.op".

        @mx.formats.torch.register("aten.erfinv")
        def erfinv(n):
            return n.builder.op("erfinv", n["self"])

    The function takes a `TorchNode`, whose tensors are called as in the operator's schema, and returns a
    value, or a tuple of values for an operator with several results. A second one for the same target
    replaces the first.
    """

    def add(convert: Converter) -> Converter:
        CONVERTERS[target.replace("::", ".")] = convert
        return convert

    return add


def converter(target: str) -> Converter | None:
    """The function for a target with its overload, as `aten.add.Tensor`."""
    return CONVERTERS.get(target) or CONVERTERS.get(target.rpartition(".")[0])
