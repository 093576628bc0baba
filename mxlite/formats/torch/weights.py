"""Parameters that were trained here, back in the module they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core import ShapeError
from ...core.errors import nearest, UnknownNameError
from .package import torch_package
from .tensor import torch_tensor


def load_into(
    module: Any, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None
) -> None:
    """Copy parameters and auxiliary states into a torch.nn.Module, by their names in its `state_dict`.

    arg_params, aux_params: NDArrays by name, as `from_torch` and `Module.get_params` give them.  A name that
    is no parameter or buffer of the module is an error, except constants of its code that the importer named;
    what is not given stays. Everything is checked before anything is written.

    Raises UnknownNameError for a name, ShapeError for a shape that is not the module's.
    """
    torch = torch_package()
    targets = dict(module.named_parameters(remove_duplicate=False))
    targets |= dict(module.named_buffers(remove_duplicate=False))
    found: dict[str, np.ndarray] = {}
    for name, array in {**arg_params, **(aux_params or {})}.items():
        if name not in targets:
            if is_constant(name):
                continue
            raise UnknownNameError(
                f"{type(module).__name__} has no parameter or buffer {name!r}.{nearest(name, targets)}"
            )
        shape = tuple(targets[name].shape)
        if tuple(array.shape) != shape:
            raise ShapeError(f"{name!r} is {shape} in {type(module).__name__}, got {tuple(array.shape)}.")
        found[name] = array.asnumpy()
    with torch.no_grad():
        for name, numbers in found.items():
            targets[name].copy_(torch_tensor(numbers))


def is_constant(name: str) -> bool:
    """True for a variable that holds what the module's code computes from constants."""
    return name.startswith("lifted_tensor_") or name.endswith("_const") or "_const_" in name
