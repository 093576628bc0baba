"""Readers of RecordIO files with their index, as records and as batches of images."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import mxlite as mx
from torture.readers.kinds.reader import GOLDEN, Reader, scratch

_CUT = b"\n--index--\n"


@cache
def record_files() -> list[bytes]:
    folder = Path(scratch())
    rec = mx.recordio.MXIndexedRecordIO(str(folder / "a.idx"), str(folder / "a.rec"), "w")
    pixels = np.arange(12 * 10 * 3, dtype="uint8").reshape(12, 10, 3)
    boxes = [2, 5, 0, 0.1, 0.1, 0.6, 0.7, 1, 0.3, 0.2, 0.9, 0.8]
    for i in range(4):
        head = mx.recordio.IRHeader(0, boxes if i % 2 else [2, 5, 1, 0, 0, 1, 1], i, 0)
        rec.write_idx(i, mx.recordio.pack_img(head, pixels, *((90, ".jpg") if i < 2 else (3, ".png"))))
    rec.close()
    made = [(folder / "a.rec").read_bytes() + _CUT + (folder / "a.idx").read_bytes()]
    for name in ("images", "labels", "records"):
        index = GOLDEN / "mxnet" / f"{name}.idx"
        index_bytes = index.read_bytes() if index.exists() else b"0\t0\n"
        made.append((GOLDEN / "mxnet" / f"{name}.rec").read_bytes() + _CUT + index_bytes)
    return made


def _rec_files(data: bytes, folder: Path) -> tuple[str, str]:
    records, _, index = data.partition(_CUT)
    (folder / "a.rec").write_bytes(records)
    (folder / "a.idx").write_bytes(index)
    return str(folder / "a.rec"), str(folder / "a.idx")


def _use_records(data: bytes, folder: Path) -> None:
    rec, idx = _rec_files(data, folder)
    errors = []
    try:
        file = mx.recordio.MXIndexedRecordIO(idx, rec, "r")
        for key in file.keys[:50]:
            mx.recordio.unpack(file.read_idx(key) or b"")
    except mx.MXLiteError as error:
        errors.append(error)
    plain = mx.recordio.MXRecordIO(rec, "r")
    count = 0
    while (record := plain.read()) is not None and count < 1000:
        count += 1
        try:
            mx.recordio.unpack_img(record)
        except mx.MXLiteError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _use_image_records(data: bytes, folder: Path) -> None:
    rec, idx = _rec_files(data, folder)
    which = zlib.crc32(data)
    more = ({"path_imgidx": idx, "shuffle": True}, {"num_parts": 2, "part_index": 1}, {})[which % 3]
    how: dict[str, Any] = {
        "path_imgrec": rec,
        "data_shape": (3, 8, 8),
        "batch_size": 2,
        "preprocess_threads": 1,
    }
    iterators = (
        lambda: mx.io.ImageRecordIter(**how, **more),
        lambda: mx.io.ImageDetRecordIter(**how, **more),
        lambda: mx.image.ImageDetIter(2, (3, 8, 8), path_imgrec=rec, path_imgidx=idx),
        lambda: mx.image.ImageIter(2, (3, 8, 8), path_imgrec=rec, path_imgidx=idx, shuffle=True),
    )
    iterator = iterators[which // 3 % 4]()
    try:
        for i, batch in enumerate(iterator):
            batch.data[0].asnumpy(), batch.label[0].asnumpy()
            if i == 20:
                break
    finally:
        if hasattr(iterator, "close"):
            iterator.close()


READERS = (
    Reader("records", record_files, _use_records),
    Reader("image_records", record_files, _use_image_records),
)
