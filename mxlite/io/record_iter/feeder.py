"""Batches made ahead of their use, on threads.

    feeder thread    reads records in order, hands each to the decoders, begins the next batch
    decoder threads  one image each: decode, vary, write into its row
    caller           takes the oldest batch and waits for its images; asks for one more

No thread knows the iterator, so that dropping it ends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ...core.errors import ShapeError, StateError
from .buffers import Buffers
from .decoder import Decoder, RecordDecoder
from .options import Options, ReadOptions
from .source import Records


class FeederPlace(NamedTuple):
    """Position of the next batch; `ended`: the epoch is over, `epoch` and `position` are of the next one."""

    epoch: int
    position: int
    ended: bool


class Begun(NamedTuple):
    """A batch whose images are being made. data: (N, C, H, W), label: (N, width)."""

    data: np.ndarray
    label: np.ndarray
    pad: int
    images: list[Future[None]]
    after: FeederPlace


class Feeder:
    """Makes the batches of an epoch, `prefetch_buffer` of them ahead."""

    def __init__(self, options: ReadOptions, records: Records, decoder: RecordDecoder, dtype: str) -> None:
        self.options = options
        self._records = records
        self._decoder = decoder
        n, ahead = options.batch_size, options.prefetch_buffer
        self._data = Buffers((n, *options.data_shape), dtype, ahead + 2)
        self._label = Buffers((n, decoder.width), np.float32, ahead + 2)
        self._reader = ThreadPoolExecutor(1, "mxlite-records")
        self._decoders = ThreadPoolExecutor(options.preprocess_threads, "mxlite-decode")
        self._closed = False
        self._producing = FeederPlace(0, 0, False)
        self._queue: deque[Future[Begun | None]] = deque()
        self.place = self._producing

    # -- the caller's side ---------------------------------------------------------------------

    def go(self, epoch: int, position: int, ended: bool = False) -> None:
        """Continue from there; batches that were made ahead are dropped."""
        self._check_open()
        self._settle()
        self._producing = self.place = FeederPlace(epoch, position, ended)
        if not ended:
            self._records.start(epoch, position)
            for _ in range(self.options.prefetch_buffer):
                self._ask()

    def next(self) -> Begun | None:
        """The next batch, with all its images; None at the end of the epoch."""
        self._check_open()
        if not self._queue:
            return None
        begun = self._queue.popleft().result()
        if begun is None:
            self._settle()
            self.place = self._producing
            return None
        self._ask()
        self.place = begun.after
        errors = [e for e in (image.exception() for image in begun.images) if e is not None]
        if errors:
            raise errors[0]
        return begun

    def _ask(self) -> None:
        self._queue.append(self._reader.submit(self._begin))

    def _settle(self) -> None:
        """Wait until no thread uses the records; errors of batches that were not asked for are dropped."""
        for asked in self._queue:
            asked.cancel()
        for asked in self._queue:
            if not asked.cancelled() and asked.exception() is None:
                for image in (asked.result() or _NOTHING).images:
                    image.cancel()
        self._queue.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("This ImageRecordIter is closed.")

    def abandon(self) -> None:
        """Begin no more batches; threads end when the last one has let go. Takes no lock, for `__del__`."""
        self._closed = True

    def close(self) -> None:
        """End the threads and wait for them. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._reader.shutdown(cancel_futures=True)
            self._decoders.shutdown(cancel_futures=True)
            self._queue.clear()
            self._records.close()

    # -- the feeder thread's side --------------------------------------------------------------

    def _begin(self) -> Begun | None:
        """Read the records of one batch and give them to the decoders; None at the end of the epoch.

        After an error the position is unchanged, so that the error comes again.
        """
        mark = self._records.where()
        try:
            return self._read_batch()
        except BaseException:
            self._records.back(mark)
            raise

    def _read_batch(self) -> Begun | None:
        epoch, position, ended = self._producing
        if ended or self._closed:
            return None
        o = self.options
        rows = self._read(epoch, position, o.batch_size)
        missing = o.batch_size - len(rows)
        if not missing:
            self._producing = FeederPlace(epoch, position + len(rows), False)
        elif not rows:
            self._producing = FeederPlace(epoch + 1, 0, True)
            return None
        elif o.round_batch:
            # The front of the next epoch fills the batch; that epoch continues after it.
            self._records.start(epoch + 1, 0)
            rows += self._read(epoch + 1, 0, missing)
            if len(rows) < o.batch_size:
                raise ShapeError(
                    f"{o.path_imgrec} has {o.batch_size - missing} images, fewer than batch_size "
                    f"{o.batch_size}; with round_batch they must fill a batch."
                )
            self._producing = FeederPlace(epoch + 1, missing, True)
        else:
            self._producing = FeederPlace(epoch + 1, 0, True)
        data, label = self._data.take(), self._label.take()
        data[len(rows) :] = 0
        label[len(rows) :] = 0
        images = [
            self._decoders.submit(self._decoder.fill, record, at, place, data[i], label[i])
            for i, (record, at, place) in enumerate(rows)
        ]
        return Begun(data, label, missing, images, self._producing)

    def _read(self, epoch: int, position: int, count: int) -> list[tuple[bytes, int, tuple[int, int]]]:
        """Up to `count` records: bytes, their offset in the file, epoch and position."""
        rows = []
        for i in range(count):
            record = self._records.next()
            if record is None:
                break
            rows.append((*record, (epoch, position + i)))
        return rows


_NOTHING = Begun(np.empty(0), np.empty(0), 0, [], FeederPlace(0, 0, True))


def images_mean(options: Options, records: Records, say: Callable[[int], None]) -> np.ndarray:
    """The mean of all images as they are varied in the first epoch, (C, H, W) float32."""
    decoder = Decoder(options)
    total, count = np.zeros((options.data_shape[1], options.data_shape[2], options.data_shape[0])), 0
    records.start(0, 0)
    while (record := records.next()) is not None:
        total += decoder.image(*record, (0, count))[0]
        count += 1
        if count % 10_000 == 0:
            say(count)
    return np.ascontiguousarray((total / max(count, 1)).transpose(2, 0, 1), np.float32)
