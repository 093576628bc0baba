"""Readers of arrays in MXNet's containers: `.params` and `.nd`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import golden, Reader, scratch, SMALL


@cache
def _containers() -> list[bytes]:
    rows = mx.nd.sparse.row_sparse_array((np.ones((2, 3), "f"), [1, 4]), shape=(6, 3))
    matrix = mx.nd.sparse.csr_matrix(np.eye(4, dtype="f"))
    path = Path(scratch()) / "seed.nd"
    mx.nd.save(str(path), {"arg:a": rows, "arg:b": matrix, "aux:c": mx.nd.ones((2, 3), dtype="int8")})
    made = [path.read_bytes()]
    return made + golden("mxnet/*.nd")() + [x[:3000] for x in golden("mxnet/*.params")()]


def _use_arrays(data: bytes, folder: Path) -> None:
    path = folder / "a.nd"
    path.write_bytes(data)
    found = mx.nd.load(str(path))
    arrays = list(found.values()) if isinstance(found, dict) else found
    for a in arrays:
        if a.stype != "default":
            a.check_format(full_check=False)
            a.copy()
            a.indices.asnumpy(), a.data.asnumpy()
        if a.size <= 50 * SMALL or a.stype != "default":
            whole = a.asnumpy()
            assert whole.shape == a.shape
            if a.size <= SMALL and whole.dtype.kind in "f":
                (a * 2).asnumpy()
    if all(a.size <= SMALL for a in arrays):
        mx.nd.save(str(path), found)
        mx.nd.load(str(path))


READERS = (Reader("arrays", _containers, _use_arrays),)
