"""The iterator that loaders of other libraries derive from."""

import multiprocessing
import multiprocessing.pool
import pickle
import time

import numpy as np
import pytest
from mxlite.gluon.data.dataloader import _MultiWorkerIter, DataLoader

import mxlite as mx

BATCHES = [[0, 1], [2, 3], [4]]


def pickled(numbers, factor, batchify_fn, dataset):
    return pickle.dumps(batchify_fn([factor * dataset[i] for i in numbers]))


class Scaled(_MultiWorkerIter):
    """As GluonCV's: it decides with each batch what the worker does."""

    def __init__(self, *args, prefetch=0, **kwargs):
        super().__init__(*args, prefetch=0, **kwargs)
        for _ in range(prefetch):
            self._push_next()

    def _push_next(self):
        numbers = next(self._iter, None)
        if numbers is None:
            return
        call = (numbers, 10 ** (self._sent_idx % 2), self._batchify_fn, self._dataset)
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, call)
        self._sent_idx += 1


@pytest.mark.parametrize("kind", [multiprocessing.get_context("fork").Pool, multiprocessing.pool.ThreadPool])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_come_in_order(kind, prefetch):
    with kind(2) as pool:
        made = list(
            Scaled(pool, np.stack, BATCHES, worker_fn=pickled, prefetch=prefetch, dataset=np.arange(5))
        )
    assert [x.tolist() for x in made] == [[0, 1], [20, 30], [4]]


def test_workers_make_batches_of_the_data_set():
    with multiprocessing.pool.ThreadPool(2) as pool:
        batches = _MultiWorkerIter(pool, np.stack, BATCHES, prefetch=1, dataset=np.arange(5))
        assert len(batches) == 3
        assert [x.tolist() for x in batches] == BATCHES


def test_a_batch_that_does_not_come_is_an_error():
    with multiprocessing.pool.ThreadPool(1) as pool:
        late = _MultiWorkerIter(pool, np.stack, BATCHES, worker_fn=lambda *_: time.sleep(1), timeout=0.01)
        with pytest.raises(mx.MXLiteError, match=r"no worker gave batch 0 within 0\.01 seconds"):
            next(late)


def test_a_loader_says_what_it_was_given():
    loader = DataLoader(list(range(5)), 2, batchify_fn=np.stack, pin_memory=True)
    assert (loader._batchify_fn, loader._pin_memory) == (np.stack, True)
