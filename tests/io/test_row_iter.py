"""CSVIter and LibSVMIter against MXNet 1.9.1's batches; malformed lines; resuming."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import FormatError, ShapeError, StateError
from mxlite.module.saved.statefile import pack_state, unpack_state
from tests.io.batches import read

ROWS = np.array([[i, i + 0.5, 2 * i] for i in range(5)], "float32")


@pytest.fixture
def csv(tmp_path):
    (tmp_path / "d.csv").write_text("0,0.5, 0\n1,1.5, 2\n\n2,2.5, 4\n3,3.5, 6\n4,4.5, 8\n")
    (tmp_path / "l.csv").write_text("1\n2\n3\n4\n5\n")
    return {"data_csv": tmp_path / "d.csv", "label_csv": tmp_path / "l.csv", "data_shape": (3,)}


@pytest.fixture
def svm(tmp_path):
    (tmp_path / "d.svm").write_text("1.0 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2\n4 2:-1.2\n")
    (tmp_path / "l.svm").write_text("1.0\n-2.0 0:0.125\n-3.0 2:1.2\n4 1:1.0 2:-1.2\n")
    return tmp_path


def epochs(it, count=3):
    seen = []
    for _ in range(count):
        seen.append([(b.data[0].asnumpy()[:, 0].tolist(), b.label[0].asnumpy().tolist(), b.pad) for b in it])
        it.reset()
    return seen


def test_csv_batches_are_mxnets(csv):
    it = mx.io.CSVIter(**csv, batch_size=2)
    assert it.provide_data == [("data", (2, 3))] and it.provide_label == [("softmax_label", (2,))]
    first, second = [([0, 1], [1, 2], 0), ([2, 3], [3, 4], 0)], [([1, 2], [2, 3], 0), ([3, 4], [4, 5], 0)]
    # The fifth row and the first fill a batch; the next epoch goes on behind that first row.
    assert epochs(it) == [[*first, ([4, 0], [5, 1], 1)], second, [*first, ([4, 0], [5, 1], 1)]]
    it = mx.io.CSVIter(**csv, batch_size=2, round_batch=False)
    assert epochs(it) == [[*first, ([4, 0], [5, 0], 1)]] * 3
    np.testing.assert_array_equal(mx.io.CSVIter(**csv, batch_size=5).next().data[0].asnumpy(), ROWS)


def test_csv_shapes_dtypes_and_missing_labels(csv):
    del csv["label_csv"]
    it = mx.io.CSVIter(**{**csv, "data_shape": (3, 1)}, batch_size=2, label_shape=(2, 2))
    assert it.provide_data == [("data", (2, 3, 1))] and it.provide_label == [("softmax_label", (2, 2, 2))]
    assert not it.next().label[0].asnumpy().any()
    whole = csv["data_csv"].with_name("whole.csv")
    whole.write_text("9007199254740993,2\n")
    batch = mx.io.CSVIter(data_csv=whole, data_shape=(2,), batch_size=1, dtype="int64").next()
    assert batch.data[0].asnumpy().tolist() == [[9007199254740993, 2]]


@pytest.mark.parametrize(
    "text, words",
    [
        ("1,2,3\n1,2\n", "line 2: 2 numbers, but the shape wants 3"),
        ("1,2,3\n\n1,x,3\n", "line 3: 'x' is no float32"),
        ("1,2,3,4\n1,2,3,4\n", "line 1: 4 numbers"),
        ("1,,3\n", "line 1: '' is no float32"),
        ("1," * 400, "line 1: longer than 256"),
        ("a,b,c\n1,2,3\n", "line 1: 'a'"),
    ],
)
def test_malformed_csv_lines_are_named(csv, text, words):
    csv["data_csv"].write_text(text)
    it = mx.io.CSVIter(**csv, batch_size=2)
    with pytest.raises(FormatError, match=words):
        it.next()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("letter", ["\U0009f600", "\U0010ffff", "é", "٣"])
def test_letters_beyond_ascii_are_refused(csv, letter, dtype):
    """numpy reads outside of a table for them, and the process may end."""
    csv["data_csv"].write_text(f"1,2,3\n{letter},2,3\n" * 20, encoding="utf-8")
    it = mx.io.CSVIter(**csv, batch_size=2, dtype=dtype)
    with pytest.raises(FormatError):
        it.next()


def test_a_batch_has_one_array_of_each_kind_as_mxnet_s_has(csv):
    it = mx.io.CSVIter(**csv, batch_size=2)
    assert it.iter_next()
    data, label = it.getdata(), it.getlabel()
    it.reset()
    batch = it.next()
    assert data.shape == batch.data[0].shape and label.shape == batch.label[0].shape
    assert (data.asnumpy() == batch.data[0].asnumpy()).all()


def test_csv_arguments_are_checked(csv):
    with pytest.raises(ShapeError, match="11 rows make a batch"):
        mx.io.CSVIter(**csv, batch_size=11).next()
    with pytest.raises(StateError, match="no present batch"):
        mx.io.CSVIter(**csv, batch_size=2).getdata()
    assert mx.io.CSVIter(**csv, batch_size=2, dtype=None).next().data[0].dtype == np.float32
    with pytest.raises(ValueError, match="dtype is one of"):
        mx.io.CSVIter(**csv, batch_size=2, dtype="float16")
    with pytest.raises(ValueError, match="batch_size"):
        mx.io.CSVIter(**csv, batch_size=0)
    with pytest.raises(ShapeError, match="data_shape"):
        mx.io.CSVIter(**{**csv, "data_shape": (0,)}, batch_size=2)
    csv["label_csv"].write_text("1\n")
    with pytest.raises(FormatError, match=r"l\.csv ends before"):
        mx.io.CSVIter(**csv, batch_size=2).next()


def test_libsvm_batches_are_mxnets_but_dense(svm):
    it = mx.io.LibSVMIter(data_libsvm=svm / "d.svm", data_shape=(3,), batch_size=3)
    assert it.provide_data == [("data", (3, 3))] and it.provide_label == [("softmax_label", (3,))]
    batch = it.next()
    np.testing.assert_allclose(batch.data[0].asnumpy(), [[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2]])
    assert batch.label[0].asnumpy().tolist() == [1, -2, -3]
    batch = it.next()
    np.testing.assert_allclose(batch.data[0].asnumpy(), [[0, 0, -1.2], [0.5, 0, 1.2], [0, 0, 0]])
    assert batch.label[0].asnumpy().tolist() == [4, 1, -2] and batch.pad == 2
    with pytest.raises(StopIteration):
        it.next()
    it.reset()
    assert it.next().label[0].asnumpy().tolist() == [-3, 4, 1]
    both = dict(data_libsvm=svm / "d.svm", label_libsvm=svm / "l.svm", data_shape=(3,), label_shape=(3,))
    it = mx.io.LibSVMIter(**both, batch_size=3)
    np.testing.assert_allclose(it.next().label[0].asnumpy(), [[0, 0, 0], [0.125, 0, 0], [0, 0, 1.2]])


def test_libsvm_parts_have_every_line_once(svm):
    seen = []
    for part in range(3):
        more = dict(data_shape=(3,), batch_size=1, num_parts=3, part_index=part)
        seen += [float(b.label[0]) for b in mx.io.LibSVMIter(data_libsvm=svm / "d.svm", **more)]
    assert sorted(seen) == [-3, -2, 1, 4]


@pytest.mark.parametrize(
    "text, words",
    [
        ("1 0:1\n2 3:1\n", r"line 2: index 3 is not in \[0, 3\)"),
        ("1 -1:1\n", "line 1: index -1"),
        ("1 0.5:1\n", "line 1: index 0.5"),
        ("1 0:x\n", "line 1: should be a label"),
        ("1 0\n", "line 1: should be"),
        ("1 0:1:2\n", "line 1: should be"),
        ("0:1 1:2\n", "line 1: should be"),
        ("1" + " 0:1" * 200, "line 1: longer than"),
    ],
)
def test_malformed_libsvm_lines_are_named(svm, text, words):
    (svm / "d.svm").write_text(text)
    it = mx.io.LibSVMIter(data_libsvm=svm / "d.svm", data_shape=(3,), batch_size=1)
    with pytest.raises(FormatError, match=words):
        list(it)


def test_libsvm_arguments_are_checked(svm):
    given = dict(data_libsvm=svm / "d.svm", batch_size=1)
    with pytest.raises(ShapeError, match="one axis"):
        mx.io.LibSVMIter(**given, data_shape=(3, 1))
    with pytest.raises(ShapeError, match="label_shape is"):
        mx.io.LibSVMIter(**given, data_shape=(3,), label_shape=(3,))
    with pytest.raises(ValueError, match="round_batch must be True"):
        mx.io.LibSVMIter(**given, data_shape=(3,), round_batch=False)
    with pytest.raises(ValueError, match="part_index"):
        mx.io.LibSVMIter(**given, data_shape=(3,), num_parts=2, part_index=2)


@pytest.mark.parametrize("steps", range(8))
def test_a_resumed_iterator_gives_the_batches_of_one_that_never_stopped(csv, steps):
    first, second = (mx.io.CSVIter(**csv, batch_size=2) for _ in range(2))
    read(first, steps)
    second.set_state(unpack_state(pack_state(first.state())))
    assert read(second, 6) == read(first, 6)
    with pytest.raises(FormatError, match="batch_size"):
        first.set_state({**first.state(), "batch_size": 9})
    with pytest.raises(FormatError, match="behind the end"):
        first.set_state({**first.state(), "read": 99})
