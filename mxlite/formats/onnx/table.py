"""Operators that can be imported: (domain, operator) -> the function that converts a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .converters import FAMILIES
from .node import OnnxNode

Converter = Callable[[OnnxNode], Any]

CONVERTERS: dict[tuple[str, str], Converter] = {
    ("", name): convert for family in FAMILIES for name, convert in family.items()
}
"""Operators of the standard's own domain; those without a line here are tried by their definition."""
