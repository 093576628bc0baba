"""PyTorch's element types and arrays, and ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..building import NotSupportedError
from .package import torch_package

_NAMES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def numpy_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """numpy's type for one of torch's. Raises NotSupportedError for complex and quantized ones."""
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise NotSupportedError(f"{what} has elements of type {dtype}")
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def numpy_array(tensor: Any, what: str) -> np.ndarray:
    """A copy of a tensor's numbers."""
    torch = torch_package()
    dtype = numpy_dtype(tensor.dtype, what)
    tensor = tensor.detach().cpu().contiguous()
    if dtype == ml_dtypes.bfloat16:
        bits: np.ndarray = tensor.view(torch.int16).numpy()
        return bits.view(dtype).copy()
    return np.array(tensor.numpy(), dtype)


def torch_tensor(array: np.ndarray) -> Any:
    """A torch tensor with a copy of these numbers."""
    torch = torch_package()
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy()).reshape(array.shape)
