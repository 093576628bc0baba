"""DLPack capsules of device memory, written and read with ctypes.

The layout is that of dlpack.h (version 1.0; also the unversioned form before it). A capsule owns a managed
tensor until a consumer renames it; its owner calls the tensor's deleter once.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....core.dtype import bfloat16
from ....core.errors import DTypeError

CPU, CUDA = 1, 2  # DLDeviceType
READ_ONLY = 1  # a flag of a versioned tensor
VERSION = (1, 0)
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLDataTypeCode by numpy's kind
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


class Given(NamedTuple):
    """A tensor taken out of a capsule. `strides` are in bytes; `release` gives it back, once."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    is_read_only: bool
    release: Callable[[], None]


# -- export --------------------------------------------------------------------------------------------------

_lent: dict[
    int, tuple[Any, ...]
] = {}  # what a managed tensor needs, by its address, until its deleter is called


@_Deleter
def _delete(address: int) -> None:
    _lent.pop(address, None)


@ctypes.CFUNCTYPE(None, c_void_p)
def _drop(capsule: int) -> None:
    """Destroy a capsule that was never consumed, and its tensor with it."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            _lent.pop(_pointer_in(capsule, name), None)


@atexit.register
def _at_exit() -> None:
    """Neutralize deleters at exit: a destructor in C++ may call them after the interpreter has ended.

    Deleters become a C function that changes nothing, and lent tensors are never freed: there is no later
    moment to free them.
    """
    nothing = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, c_void_p)
    for lent in tuple(_lent.values()):
        lent[0].deleter = nothing
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lent))


def capsule_of(array: Any, device: tuple[int, int], owner: Any, versioned: bool) -> Any:
    """A capsule of an array in C order with `address`, `shape` and `dtype`; `owner` lives as long as it."""
    shape = (c_int64 * max(1, len(array.shape)))(*array.shape)
    steps = [s // array.dtype.itemsize for s in array.strides]
    strides = (c_int64 * max(1, len(steps)))(*steps)
    code = _BFLOAT if array.dtype == bfloat16 else _CODES[array.dtype.kind]
    tensor = _Tensor(
        array.address if array.size else None,
        _Device(*device),
        len(array.shape),
        _DataType(code, 8 * array.dtype.itemsize, 1),
        shape,
        strides,
        0,
    )
    deleter = ctypes.cast(_delete, c_void_p)
    managed: ctypes.Structure
    if versioned:
        managed = _Versioned(*VERSION, None, deleter, 0, tensor)
    else:
        managed = _Managed(tensor, None, deleter)
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides, owner)
    return _new_capsule(address, _NAMES[versioned], ctypes.cast(_drop, c_void_p))


# -- import --------------------------------------------------------------------------------------------------


def device_in(capsule: Any) -> tuple[int, int]:
    """(type, number) of the device that a capsule's memory is on."""
    _, managed = _managed_in(capsule)
    return managed.tensor.device.type, managed.tensor.device.id


def take(capsule: Any) -> Given:
    """The tensor of a capsule, which from now on belongs to the caller. Raises DTypeError."""
    name, managed = _managed_in(capsule)
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    dtype = _dtype_of(tensor.dtype)
    if tensor.strides:
        strides = tuple(s * dtype.itemsize for s in tensor.strides[: tensor.ndim])
    else:
        strides = tuple(prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape)))
    _set_name(id(capsule), _USED[_NAMES.index(name)])
    address, deleter = ctypes.addressof(managed), managed.deleter

    def release() -> None:
        if deleter:
            _Deleter(deleter)(address)

    return Given(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device.type, tensor.device.id),
        shape,
        strides,
        dtype,
        name == _NAMES[1] and bool(managed.flags & READ_ONLY),
        release,
    )


def _managed_in(capsule: Any) -> tuple[bytes, Any]:
    for name, kind in zip(_NAMES, (_Managed, _Versioned)):
        if _is_valid(id(capsule), name):
            managed: Any = ctypes.cast(_pointer_in(id(capsule), name), ctypes.POINTER(kind)).contents
            if kind is _Versioned and managed.major > VERSION[0]:
                raise DTypeError(f"a DLPack tensor of version {managed.major}; known is {VERSION[0]}.")
            return name, managed
    raise DTypeError(f"from_dlpack needs a capsule that nobody has used yet, got {capsule!r}.")


def _dtype_of(kind: Any) -> np.dtype[Any]:
    if kind.lanes == 1 and kind.bits % 8 == 0:
        if kind.code == _BFLOAT and kind.bits == 16:
            return bfloat16
        for letter, code in _CODES.items():
            if code == kind.code and (letter != "b" or kind.bits == 8):
                return np.dtype(f"{letter}{kind.bits // 8}")
    raise DTypeError(f"a DLPack tensor of type code {kind.code}, {kind.bits} bits and {kind.lanes} lanes.")


# Python functions bound by address: a capsule that is being destroyed must not be referenced.
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_in = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_set_name = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))

# A capsule keeps the pointer to its name, so these must stay alive.
_NAMES = (b"dltensor", b"dltensor_versioned")
_USED = (b"used_dltensor", b"used_dltensor_versioned")
