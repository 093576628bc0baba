"""A tree of numbers, text and arrays as bytes: what a checkpoint keeps besides parameters.

    offset  bytes
    0       8   b"MXLSTATE"
    8       4   version, 1
    12      4   CRC-32 of everything after this field
    16      8   length of the header
    24          header: JSON; an array in it is {"array": [dtype, shape]}, in the order of their bytes
                the arrays' elements, one after the other, C order, little-endian

All integers are little-endian and unsigned. Equal trees give equal bytes. Reading builds numbers, text,
lists, dicts and arrays and nothing else, so a file from anywhere may be read, unlike a pickle.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from typing import Any

import numpy as np

from ..core.dtype import as_dtype
from ..core.errors import DTypeError, FormatError
from ..core.wanted import wanted

_MAGIC = b"MXLSTATE"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ")
_ARRAY = "array"


def pack_state(tree: Any) -> bytes:
    """Bytes of a tree of dict (keys are text), list, tuple (read back as a list), None, bool, int, float, str
    and arrays: numpy's or anything with `asnumpy`. A dict whose only key is "array" cannot be told from an
    array and is refused.
    """
    arrays: list[np.ndarray] = []

    def plain(x: Any) -> Any:
        # Depth is that of the user's own nesting, a handful: not of any graph.
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, np.generic):
            return x.item()
        if isinstance(x, (list, tuple)):
            return [plain(v) for v in x]
        if isinstance(x, dict):
            if bad := [k for k in x if not isinstance(k, str)] or list(x) == [_ARRAY]:
                raise TypeError(f"A state's keys are text, and not 'array' alone; got {bad}.")
            return {k: plain(v) for k, v in x.items()}
        if hasattr(x, "asnumpy"):
            x = x.asnumpy()
        if isinstance(x, np.ndarray):
            array = np.ascontiguousarray(x).reshape(x.shape)
            arrays.append(array)
            return {_ARRAY: [_dtype_name(array.dtype), list(array.shape)]}
        raise TypeError(f"A state holds numbers, text, lists, dicts and arrays; got {type(x).__name__}.")

    header = json.dumps(plain(tree), separators=(",", ":"), allow_nan=True).encode()
    body = [struct.pack("<Q", len(header)), header]
    body += [_little(a).reshape(-1).view(np.uint8).tobytes() for a in arrays]
    data = b"".join(body)
    return _MAGIC + struct.pack("<II", _VERSION, zlib.crc32(data)) + data


def unpack_state(data: bytes, what: str = "The state") -> Any:
    """The tree that `pack_state` made into bytes, its arrays numpy's.

    FormatError says what is wrong with them; `what` is what it calls them.
    """
    data = bytes(wanted(what, data, "bytes", bytes, bytearray, memoryview))
    if data[: len(_MAGIC)] != _MAGIC:
        raise FormatError(_not_ours(data, what))
    if len(data) < _HEAD.size:
        raise FormatError(f"{what} is cut off: {len(data)} bytes, its head alone has {_HEAD.size}.")
    _, version, checksum, length = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise FormatError(f"{what} is of version {version}; this mxlite reads version {_VERSION}.")
    if zlib.crc32(data[16:]) != checksum:
        raise FormatError(f"{what} is cut off or corrupt: the checksum of its {len(data)} bytes is wrong.")
    offset = _HEAD.size + length
    if offset > len(data):
        raise FormatError(f"{what} is corrupt: a header of {length} bytes in {len(data)} bytes.")
    try:
        header = json.loads(data[_HEAD.size : offset])
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is corrupt: its header is not JSON ({error}).") from None

    def tree(x: Any) -> Any:
        nonlocal offset
        if isinstance(x, list):
            return [tree(v) for v in x]
        if not isinstance(x, dict):
            return x
        if list(x) != [_ARRAY]:
            return {k: tree(v) for k, v in x.items()}
        dtype, shape = _described(x[_ARRAY], what)
        nbytes = dtype.itemsize * math.prod(shape)
        if offset + nbytes > len(data):
            raise FormatError(
                f"{what} is corrupt: an array of {nbytes} bytes at byte {offset} of {len(data)}."
            )
        raw = np.frombuffer(data, np.uint8, nbytes, offset).copy()
        offset += nbytes
        return _little(raw.view(dtype).reshape(shape))

    result = tree(header)
    if offset != len(data):
        raise FormatError(f"{what} is corrupt: {len(data) - offset} bytes follow its last array.")
    return result


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Name in the file: mxlite's types, and the unsigned words that random generators keep."""
    return dtype.name if dtype.name in ("uint32", "uint64") else str(as_dtype(dtype))


def _described(x: Any, what: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        name, shape = x
        dtype = np.dtype(name) if name in ("uint32", "uint64") else as_dtype(str(name))
        if isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape) and len(shape) <= 32:
            return dtype, tuple(shape)
    except (TypeError, ValueError, DTypeError):
        pass
    raise FormatError(f"{what} is corrupt: {x!r} does not describe an array.")


def _little(array: np.ndarray) -> np.ndarray:
    """To or from little-endian; nothing to do on almost every machine."""
    return array if sys.byteorder == "little" else array.byteswap()


def _not_ours(data: bytes, what: str) -> str:
    if data[:1] == b"\x80" or (data[:1] in b"(}]c" and data[-1:] == b"." and data):
        return (
            f"{what} is a Python pickle, as MXNet writes its .states files. Reading a pickle runs whatever "
            f"code is inside, so mxlite does not. Load the parameters and start with fresh optimizer states."
        )
    return f"{what} is not an mxlite state: it starts with {data[:8]!r}, not {_MAGIC!r}."
