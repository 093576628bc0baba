"""Readers of number tables (CSV, LIBSVM, token vectors), and of MNIST's binary files."""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import mxlite as mx
from torture.readers.kinds.reader import Reader


def _table() -> list[bytes]:
    rows = ["1,2,3,4", "0.5,-1e3,7,.25", " 1, 2 ,3,4", "nan,inf,0,1", "+1,2.,3e-5,0"]
    return ["\n".join(rows * 3).encode(), b"1,2,3,4\r\n5,6,7,8\r\n\r\n9,10,11,12"]


def _use_csv(data: bytes, folder: Path) -> None:
    path = folder / "a.csv"
    path.write_bytes(data)
    dtype = ("float32", "float32", "float32", "int32", "int64")[zlib.crc32(data) % 5]
    drain(mx.io.CSVIter(str(path), (4,), 3, dtype=dtype, round_batch=bool(len(data) % 2)))


def _use_libsvm(data: bytes, folder: Path) -> None:
    path = folder / "a.libsvm"
    path.write_bytes(data)
    stype = ("csr", "default")[len(data) % 2]
    drain(mx.io.LibSVMIter(str(path), 8, 2, stype=stype, num_parts=1 + len(data) % 2))


def drain(iterator: Any) -> None:
    for i, batch in enumerate(iterator):
        for array in (*_listed(batch.data), *_listed(batch.label)):
            array.asnumpy()
        if i == 50:
            break
    iterator.set_state(iterator.state())


def _listed(arrays: Any) -> list[Any]:
    return arrays if isinstance(arrays, list) else [arrays]


def _use_embedding(data: bytes, folder: Path) -> None:
    path = folder / "vectors.txt"
    path.write_bytes(data)
    found = mx.contrib.text.embedding.CustomEmbedding(str(path))
    found.get_vecs_by_tokens(["the", "of"]).asnumpy()
    assert found.idx_to_vec.shape[0] == len(found)


@cache
def _idx() -> list[bytes]:
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 6, 4, 4) + bytes(range(96))
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 6) + bytes(range(6))
    return [images, labels, gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0)]


def _use_idx(data: bytes, folder: Path) -> None:
    for name, content in zip(("data", "images", "labels"), (data, *_idx()[:2])):
        (folder / name).write_bytes(content)
    data_name, images, labels = (str(folder / n) for n in ("data", "images", "labels"))
    errors = []
    for first, second in ((data_name, labels), (images, data_name)):
        try:
            drain(mx.io.MNISTIter(image=first, label=second, batch_size=2, silent=True))
        except mx.MXLiteError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]


_LIBSVM = [b"1 0:1 3:2.5\n0 1:1e3 7:-2\n\n2 2:3\n", b"1,2 0:1\n3,4 5:6 # x\n"]


_VECTORS = [b"the 1 2 3\nof 0.5 -1 2e3\nx 1 1 1\n", b"3 3\na 1 2 3\n"]


READERS = (
    Reader("csv", _table, _use_csv),
    Reader("libsvm", lambda: _LIBSVM, _use_libsvm),
    Reader("embedding", lambda: _VECTORS, _use_embedding),
    Reader("mnist", _idx, _use_idx),
)
