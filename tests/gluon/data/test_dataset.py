"""Data sets, samplers, batches and the workers that make them."""

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.gluon import data
from mxlite.gluon.data import batchify

X = np.arange(20, dtype="f").reshape(10, 2)


def test_a_data_set_is_filtered_cut_and_changed():
    base = data.SimpleDataset(list(range(10)))
    assert list(base.filter(lambda v: v % 3 == 0)) == [0, 3, 6, 9]
    assert [list(base.shard(3, i)) for i in range(3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert list(base.take(3)) == [0, 1, 2] and len(base.take(None)) == len(base.take(99)) == 10
    assert list(base.sample([5, 5, 1])) == [5, 5, 1]
    assert list(base.transform(lambda v: v * 2).take(2)) == [0, 2]
    pairs = data.ArrayDataset(X, list(range(10)))
    changed = pairs.transform_first(lambda x: x + 1, lazy=False)
    assert changed[3][0].tolist() == [7, 8] and changed[3][1] == 3
    with pytest.raises(mx.RangeError, match="index must be below num_shards=3, got 3"):
        base.shard(3, 3)


def test_arrays_lie_side_by_side():
    both = data.ArrayDataset(mx.nd.array(X), mx.nd.arange(10))
    x, y = both[4]
    assert x.asnumpy().tolist() == [8, 9] and y == 4 and len(both) == 10
    assert data.ArrayDataset(X)[2].tolist() == [4, 5]
    with pytest.raises(mx.ShapeError, match=r"arrays of one length, got lengths \[10, 3\]"):
        data.ArrayDataset(X, [1, 2, 3])


def test_samplers_give_orders_and_batches():
    assert list(data.SequentialSampler(3, start=2)) == [2, 3, 4]
    np.random.seed(0)
    shuffled = data.RandomSampler(50)
    first, second = list(shuffled), list(shuffled)
    assert sorted(first) == list(range(50)) and first != second
    assert list(data.FilterSampler(lambda v: v > 7, data.SimpleDataset(range(10)))) == [8, 9]

    def batches(last):
        made = data.BatchSampler(data.SequentialSampler(5), 2, last)
        return len(made), list(made), len(made), list(made)

    assert batches("keep") == (3, [[0, 1], [2, 3], [4]], 3, [[0, 1], [2, 3], [4]])
    assert batches("discard") == (2, [[0, 1], [2, 3]], 2, [[0, 1], [2, 3]])
    assert batches("rollover") == (2, [[0, 1], [2, 3]], 3, [[4, 0], [1, 2], [3, 4]])
    with pytest.raises(mx.OpAttributeError, match="last_batch must be"):
        data.BatchSampler(data.SequentialSampler(5), 2, "drop")


def test_samples_are_stacked_padded_and_grouped():
    x, y = batchify.default_batchify_fn([(X[0], 1), (X[1], 2)])
    assert x.shape == (2, 2) and x.dtype == np.float32 and y.dtype == np.int32
    assert batchify.default_batchify_fn([1.5, 2.5]).dtype == np.float32
    padded, lengths = batchify.Pad(val=-1, ret_length=True)([[1, 2, 3], [4]])
    assert padded.asnumpy().tolist() == [[1, 2, 3], [4, -1, -1]] and lengths.asnumpy().tolist() == [3, 1]
    a, b = batchify.Group(batchify.Stack(), batchify.Pad())([(1, [1]), (2, [1, 2])])
    assert a.shape == (2,) and b.shape == (2, 2)
    with pytest.raises(mx.ShapeError, match=r"Samples of shapes \[\(1,\), \(2,\)\] cannot be stacked"):
        batchify.Stack()([[1], [1, 2]])


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "thread_pool": True}, {"num_workers": 2}])
def test_a_loader_gives_all_batches_in_order_each_time(workers):
    noise = 0.5  # a closure, which a process need not pickle
    changed = data.ArrayDataset(X, np.arange(10)).transform_first(lambda x: x + noise)
    loader = data.DataLoader(changed, batch_size=4, **workers)
    assert len(loader) == 3
    for _ in range(2):
        found = list(loader)
        assert [len(y) for _, y in found] == [4, 4, 2]
        assert np.array_equal(np.concatenate([x.asnumpy() for x, _ in found]), X + 0.5)
        assert isinstance(found[0][0], mx.nd.NDArray)


@pytest.mark.parametrize("workers", [{}, {"num_workers": 1, "thread_pool": True}, {"num_workers": 1}])
def test_an_error_of_a_sample_arrives(workers):
    def fails(x):
        raise ValueError("no such sample")

    loader = data.DataLoader(data.SimpleDataset([1, 2]).transform(fails), 2, **workers)
    with pytest.raises(ValueError, match="no such sample"):
        list(loader)


def test_a_worker_that_takes_too_long_is_told():
    import time

    slow = data.SimpleDataset([1, 2]).transform(lambda x: time.sleep(5))
    loader = data.DataLoader(slow, 1, num_workers=1, timeout=0.1)
    with pytest.raises(mx.StateError, match=r"no worker gave a batch within 0\.1 seconds"):
        list(loader)


def test_options_that_contradict_each_other_are_told():
    base = data.SimpleDataset([1, 2])
    with pytest.raises(TypeError, match="give batch_size, or batch_sampler"):
        data.DataLoader(base)
    with pytest.raises(TypeError, match="batch_sampler decides batches"):
        data.DataLoader(base, 1, batch_sampler=[[0]])
    with pytest.raises(TypeError, match="shuffle has no effect beside sampler"):
        data.DataLoader(base, 1, True, sampler=[0])
    assert [b.asnumpy().tolist() for b in data.DataLoader(base, batch_sampler=[[1, 0]])] == [[2, 1]]


def test_records_are_read_here_and_in_workers(tmp_path):
    file = str(tmp_path / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), file, "w")
    for i in range(6):
        writer.write_idx(i, bytes([i] * 3))
    writer.close()
    records = data.RecordFileDataset(file)
    assert len(records) == 6 and records[4] == b"\4\4\4"
    numbers = records.transform(lambda raw: raw[0])
    for workers in (0, 2):
        loader = data.DataLoader(numbers, 3, num_workers=workers)
        assert np.concatenate([b.asnumpy() for b in loader]).tolist() == list(range(6))


DROPPED = """
import numpy as np
import mxlite as mx

for i in range(4):
    loader = mx.gluon.data.DataLoader(np.zeros((300, 20_000)), batch_size=8, num_workers=6)
    batches = iter(loader)
    next(batches)
    del batches, loader  # while workers write more than a pipe holds
print("ended")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="workers are forks")
def test_a_loader_that_is_dropped_early_ends_at_once():
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "ended", done.stderr


class Fatal:
    """A data set whose last samples end the process that asks for them."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        if i >= 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(3)


@pytest.mark.skipif(sys.platform == "win32", reason="workers are forks")
def test_a_worker_that_is_killed_is_told_at_once():
    with pytest.raises(mx.StateError, match="a worker process ended"):
        for _ in mx.gluon.data.DataLoader(Fatal(), batch_size=4, num_workers=1):
            pass


ENDED = """
import os, time
import numpy as np
from mxlite.gluon.data import DataLoader

class Slow:
    def __len__(self):
        return 8
    def __getitem__(self, i):
        time.sleep(60 * (i >= 4))
        return np.zeros(3)

loaders = [DataLoader(Slow(), batch_size=2, num_workers=2) for _ in range(2)]
for loader in loaders:
    next(iter(loader))
os._exit(3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="workers are forks")
def test_workers_end_with_a_parent_that_ends_without_a_word():
    done = subprocess.run(
        [sys.executable, "-c", ENDED], capture_output=True, timeout=30
    )  # until all have ended
    assert done.returncode == 3
