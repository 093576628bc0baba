"""Iterators against MXNet 1.9.1's batches; damaged files; resuming; threads that end."""

from __future__ import annotations

import gc
import gzip
import struct
import sys
import threading
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mxlite import io as mxio, nd
from mxlite.core import FormatError, ShapeError, StateError
from mxlite.io.datasets import FASHION_MNIST
from mxlite.module.saved.statefile import pack_state, unpack_state
from mxlite.ndarray import array

X = np.arange(10).reshape(10, 1)


def epoch(it: Any) -> list[tuple[list[int], int]]:
    return [(b.data[0].asnumpy().astype(int).ravel().tolist(), b.pad) for b in it]


def epochs(it: Any, count: int = 3) -> list[list[tuple[list[int], int]]]:
    result = []
    for _ in range(count):
        result.append(epoch(it))
        it.reset()
    return result


PAD = [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]
ROLLED = [([8, 9, 0, 1], 2), ([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)]


@pytest.mark.parametrize(
    "handle, expected",
    [("pad", [PAD] * 3), ("discard", [PAD[:2]] * 3), ("roll_over", [PAD[:2], ROLLED, PAD[:2]])],
)
def test_the_last_batch_is_handled_as_in_mxnet(handle: str, expected: Any) -> None:
    assert epochs(mxio.NDArrayIter(X, np.arange(10), 4, last_batch_handle=handle)) == expected


def test_pad_wraps_more_than_once() -> None:
    assert epochs(mxio.NDArrayIter(X[:3], None, 8), 2) == [[([0, 1, 2, 0, 1, 2, 0, 1], 5)]] * 2


SHUFFLED = {  # MXNet 1.9.1 with numpy.random.seed(7)
    "pad": [
        [([8, 5, 0, 2], 0), ([1, 9, 7, 3], 0), ([6, 4, 8, 5], 2)],
        [([9, 0, 8, 4], 0), ([1, 6, 5, 3], 0), ([2, 7, 9, 0], 2)],
        [([9, 1, 8, 5], 0), ([0, 4, 3, 6], 0), ([2, 7, 9, 1], 2)],
    ],
    "roll_over": [
        [([8, 5, 0, 2], 0), ([1, 9, 7, 3], 0)],
        [([6, 4, 9, 0], 2), ([8, 4, 1, 6], 0), ([5, 3, 2, 7], 0)],
        [([9, 1, 8, 5], 0), ([0, 4, 3, 6], 0)],
    ],
}


@pytest.mark.parametrize("handle", SHUFFLED)
def test_shuffling_by_numpys_seed_gives_mxnets_order(handle: str) -> None:
    np.random.seed(7)
    it = mxio.NDArrayIter(X, np.arange(10), 4, shuffle=True, last_batch_handle=handle)
    assert epochs(it) == SHUFFLED[handle]
    own = mxio.NDArrayIter(X, np.arange(10), 4, shuffle=True, last_batch_handle=handle, seed=7)
    before = np.random.get_state()[2]
    assert epochs(own) == SHUFFLED[handle]
    assert np.random.get_state()[2] == before


def test_rows_and_labels_stay_together() -> None:
    it = mxio.NDArrayIter({"b": X, "a": X * 2}, X[:, 0] * 3, 3, shuffle=True, seed=0)
    for batch in it:
        a, b = (d.asnumpy() for d in batch.data)
        assert np.array_equal(a, 2 * b) and np.array_equal(batch.label[0].asnumpy(), 3 * b[:, 0])
    assert np.array_equal(it.data[0][1].asnumpy() * 1.5, it.label[0][1].asnumpy()[:, None])


def test_descriptions_are_mxnets() -> None:
    it = mxio.NDArrayIter({"b": X, "a": X}, [X, X], 2)
    assert it.provide_data == [("a", (2, 1)), ("b", (2, 1))]
    assert it.provide_label == [("_0_softmax_label", (2, 1)), ("_1_softmax_label", (2, 1))]
    it = mxio.NDArrayIter([X, X], None, 2)
    assert [d.name for d in it.provide_data] == ["_0_data", "_1_data"] and it.provide_label == []
    desc = mxio.NDArrayIter(array(X, dtype="int32"), X, 2, data_name="x").provide_data[0]
    assert (desc.name, desc.dtype, desc.layout) == ("x", np.int32, "NCHW")
    assert mxio.DataDesc.get_batch_axis("TNC") == 1 and mxio.DataDesc.get_batch_axis(None) == 0
    assert mxio.DataDesc.get_list([("d", (2,))], [("d", "int32")])[0].dtype == np.int32


def test_the_batch_axis_is_where_the_layout_says() -> None:
    data = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    it = mxio.NDArrayIter(data, data[:, :, 0], 2, layout="TNC", last_batch_handle="discard")
    assert it.provide_data == [("data", (2, 2, 3))]
    batches = list(it)
    assert np.array_equal(batches[1].data[0].asnumpy(), data[:, 2:4])


def test_a_float32_array_is_not_copied() -> None:
    x = np.zeros((4, 2), "float32")
    it = mxio.NDArrayIter(x, None, 2)
    x[:] = 1
    batch = it.next()
    assert (batch.data[0].asnumpy() == 1).all()
    batch.data[0][:] = 5  # a batch is the caller's own
    assert (x == 1).all()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    batch_size=st.integers(1, 6),
    handle=st.sampled_from(["pad", "discard", "roll_over"]),
    shuffle=st.booleans(),
    stop=st.integers(0, 20),
    prefetch=st.booleans(),
    resize=st.sampled_from([0, 3]),
)
def test_a_resumed_iterator_gives_the_batches_of_one_that_never_stopped(
    n: int, batch_size: int, handle: str, shuffle: bool, stop: int, prefetch: bool, resize: int
) -> None:
    if n < batch_size:
        handle = "pad"

    def make(seed: int) -> Any:
        it: Any = mxio.NDArrayIter(X[:n], None, batch_size, shuffle, handle, seed=seed)
        if resize:
            it = mxio.ResizeIter(it, resize)
        return mxio.PrefetchingIter(it) if prefetch else it

    def run(it: Any, steps: int) -> list[Any]:
        seen: list[Any] = []
        for _ in range(steps):
            try:
                b = it.next()
                seen.append((b.data[0].asnumpy().tolist(), b.pad))
            except StopIteration:
                it.reset()
                seen.append("end")
        return seen

    first, second = make(1), make(2)
    run(first, stop)
    second.set_state(unpack_state(pack_state(first.state())))
    assert run(second, 12) == run(first, 12)
    for it in (first, second):
        if prefetch:
            it.close()


def test_resuming_sets_numpys_generator_back() -> None:
    np.random.seed(3)
    it = mxio.NDArrayIter(X, None, 4, shuffle=True)
    it.next()
    state = it.state()
    rest = epochs(it, 3)
    np.random.seed(99)
    again = mxio.NDArrayIter(X, None, 4, shuffle=True)
    again.set_state(state)
    assert epochs(again, 3) == rest


@pytest.mark.parametrize(
    "change, words",
    [
        ({"num_data": 9}, "num_data 9, not 10"),
        ({"batch_size": 5}, "batch_size"),
        ({"generator": None}, "shuffle=False"),
        ({"generator": ["MT19937", np.zeros(3, "uint32"), 0, 0, 0.0]}, "damaged"),
        ({"order": np.zeros(10, "int64")}, "'order'"),
        ({"permutation": np.arange(9)}, "'permutation'"),
        ({"carried": np.array([10])}, "carried"),
        ({"cursor": 99}, "cursor 99"),
        ({"cursor": -2}, "cursor -2"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_damaged_iterator_states_are_refused(change: dict[str, Any], words: str) -> None:
    it = mxio.NDArrayIter(X, None, 4, shuffle=True, seed=0)
    before = pack_state(it.state())
    with pytest.raises(FormatError, match=words):
        it.set_state({**it.state(), **change})
    assert pack_state(it.state()) == before


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda: mxio.NDArrayIter(X, None, 11, last_batch_handle="discard"),
            ShapeError,
            "batch_size 11.*10 rows",
        ),
        (lambda: mxio.NDArrayIter(X, None, 11, last_batch_handle="roll_over"), ShapeError, "larger"),
        (lambda: mxio.NDArrayIter(X, X[:9], 2), ShapeError, "'softmax_label' has 9 rows, but 'data' has 10"),
        (lambda: mxio.NDArrayIter("images", None, 2), TypeError, "data must be.*str"),
        (lambda: mxio.NDArrayIter(None, None, 2), TypeError, "data must be.*NoneType"),
        (lambda: mxio.NDArrayIter([[1, 2]], None, 2), TypeError, r"numpy\.array"),
        (lambda: mxio.NDArrayIter({"x": ["a"]}, None, 2), TypeError, "'x'"),
        (lambda: mxio.NDArrayIter([], None, 2), ShapeError, "at least one"),
        (lambda: mxio.NDArrayIter(X[:0], None, 2), ShapeError, "no rows"),
        (lambda: mxio.NDArrayIter(np.ones(()), None, 2), ShapeError, "no axis 0"),
        (lambda: mxio.NDArrayIter(X, None, 0), ValueError, "batch_size"),
        (lambda: mxio.NDArrayIter(X, None, 2.5), ValueError, "batch_size"),
        (lambda: mxio.NDArrayIter(X, None, 2, last_batch_handle="padd"), ValueError, "Did you mean 'pad'"),
        (lambda: mxio.NDArrayIter(X, None, 2, layout="CHW"), ShapeError, "no batch axis"),
        (lambda: mxio.DataBatch(array([1])), TypeError, r"\[data\]"),
        (lambda: mxio.ResizeIter(mxio.NDArrayIter(X), 0), ValueError, "at least 1"),
        (lambda: mxio.PrefetchingIter([]), ValueError, "at least one"),
        (lambda: mxio.PrefetchingIter(mxio.NDArrayIter(X), rename_data=[]), ValueError, "rename_data"),
    ],
)
def test_wrong_arguments_are_named(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_there_is_no_batch_before_the_first() -> None:
    for it in (mxio.NDArrayIter(X), mxio.ResizeIter(mxio.NDArrayIter(X), 2)):
        with pytest.raises(StateError, match="no present batch"):
            it.getdata()


def test_resized_epochs_have_their_size() -> None:
    it = mxio.ResizeIter(mxio.NDArrayIter(X, None, 4), 5)
    assert [len(e) for e in epochs(it, 2)] == [5, 5]
    it = mxio.ResizeIter(mxio.NDArrayIter(X, None, 4), 2, reset_internal=False)
    assert epochs(it, 2) == [PAD[:2], [PAD[2], PAD[0]]]


def test_prefetched_batches_are_those_of_the_plain_iterators() -> None:
    def plain() -> mxio.NDArrayIter:
        return mxio.NDArrayIter(X, X[:, 0], 4, shuffle=True, seed=1)

    with mxio.PrefetchingIter(
        [plain(), plain()], [{"data": "a"}, {"data": "b"}], [{"softmax_label": "p"}, {"softmax_label": "q"}]
    ) as it:
        assert [d.name for d in it.provide_data + it.provide_label] == ["a", "b", "p", "q"]
        assert epochs(it) == epochs(plain())
        batch = it.next()
        assert len(batch.data) == len(batch.label) == 2
        assert np.array_equal(batch.data[0].asnumpy(), batch.data[1].asnumpy())
    with pytest.raises(StateError, match="closed"):
        it.next()


def test_prefetching_works_ahead_on_another_thread() -> None:
    threads = []

    class Spy(mxio.NDArrayIter):
        def next(self) -> mxio.DataBatch:
            threads.append(threading.current_thread())
            return super().next()

    with mxio.PrefetchingIter(Spy(X, None, 5)) as it:
        it.next()
        it.state()  # waits for nothing; the second batch is asked for already
        it.next()
    assert len(threads) >= 2 and threading.main_thread() not in threads


def test_prefetch_threads_end_with_the_iterator() -> None:
    def mine() -> int:
        return sum(t.name.startswith("mxlite-prefetch") for t in threading.enumerate())

    closed = mxio.PrefetchingIter(mxio.NDArrayIter(X, None, 4))
    closed.close()
    closed.close()
    assert mine() == 0
    dropped = mxio.PrefetchingIter(mxio.NDArrayIter(X, None, 4))
    dropped.next()
    seen = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert seen() is None
    for thread in threading.enumerate():
        if thread.name.startswith("mxlite-prefetch"):
            thread.join(10)
    assert mine() == 0


def test_errors_of_a_prefetched_iterator_come_out_of_next() -> None:
    class Broken(mxio.NDArrayIter):
        def getlabel(self) -> Any:
            raise OSError("the disk is gone")

    with mxio.PrefetchingIter(Broken(X, None, 4)) as it, pytest.raises(OSError, match="disk"):
        it.next()
    uneven = [mxio.NDArrayIter(X, None, 4), mxio.NDArrayIter(X[:4], None, 4)]
    with mxio.PrefetchingIter(uneven) as it:
        it.next()
        with pytest.raises(ShapeError, match=r"\[1\] of 2 ended"):
            it.next()


def test_iterators_without_a_state_say_so() -> None:
    class Plain(mxio.DataIter):
        provide_data = [mxio.DataDesc("data", (1,))]
        provide_label: list[Any] = []

        def next(self) -> mxio.DataBatch:
            return mxio.DataBatch([array([1])], [])

    with mxio.PrefetchingIter(Plain(1)) as it:
        it.next()
        with pytest.raises(StateError, match="Plain"):
            it.state()
        with pytest.raises(FormatError, match="over 1"):
            it.set_state({"iters": []})


# -- idx files ---------------------------------------------------------------------------------


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


IMAGES = (np.arange(7 * 4).reshape(7, 2, 2) * 9 % 256).astype("uint8")
LABELS = np.arange(7, dtype="uint8")


@pytest.fixture
def mnist(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "im").write_bytes(idx(IMAGES))
    (tmp_path / "la.gz").write_bytes(gzip.compress(idx(LABELS)))
    return {"image": tmp_path / "im", "label": tmp_path / "la.gz"}


def test_mnist_batches_are_mxnets(mnist: Any) -> None:
    def seen(**kwargs: Any) -> list[Any]:
        it = mxio.MNISTIter(**mnist, batch_size=2, shuffle=False, silent=True, **kwargs)
        return [(b.label[0].asnumpy().tolist(), b.pad, float(b.data[0].asnumpy().ravel()[1])) for b in it]

    assert seen() == [([0, 1], 0, 0.03515625), ([2, 3], 0, 0.31640625), ([4, 5], 0, 0.59765625)]
    assert seen(flat=True) == seen()
    assert seen(num_parts=2, part_index=0) == [([0, 1], 0, 0.03515625)]
    assert seen(num_parts=2, part_index=1) == [([3, 4], 0, 0.45703125), ([5, 6], 0, 0.73828125)]
    assert seen(num_parts=3, part_index=1) == [([2, 3], 0, 0.31640625)]
    it = mxio.MNISTIter(**mnist, batch_size=2, flat=True)
    assert it.provide_data == [("data", (2, 4))] and it.provide_label == [("softmax_label", (2,))]
    assert mxio.MNISTIter(**mnist, batch_size=2).provide_data == [("data", (2, 1, 2, 2))]


def test_mnist_is_shuffled_once_by_its_seed(mnist: Any) -> None:
    def order(seed: int) -> list[list[float]]:
        it = mxio.MNISTIter(**mnist, batch_size=3, seed=seed)
        passes = []
        for _ in range(2):
            passes.append([x for b in it for x in b.label[0].asnumpy().tolist()])
            it.reset()
        return passes

    assert order(0) == order(0) != order(1)
    first, second = order(0)
    assert first == second != sorted(first)
    it = mxio.MNISTIter(**mnist, batch_size=3)
    for batch in it:
        rows = batch.label[0].asnumpy().astype(int)
        assert np.array_equal(batch.data[0].asnumpy() * 256, IMAGES[rows][:, None])


def test_mnist_arguments_are_checked(mnist: Any) -> None:
    with pytest.raises(ShapeError, match="7 of 7 images, fewer than batch_size 8"):
        mxio.MNISTIter(**mnist, batch_size=8)
    with pytest.raises(ValueError, match="part_index"):
        mxio.MNISTIter(**mnist, num_parts=2, part_index=2)
    assert mxio.MNISTIter(**mnist, batch_size=2, input_shape=(4,), flat=True).provide_data[0].shape == (2, 4)
    assert mxio.MNISTIter(**mnist, batch_size=2, data_shape=(4,)).provide_data[0].shape == (2, 1, 2, 2)
    for name in ("input_shape", "data_shape"):
        with pytest.raises(ShapeError, match=rf"{name} is \(784,\).*\(2, 2\)"):
            mxio.MNISTIter(**mnist, **{name: (784,)})
    mnist["label"].write_bytes(idx(LABELS[:6]))
    with pytest.raises(FormatError, match=r"7 images.*6 labels"):
        mxio.MNISTIter(**mnist, batch_size=1)
    with pytest.raises(FileNotFoundError):
        mxio.MNISTIter(image="nowhere", label="nowhere")


@pytest.mark.parametrize("packed", [False, True])
def test_every_truncated_idx_file_is_refused(tmp_path: Path, packed: bool) -> None:
    whole = gzip.compress(idx(IMAGES), mtime=0) if packed else idx(IMAGES)
    path = tmp_path / "f"
    path.write_bytes(whole)
    assert np.array_equal(mxio.read_idx(path), IMAGES)
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match="f"):
            mxio.read_idx(path)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"\0\1" + idx(LABELS)[2:], "two zero bytes"),
        (b"\0\0\x0d\1" + idx(LABELS)[4:], "0x0D"),
        (b"\0\0\x08\0", "0 axes"),
        (b"\0\0\x08\xff" + bytes(2000), "255 axes"),
        (idx(LABELS) + b"x", "goes on after its 7 bytes"),
        (idx(IMAGES), "3 axes, 1 were expected"),
        (b"\x1f\x8b" + b"not gzip at all, but long enough", "gzip"),
        (gzip.compress(idx(LABELS), mtime=0)[:-3] + b"abc", "gzip"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=words):
        mxio.read_idx(path, axes=1)


@pytest.mark.parametrize("packed", [False, True])
def test_huge_sizes_in_an_idx_file_allocate_nothing(tmp_path: Path, packed: bool) -> None:
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 2**31)
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(head) if packed else head)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="too short"):
            mxio.read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


# -- data sets ---------------------------------------------------------------------------------


def test_digits_are_split_evenly_and_always_alike() -> None:
    pytest.importorskip("sklearn")
    train_x, train_y, test_x, test_y = mxio.load_digits()
    assert train_x.shape == (1437, 1, 8, 8) and test_x.shape == (360, 1, 8, 8)
    assert train_x.dtype == test_x.dtype == np.float32 and train_y.dtype == np.int32
    assert train_x.min() == 0 and train_x.max() == 1
    for digit in range(10):
        here = (test_y == digit).sum()
        total = here + (train_y == digit).sum()
        assert abs(here - total / 5) <= 1
    assert all(np.array_equal(a, b) for a, b in zip(mxio.load_digits(), (train_x, train_y, test_x, test_y)))


def test_missing_scikit_learn_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install mxlite\[examples\]"):
        mxio.load_digits()


def test_fashion_mnist_is_read_from_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        mxio.load_fashion_mnist(tmp_path)
    for part, count in (("train", 6), ("t10k", 7)):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES[:count])))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS[:count]))
    train_x, train_y, test_x, test_y = mxio.load_fashion_mnist(tmp_path)
    assert train_x.shape == (6, 1, 2, 2) and test_x.shape == (7, 1, 2, 2)
    np.testing.assert_allclose(test_x[:, 0], IMAGES / 255, rtol=1e-6)
    assert train_y.tolist() == list(range(6)) and test_y.dtype == np.int32
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(LABELS[:3]))
    with pytest.raises(FormatError, match="7 t10k images, but 3 labels"):
        mxio.load_fashion_mnist(tmp_path)


@pytest.mark.skipif(not Path(FASHION_MNIST).is_dir(), reason="dataset-fashion-mnist is not installed")
def test_the_packaged_fashion_mnist_is_whole() -> None:
    train_x, train_y, test_x, _ = mxio.load_fashion_mnist()
    assert train_x.shape == (60000, 1, 28, 28) and test_x.shape == (10000, 1, 28, 28)
    assert np.bincount(train_y).tolist() == [6000] * 10
    assert train_x.mean(dtype="float64") == pytest.approx(0.2860, abs=1e-4)


def test_an_iterator_without_labels_need_not_say_so():
    class Noise(mxio.DataIter):
        provide_data = [("data", (2, 3))]
        provide_label: list = []

        def iter_next(self):
            return True

        def getdata(self):
            return [nd.ones((2, 3))]

    batch = Noise(2).next()
    assert batch.label is None and batch.pad is None and batch.data[0].shape == (2, 3)


def test_the_order_of_an_epoch_can_be_read() -> None:
    plain = mxio.NDArrayIter(np.zeros((5, 2), "float32"))
    assert plain.idx.tolist() == [0, 1, 2, 3, 4]
    x = np.arange(20, dtype="float32").reshape(10, 2)
    shuffled = mxio.NDArrayIter(x, batch_size=10, shuffle=True, seed=3)
    np.testing.assert_array_equal(shuffled.next().data[0].asnumpy(), x[shuffled.idx])
