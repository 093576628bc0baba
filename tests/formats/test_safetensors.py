"""Safetensors files: both ways with PyTorch, and files that anybody may have written."""

import json
import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("safetensors", reason="its files are read with it")

import mxlite as mx
from mxlite.core import ArgumentError, FormatError
from mxlite.core.errors import FileError

ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.ones((2, 0, 3), np.float16),
    "brain": np.asarray([1.5, -2], ml_dtypes.bfloat16),
    "count": np.asarray(7, np.int64),
    "mask": np.asarray([[True], [False]]),
}


def written(header, numbers=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def test_arrays_come_back_as_they_were(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {n: mx.nd.array(a, dtype=a.dtype) for n, a in ARRAYS.items()}
    mean = mx.nd.array([3.0])
    mx.formats.save_safetensors(path, arrays, {"mean": mean})
    found = mx.formats.load_safetensors(path)
    assert found.keys() == {*ARRAYS, "mean"}
    for name, array in ARRAYS.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        assert np.array_equal(found[name].asnumpy(), array)
    with pytest.raises(ArgumentError, match="'mean' is an argument and an auxiliary state"):
        mx.formats.save_safetensors(path, {"mean": mean}, {"mean": mean})


def test_one_array_at_a_time_is_held_twice(tmp_path):
    arrays = {f"weight{i}": mx.nd.ones((256, 1024)) for i in range(6)}
    mx.nd.waitall()
    tracemalloc.start()
    try:
        mx.formats.save_safetensors(tmp_path / "model.safetensors", arrays)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * 2**20
    finally:
        tracemalloc.stop()
    with pytest.raises(ArgumentError, match="cannot have '__metadata__', of type float32"):
        mx.formats.save_safetensors(tmp_path / "other.safetensors", {"__metadata__": arrays["weight0"]})
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.torch
def test_a_state_dict_of_pytorch_goes_there_and_back(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    make = lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))  # noqa: E731
    source, target, theirs = make(), make(), tmp_path / "theirs.safetensors"
    source[1].running_mean += 2
    save_file(source.state_dict(), theirs)
    symbol, _, _ = mx.from_torch(target, torch.randn(5, 4))
    module = mx.mod.Module(symbol, data_names=("input",), label_names=None)
    module.bind([("input", (5, 4))])
    arrays = mx.formats.load_safetensors(theirs)
    module.set_params(arrays, arrays, allow_extra=True)
    ours = tmp_path / "ours.safetensors"
    mx.formats.save_safetensors(ours, *module.get_params())
    target.load_state_dict(load_file(ours))
    assert all(torch.equal(t, source.state_dict()[n]) for n, t in target.state_dict().items())


def one(kind, shape, first, last):
    """A file with one array, whose header says this."""
    return written({"a": {"dtype": kind, "shape": shape, "data_offsets": [first, last]}}, bytes(8))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no safetensors file"),
        (b"\x08" * 9, "no safetensors file"),
        (struct.pack("<Q", 2**63) + b"{}", "no safetensors file"),
        (written(b"{"), "no safetensors file"),
        (written(b"\xff\xfe"), "no safetensors file"),
        (one("F32", [4], 0, 16), "damaged"),
        (one("F32", [2**40], 0, 8), "damaged"),
        (one("F32", [2**62, 4], 0, 8), "damaged"),
        (one("F32", [-2], 0, 8), "damaged"),
        (one("F32", [1], 4, 8), "damaged"),
        (one("X9", [2], 0, 8), "damaged"),
        (one("C64", [1], 0, 8), "'a' has elements of type C64"),
        (one("F8_E4M3", [8], 0, 8), "'a' has elements of type F8_E4M3"),
    ],
)
def test_a_file_of_another_kind_is_an_error_that_names_it(tmp_path, content, said):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=rf"hostile\.safetensors.*{said}"):
        mx.formats.load_safetensors(path)


def test_files_that_cannot_be_opened(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileError):
            mx.formats.load_safetensors(path)
