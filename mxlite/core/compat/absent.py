"""Parts of MXNet that mxlite does not have, and what to say when a program asks for one."""

from __future__ import annotations

from collections.abc import Mapping

PARTS = {
    "np": "arrays are mx.nd's, with mx.np_shape() for axes of no elements",
    "npx": "operators are those of mx.nd and mx.sym",
    "numpy": "arrays are mx.nd's, with mx.np_shape() for axes of no elements",
    "numpy_extension": "operators are those of mx.nd and mx.sym",
    "library": "operators of your own are mx.operator.CustomOp",
    "rtc": "operators of your own are mx.operator.CustomOp",
    "th": "operators of your own are mx.operator.CustomOp",
    "torch": "operators of your own are mx.operator.CustomOp",
}
"""Attribute of the package -> what there is instead."""


def absent(module: str, name: str, known: Mapping[str, str] = PARTS) -> str:
    """The message for `module.name`, which is not there."""
    instead = known.get(name)
    return f"{module} has no {name!r}." if instead is None else f"mxlite has no {module}.{name}: {instead}."
