"""NDArray containers: MXNet's own files, byte for byte, and files that lie."""

from __future__ import annotations

import io
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mxlite.core import bfloat16, FLAGS, FormatError
from mxlite.formats import load_params, save_params
from mxlite.ndarray import array, load, load_frombuffer, NDArray, save, zeros
from mxlite.ndarray.files.container import read_container, write_container
from mxlite.ndarray.files.stored import FileSource

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"
WRITTEN_BY_MXNET = (
    "nd_list.nd",
    "nd_dict.nd",
    "nd_dtypes.nd",
    "nd_v2.nd",
    "nd_sparse.nd",
    "lenet-0001.params",
)
ALL = (*WRITTEN_BY_MXNET, "nd_v0.nd", "nd_v1.nd", "nd_v3.nd")
X = np.arange(6, dtype="float32").reshape(2, 3)


def written(arrays, names=()):
    file = io.BytesIO()
    write_container(file, arrays, names)
    return file.getvalue()


@pytest.mark.parametrize("name", WRITTEN_BY_MXNET)
def test_what_mxnet_wrote_is_written_again_byte_for_byte(name, tmp_path):
    save(tmp_path / name, load(GOLDEN / name))
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", ["nd_v0.nd", "nd_v1.nd", "nd_v2.nd"])
def test_old_versions_read_the_same_array(name):
    arrays = load(GOLDEN / name)
    assert list(arrays) == ["x"]
    np.testing.assert_array_equal(arrays["x"].asnumpy(), X)


def test_a_list_stays_a_list_and_a_dict_a_dict():
    a, b = load(GOLDEN / "nd_list.nd")
    np.testing.assert_array_equal(a.asnumpy(), X)
    np.testing.assert_array_equal(b.asnumpy(), np.ones(4))
    assert list(load(GOLDEN / "nd_dict.nd")) == ["arg:a", "aux:b"]


def test_every_dtype_of_mxnets_file_is_kept():
    for name, a in load(GOLDEN / "nd_dtypes.nd").items():
        assert a.dtype == np.dtype(name).type
        np.testing.assert_array_equal(a.asnumpy(), np.arange(5))


def test_v3_has_scalars_and_empty_arrays_and_is_written_where_v2_cannot_say_it():
    raw = (GOLDEN / "nd_v3.nd").read_bytes()
    arrays = load_frombuffer(raw)
    assert {k: v.shape for k, v in arrays.items()} == {"scalar": (), "empty": (2, 0), "x": (2, 3)}
    assert float(arrays["scalar"]) == 1
    again = written([a.asnumpy() for a in arrays.values()], list(arrays))
    third = raw.rindex(struct.pack("<I", 0xF993FACA))  # `x`, which we write as V2; all before is byte-equal
    assert again[:third] == raw[:third] and again[third : third + 4] == struct.pack("<I", 0xF993FAC9)
    assert {k: v.shape for k, v in load_frombuffer(again).items()} == {k: v.shape for k, v in arrays.items()}


def test_sparse_arrays_stay_sparse():
    arrays = load(GOLDEN / "nd_sparse.nd")
    assert {n: a.stype for n, a in arrays.items()} == {"csr": "csr", "rsp": "row_sparse"}
    np.testing.assert_array_equal(arrays["csr"].asnumpy(), [[0, 1, 0], [2, 0, 3]])
    np.testing.assert_array_equal(arrays["rsp"].asnumpy(), [[0, 0], [1, 2], [0, 0], [3, 4]])


@pytest.mark.parametrize("dtype", sorted(map(str, FLAGS.values())))
@pytest.mark.parametrize("shape", [(1,), (2, 3), (2, 1, 0), ()])
def test_every_dtype_and_shape_comes_back(dtype, shape):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (back,), names = read_container(FileSource.of(written([values]), "it"))
    assert back.dtype == values.dtype and back.shape == shape and not names
    np.testing.assert_array_equal(back, values)


def test_bfloat16_has_flag_12_and_keeps_its_bits():
    raw = written([np.array([1.5, -2], bfloat16)])
    assert struct.unpack_from("<i", raw, 24 + 4 + 4 + 4 + 8 + 8) == (12,)
    assert raw[56:60] == struct.pack("<HH", 0x3FC0, 0xC000)


def test_an_empty_list_is_32_bytes(tmp_path):
    save(tmp_path / "none", [])
    assert (tmp_path / "none").read_bytes() == struct.pack("<4Q", 0x112, 0, 0, 0)
    assert load(tmp_path / "none") == []


def test_bytes_after_the_last_name_are_ignored():
    assert list(load_frombuffer((GOLDEN / "nd_v2.nd").read_bytes() + b"more")) == ["x"]


def test_a_gpu_array_is_read_to_the_cpu():
    raw = bytearray((GOLDEN / "nd_v2.nd").read_bytes())
    raw[0x34:0x3C] = struct.pack("<ii", 2, 3)
    assert str(load_frombuffer(bytes(raw))["x"].ctx) == "cpu(0)"


def test_an_array_that_was_never_initialised_is_empty():
    none = struct.pack("<QQQIiiQ", 0x112, 0, 1, 0xF993FAC9, 0, 0, 0)
    assert load_frombuffer(none)[0].shape == (0,)


@pytest.mark.parametrize("name", ALL)
def test_a_file_cut_at_any_byte_is_refused(name):
    raw = (GOLDEN / name).read_bytes()
    step = 1 if len(raw) < 3000 else len(raw) // 500
    for end in range(0, len(raw), step):
        with pytest.raises(FormatError):
            load_frombuffer(raw[:end])


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_flipped_bytes_give_an_error_or_arrays_never_a_crash_or_a_huge_allocation(name, data):
    raw = bytearray((GOLDEN / name).read_bytes())
    head = min(len(raw), 400)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, head - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    tracemalloc.start()
    try:
        load_frombuffer(bytes(raw))
    except FormatError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 80 * 2**20


@pytest.mark.parametrize("dims", [(2**40,), (2**31, 2**31, 2**31), (2**62, 2**62)])
def test_a_shape_larger_than_the_file_is_refused_before_allocation(dims):
    raw = struct.pack(f"<QQQIii{len(dims)}qiii", 0x112, 0, 1, 0xF993FAC9, 0, len(dims), *dims, 1, 0, 0)
    with pytest.raises(FormatError, match="cut short"):
        load_frombuffer(raw)


def sparse_of(shape, rows):
    """A row_sparse array of `shape` that stores `rows`, all ones."""
    stored = (len(rows), *shape[1:])
    raw = struct.pack("<QQQIi", 0x112, 0, 1, 0xF993FAC9, 1)
    raw += struct.pack(
        f"<i{len(stored)}qi{len(shape)}qiii", len(stored), *stored, len(shape), *shape, 1, 0, 0
    )
    raw += struct.pack("<iiq", 6, 1, len(rows)) + np.ones(stored, "<f4").tobytes()
    return raw + np.array(rows, "<i8").tobytes() + struct.pack("<Q", 0)


def test_a_sparse_array_takes_what_it_stores():
    assert load_frombuffer(sparse_of((2**40, 2), [1]))[0].data.asnumpy().tolist() == [[1, 1]]
    assert load_frombuffer(sparse_of((5, 2), [3, 1]))[0].indices.asnumpy().tolist() == [1, 3]
    with pytest.raises(FormatError, match="once"):
        load_frombuffer(sparse_of((5, 2), [3, 3]))
    assert load_frombuffer(sparse_of((1000, 2), [1]))[0].asnumpy().sum() == 2


@pytest.mark.parametrize("rows", [[-1], [5], [0, 2**40]])
def test_sparse_rows_out_of_range_are_refused(rows):
    with pytest.raises(FormatError, match="rows"):
        load_frombuffer(sparse_of((5, 2), rows))


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0x00, b"\x13", "starts with 0x113"),
        (0x18, b"\x21\x00\x00\x00", "no version"),
        (0x1C, b"\x07", "storage type 7"),
        (0x20, b"\x21", "33 axes"),
        (0x2B, b"\xff", "negative"),
        (0x34, b"\x09", "device"),
        (0x3C, b"\x63", "dtype number 99"),
        (0x58, b"\x02", "2 names for 1 arrays"),
        (0x68, b"\xff", "not UTF-8"),
    ],
)
def test_each_wrong_field_is_named(at, value, match):
    raw = bytearray((GOLDEN / "nd_v2.nd").read_bytes())
    raw[at : at + len(value)] = value
    with pytest.raises(FormatError, match=match):
        load_frombuffer(bytes(raw))


def test_an_error_names_the_file_and_the_byte(tmp_path):
    (tmp_path / "cut.params").write_bytes((GOLDEN / "nd_v2.nd").read_bytes()[:70])
    with pytest.raises(FormatError, match=r"cut\.params .* at byte 64, .*24 bytes, but 6 are left"):
        load(tmp_path / "cut.params")


def test_two_arrays_of_one_name_are_refused():
    with pytest.raises(FormatError, match="two arrays of the name 'a'"):
        load_frombuffer(written([X, X], ["a", "a"]))


def test_a_failed_save_leaves_the_old_file(tmp_path):
    save(tmp_path / "f", {"x": array(X)})
    before = (tmp_path / "f").read_bytes()
    with pytest.raises(TypeError):
        save(tmp_path / "f", {"x": X})
    broken = array(X)
    broken.storage = np.array([None])  # fails while it is being written
    with pytest.raises(TypeError):
        save(tmp_path / "f", [array(X), broken])
    assert (tmp_path / "f").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


# -- parameters of a checkpoint ------------------------------------------------------------------------


def test_parameters_are_split_into_arguments_and_states(tmp_path):
    arg, aux = load_params(GOLDEN / "lenet-0001.params")
    assert len(arg) == 8 and not aux
    assert all(isinstance(a, NDArray) for a in arg.values())
    save_params(tmp_path / "p", arg, {"bn_moving_mean": zeros(2)})
    again, states = load_params(tmp_path / "p")
    assert list(again) == list(arg) and list(states) == ["bn_moving_mean"]


def test_the_lenet_file_is_written_again_byte_for_byte(tmp_path):
    save_params(tmp_path / "p", *load_params(GOLDEN / "lenet-0001.params"))
    assert (tmp_path / "p").read_bytes() == (GOLDEN / "lenet-0001.params").read_bytes()


@pytest.mark.parametrize("name", ["weight", "foo:weight"])
def test_other_names_are_refused_with_advice(name, tmp_path):
    save(tmp_path / "p", {name: zeros(2)})
    with pytest.raises(FormatError, match=r"'arg:NAME'.*mx\.nd\.load"):
        load_params(tmp_path / "p")


def test_arrays_without_names_are_no_parameters(tmp_path):
    save(tmp_path / "p", [zeros(2)])
    with pytest.raises(FormatError, match="without names"):
        load_params(tmp_path / "p")
    save(tmp_path / "p", {})
    assert load_params(tmp_path / "p") == ({}, {})


# `arange(1, ctx=gpu()).__getstate__()["handle"]` of MXNet: version 2, dense, (1,), gpu(0), float32, 0.
GPU_ARRAY = struct.pack("<IiiqiiiI", 0xF993FAC9, 0, 1, 1, 2, 0, 0, 0)


def test_the_state_of_an_array_that_mxnet_pickled_is_read_without_its_device():
    target = zeros((2, 2))
    target.__setstate__({"handle": bytearray(GPU_ARRAY)})
    assert target.shape == (1,) and target.asnumpy().tolist() == [0] and str(target.context) == "cpu(0)"
    made = NDArray(None)  # as pickle calls it
    made.__setstate__({"handle": GPU_ARRAY[:-4] + np.float32(3).tobytes()})
    assert (made + 1).asnumpy().tolist() == [4]


@pytest.mark.parametrize(
    "handle", [GPU_ARRAY[:20], GPU_ARRAY[:-1], GPU_ARRAY + b"x", b"", GPU_ARRAY[:12] + b"\xff" * 24]
)
def test_a_pickled_state_that_is_no_array_is_refused(handle):
    target = zeros((2, 2))
    with pytest.raises(FormatError):
        target.__setstate__({"handle": handle})
    assert target.asnumpy().tolist() == [[0, 0], [0, 0]]
