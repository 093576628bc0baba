"""The roles of the arrays of convolutions and their gradients in ``y = x convolved with w``.

Each operator of the family computes one of the three from the other two, and so does each gradient of one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph.opdef import Op
from .conv import Convolution
from .conv_gradients import (
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    DeconvolutionDataGradient,
    DeconvolutionWeightGradient,
)
from .deconv import Deconvolution

ROLES: Mapping[type[Op], Mapping[str, str]] = {
    Convolution: {"data": "x", "weight": "w", "out": "y"},
    ConvolutionDataGradient: {"grad": "y", "weight": "w", "out": "x"},
    ConvolutionWeightGradient: {"grad": "y", "data": "x", "out": "w"},
    Deconvolution: {"data": "y", "weight": "w", "out": "x"},
    DeconvolutionDataGradient: {"grad": "x", "weight": "w", "out": "y"},
    DeconvolutionWeightGradient: {"grad": "x", "data": "y", "out": "w"},
}
"""Operator -> the roles of its arrays, by their names."""


def computed(op: type[Op]) -> dict[str, dict[str, str]]:
    """For an operator of ROLES or the gradient of one: its outputs that are one of the three, with the names
    of all three by their roles. The output has its own name there, what it is computed from has that of an
    input.
    """
    roles = ROLES[op.forward_op or op]
    if op.forward_op is None:
        return {"out": {role: name for name, role in roles.items()}}
    known = {role: "d_out" if name == "out" else name for name, role in roles.items()}
    return {f"d_{name}": known | {role: f"d_{name}"} for name, role in roles.items() if name != "out"}
