"""Files of about 1 MB made to take long: each is read, or refused, in time that goes with its size."""

from __future__ import annotations

import json
import struct
import time

import pytest

import mxlite as mx
from mxlite import FormatError

SIZE = 1_000_000
SECONDS = 2.0


def in_time(read, *args):
    """What it returns, or the FormatError that it raises."""
    began = time.process_time()
    try:
        found = read(*args)
    except FormatError as error:
        found = error
    assert time.process_time() - began < SECONDS
    return found


def indexed(tmp_path, lines):
    (tmp_path / "a.rec").write_bytes(struct.pack("<II", 0xCED7230A, 4) + b"abcd")
    (tmp_path / "a.idx").write_bytes(lines)
    return in_time(mx.recordio.MXIndexedRecordIO, str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r")


def test_an_index_whose_keys_land_in_one_place_of_a_dict_is_refused(tmp_path):
    """They are multiples of what Python's hash counts modulo of: 5 s for this megabyte, else."""
    keys = (i * (2**61 - 1) for i in range(SIZE // 26))
    found = indexed(tmp_path, b"".join(b"%d\t0\n" % key for key in keys))
    assert isinstance(found, FormatError) and "line 2:" in str(found)


@pytest.mark.parametrize(
    "line", [b"1\t0\n", b"1" * 4000, b"1\t" + b"0" * 4000 + b"\n", b"7\t0" + b" " * 4000 + b"\n"]
)
def test_an_index_of_many_or_long_lines_is_read_or_refused(tmp_path, line):
    found = indexed(tmp_path, line * (SIZE // len(line)))
    if not isinstance(found, FormatError):
        found.close()


def test_an_image_list_whose_numbers_land_in_one_place_of_a_dict_is_refused(tmp_path):
    lines = (b"%d\t1\tx.png\n" % (i * (2**61 - 1)) for i in range(SIZE // 33))
    (tmp_path / "a.lst").write_bytes(b"".join(lines))
    how = dict(path_imglist=str(tmp_path / "a.lst"), path_root=str(tmp_path))
    assert "line 2: should be a number" in str(in_time(lambda: mx.image.ImageIter(1, (3, 8, 8), **how)))


def test_a_symbol_whose_shapes_follow_to_and_fro(tmp_path):
    """Each sweep over the graph finds one shape: that of the next node, beyond all that is known."""
    count = 14_000
    nodes = [{"op": "null", "name": f"a{i}", "inputs": []} for i in range(count + 1)]
    nodes[0]["attrs"] = {"__shape__": "(2,)"}
    odd, even = range(1, count, 2), range(0, count, 2)
    for k in (*reversed(odd), *even):
        inputs = [[k, 0, 0], [k + 1, 0, 0]]
        nodes.append({"op": "elemwise_add", "name": f"s{k}", "inputs": inputs})
    top = {
        "nodes": nodes,
        "arg_nodes": list(range(count + 1)),
        "heads": [[count + 1 + k, 0, 0] for k in range(count)],
    }
    symbol = in_time(mx.sym.load_json, json.dumps(top))
    sweeps = in_time(symbol.infer_shape)[1]
    assert sweeps == [(2,)] * count


def test_a_container_of_many_arrays_and_two_names_the_same(tmp_path):
    count = SIZE // 60
    array = struct.pack("<Iii1qiii4x", 0xF993FAC9, 0, 1, 1, 1, 0, 0)
    names = [b"n%d" % min(i, count - 2) for i in range(count)]
    data = struct.pack("<QQQ", 0x112, 0, count) + array * count
    data += struct.pack("<Q", count) + b"".join(struct.pack("<Q", len(n)) + n for n in names)
    found = in_time(mx.nd.load_frombuffer, data)
    assert f"two arrays of the name 'n{count - 2}'" in str(found)


def field(number, data):
    """A field of a protocol buffer that has bytes in it."""
    size, head = len(data), b""
    while size > 127:
        head, size = head + bytes([size % 128 + 128]), size // 128
    return bytes([number << 3 | 2]) + head + bytes([size]) + data


def test_an_onnx_model_of_many_inputs(tmp_path):
    pytest.importorskip("google.protobuf")
    from mxlite.formats.onnx import import_model

    form = field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x01"))))
    names = [b"x", *(b"i%d" % i for i in range(SIZE // 40))]
    graph = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Relu"))
    graph += b"".join(field(11, field(1, name) + form) for name in names) + field(12, field(1, b"y") + form)
    path = tmp_path / "a.onnx"
    path.write_bytes(b"\x08\x07" + field(8, b"\x0a\x00\x10\x0d") + field(7, graph))
    shapes = {name.decode(): (1,) for name in names}
    symbol, _, _ = in_time(import_model, str(path), shapes)
    assert symbol.list_arguments() == ["x"]


def test_a_shape_of_many_axes_is_refused():
    node = {"op": "null", "name": "x", "inputs": [], "attrs": {"__shape__": "(" + "1," * 1000 + ")"}}
    symbol = mx.sym.load_json(json.dumps({"nodes": [node], "arg_nodes": [0], "heads": [[0, 0, 0]]}))
    with pytest.raises(mx.ShapeError, match="'x' cannot have 1000 axes: arrays have at most 32"):
        symbol.infer_shape()
