"""Files of records: MXNet's own, byte for byte, and files that lie."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mxlite.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, pack_img, unpack, unpack_img

import mxlite as mx
from mxlite.core import FormatError, StateError
from mxlite.io.recordio.record import next_record, read_record, record_offsets

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"
MAGIC = struct.pack("<I", 0xCED7230A)
PAYLOADS = [
    b"", b"a", MAGIC, b"xyz" + MAGIC, MAGIC * 3, b"abcd" + MAGIC + b"ef", b"abcdefgh" + MAGIC, b"q" * 1000,
    MAGIC[:3] + b"\0" + MAGIC + MAGIC[:2],
]  # fmt: skip
"""What records.rec holds, written by MXNet."""


def records_of(path):
    with MXRecordIO(path, "r") as file:
        return list(iter(file.read, None))


def test_mxnets_records_are_read_and_written_again_byte_for_byte(tmp_path):
    assert records_of(GOLDEN / "records.rec") == PAYLOADS
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        for payload in PAYLOADS:
            file.write(payload)
    assert (tmp_path / "a.rec").read_bytes() == (GOLDEN / "records.rec").read_bytes()


def test_mxnets_index_finds_records_and_is_written_again(tmp_path):
    theirs = MXIndexedRecordIO(GOLDEN / "images.idx", GOLDEN / "images.rec", "r")
    assert theirs.keys == [0, 3, 6, 9, 12]
    ours = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for key in theirs.keys:
        ours.write_idx(key, theirs.read_idx(key))
    ours.close()
    for name in ("idx", "rec"):
        assert (tmp_path / f"a.{name}").read_bytes() == (GOLDEN / f"images.{name}").read_bytes()
    header, raw = unpack(theirs.read_idx(6))
    assert header == (0, 2.5, 2, 0) and raw[1:4] == b"PNG"
    with pytest.raises(KeyError, match="no record 7"):
        theirs.read_idx(7)
    theirs.close()


def test_labels_in_arrays_are_mxnets():
    records = records_of(GOLDEN / "labels.rec")
    for i, record in enumerate(records):
        header, raw = unpack(record)
        assert header.flag == 3 and header.id == i and header.id2 == 2 and raw == b"payload"
        np.testing.assert_array_equal(header.label, np.float32([i, 2 * i, 7]))
        assert pack(header, raw) == pack(IRHeader(0, [i, 2 * i, 7], i, 2), raw) == record
    assert pack((0, 4, 1, 0), b"x") == struct.pack("<IfQQ", 0, 4, 1, 0) + b"x"


def test_a_record_with_a_label_must_have_its_bytes():
    with pytest.raises(FormatError, match="at least 24 bytes, this one 5"):
        unpack(b"12345")
    with pytest.raises(FormatError, match=r"4,294,967,295 labels.*only 4 follow"):
        unpack(struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + b"abcd")


@settings(max_examples=60, deadline=None)
@given(payloads=st.lists(st.lists(st.sampled_from([MAGIC, b"\0", b"ab", MAGIC[:2]]), max_size=9), max_size=5))
def test_any_payload_comes_back_and_is_found_from_anywhere(tmp_path_factory, payloads):
    path = tmp_path_factory.mktemp("rec") / "a.rec"
    raw = [b"".join(p) for p in payloads]
    begins = []
    with MXRecordIO(path, "w") as file:
        for payload in raw:
            begins.append(file.tell())
            file.write(payload)
    assert records_of(path) == raw
    size = path.stat().st_size
    with open(path, "rb") as file:
        assert list(record_offsets(file, "a")) == begins
        for at in range(0, size + 1, 3):
            assert next_record(file, at) == min((b for b in begins if b >= at), default=size)


def test_a_record_far_from_the_last_one_is_found(tmp_path):
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        file.write(b"\1" * (3 << 20))
        second = file.tell()
        file.write(b"b")
    with open(tmp_path / "a.rec", "rb") as file:
        assert next_record(file, 4) == second and next_record(file, second - 4) == second


def test_every_truncated_file_is_refused_with_the_byte(tmp_path):
    whole = (GOLDEN / "records.rec").read_bytes()
    ends = set()
    with open(GOLDEN / "records.rec", "rb") as file:
        while read_record(file, "r") is not None:
            ends.add(file.tell())
    path = tmp_path / "cut.rec"
    for length in range(1, 150):
        path.write_bytes(whole[:length])
        if length in ends:
            records_of(path)
            continue
        with MXRecordIO(path, "r") as file, pytest.raises(FormatError, match=r"cut\.rec.* at byte \d"):
            while file.read() is not None:
                pass
        with open(path, "rb") as raw, pytest.raises(FormatError, match=r"byte \d"):
            list(record_offsets(raw, "cut.rec"))


def test_a_length_that_lies_allocates_nothing(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(MAGIC + struct.pack("<I", (1 << 29) - 1) + b"abcd")
    with MXRecordIO(path, "r") as file:
        for _ in range(2):  # the position stays before the error
            with pytest.raises(FormatError, match=r"record at byte 0 wants 536,870,912 bytes.* only 4 more"):
                file.read()


def test_parts_in_the_wrong_order_are_named(tmp_path):
    path = tmp_path / "a.rec"
    for flags, words in (((2,), "flag 2, which does not begin"), ((1, 0), "flag 0, which does not continue"),
                         ((7,), "flag 7"), ((1, 1, 3), "byte 8 has the flag 1")):  # fmt: skip
        path.write_bytes(b"".join(MAGIC + struct.pack("<I", f << 29) for f in flags))
        with MXRecordIO(path, "r") as file, pytest.raises(FormatError, match=words):
            file.read()
    path.write_bytes(b"not a record at all.")
    with MXRecordIO(path, "r") as file, pytest.raises(FormatError, match="no record at byte 0: 0x20746F6E"):
        file.read()


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_damaged_files_raise_format_errors_and_nothing_else(tmp_path_factory, data):
    raw = bytearray((GOLDEN / "records.rec").read_bytes()[:200])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("rec") / "a.rec"
    path.write_bytes(bytes(raw))
    with MXRecordIO(path, "r") as file:
        try:
            while (record := file.read()) is not None:
                assert len(record) < 1000
                unpack(record)
        except FormatError:
            pass


@pytest.mark.parametrize(
    "text, words",
    [
        ("0\t0\n1 8\n", "line 2: should be a key"),
        ("0\t-4\n", "line 1"),
        ("x\t0\n", "line 1"),
        ("0\t99999\n", "line 1: record 0 is at byte 99,999, but the file has 1,164"),
        ("0\n", "line 1"),
    ],
)
def test_damaged_indexes_are_refused_by_line(tmp_path, text, words):
    (tmp_path / "a.idx").write_text(text)
    with pytest.raises(FormatError, match=words):
        MXIndexedRecordIO(tmp_path / "a.idx", GOLDEN / "records.rec", "r")


def test_files_are_used_as_they_were_opened(tmp_path):
    with pytest.raises(ValueError, match="'r' to read or 'w' to write"):
        MXRecordIO(tmp_path / "a", "a")
    file = MXRecordIO(tmp_path / "a", "w")
    with pytest.raises(StateError, match="not to be read"):
        file.read()
    with pytest.raises(TypeError, match="bytes, got str"):
        file.write("text")
    with pytest.raises(StateError, match="being written"):
        pickle.dumps(file)
    file.write(b"1")
    file.close()
    file.close()
    with pytest.raises(StateError, match="closed"):
        file.write(b"2")
    file = MXRecordIO(tmp_path / "a", "r")
    assert file.read() == b"1" and file.read() is None
    again = pickle.loads(pickle.dumps(file))
    assert again.read() == b"1"
    file.reset()
    assert file.read() == b"1"
    file.pid = os.getpid() + 1  # as after a fork
    with pytest.raises(RuntimeError, match="must open its own"):
        file.read()
    file.close()
    again.close()


def test_images_in_records_are_opencvs():
    pixels = np.random.RandomState(0).randint(0, 255, (9, 7, 3)).astype("uint8")
    header, back = unpack_img(pack_img(IRHeader(0, 3, 1, 0), pixels, quality=3, img_fmt=".png"))
    assert header.label == 3 and np.array_equal(back, pixels)  # blue green red, in and out
    rgb = mx.image.imdecode(unpack(pack_img((0, 0, 0, 0), pixels, 3, ".png"))[1])
    assert np.array_equal(rgb.asnumpy(), pixels[..., ::-1])
    gray = pack_img((0, 0, 0, 0), pixels[..., 0], 3, ".png")
    assert unpack_img(gray)[1].shape == (9, 7) and unpack_img(gray, 1)[1].shape == (9, 7, 3)
    alpha = np.dstack([pixels, pixels[..., :1]])
    assert np.array_equal(unpack_img(pack_img((0, 0, 0, 0), alpha, 3, ".png"))[1], alpha)
    smooth = np.full((16, 16, 3), (200, 100, 50), "uint8")
    jpeg = unpack_img(pack_img((0, 0, 0, 0), smooth), 1)[1]
    assert np.abs(jpeg.astype(int) - smooth).max() <= 3
    with pytest.raises(ValueError, match=r"\.jpg' or '\.png"):
        pack_img((0, 0, 0, 0), pixels, img_fmt=".gif")
    with pytest.raises(FormatError, match="uint8, got"):
        pack_img((0, 0, 0, 0), pixels / 255)
