"""An iterator that makes the next batch while the current one is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from ..core.disk import schema
from ..core.errors import RangeError, ShapeError, StateError
from ..core.wanted import wanted
from .iterator import DataBatch, DataDesc, DataIter, WholeBatches


class PrefetchingIter(WholeBatches):
    """Joins several iterators into one and keeps each of them one batch ahead, on a thread of its own.

    `rename_data` and `rename_label` give, for each iterator, a dict from its names to new ones. `next` raises
    the exceptions of the iterators. `reset` and shuffling happen on the caller's thread, so the batches
    are those of the plain iterators. `close()`, a `with` block or dropping the object ends the threads.
    """

    def __init__(
        self,
        iters: DataIter | Sequence[DataIter],
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.iters: list[Any] = list(iters) if isinstance(iters, (list, tuple)) else [iters]
        if not self.iters:
            raise RangeError("PrefetchingIter needs at least one iterator.")
        for i in self.iters:
            wanted("PrefetchingIter: iters", i, "DataIters", has=("provide_data", "next", "reset"))
        for what, names in (("rename_data", rename_data), ("rename_label", rename_label)):
            if names is not None and len(names) != len(self.iters):
                raise RangeError(
                    f"{what} needs one dict for each of {len(self.iters)} iterators, got {len(names)}."
                )
        self.rename_data = rename_data
        self.rename_label = rename_label
        super().__init__(self.provide_data[0][1][0])
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(len(self.iters), "mxlite-prefetch")
        # States of the iterators after the batches handed out; None for an iterator without states.
        self._consumed: list[Any] = []
        self._ahead: list[Future[_Fetched]] = []
        self._start()

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of all iterators' data, concatenated."""
        return self._renamed([i.provide_data for i in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of all iterators' labels, concatenated."""
        return self._renamed([i.provide_label for i in self.iters], self.rename_label)

    @staticmethod
    def _renamed(descs: list[list[Any]], names: Sequence[Mapping[str, str]] | None) -> list[DataDesc]:
        result = []
        for i, group in enumerate(descs):
            for d in group:
                d = d if isinstance(d, DataDesc) else DataDesc(*d)
                name = d.name if names is None else names[i].get(d.name, d.name)
                result.append(DataDesc(name, d.shape, d.dtype, d.layout))
        return result

    def _start(self) -> None:
        self._consumed = [_state_of(i) for i in self.iters]
        self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        if self._pool is None:
            raise StateError("This PrefetchingIter is closed.")
        self._ahead = [self._pool.submit(_fetch, i) for i in self.iters]

    def _settle(self) -> None:
        """Wait until no thread uses an iterator; errors of batches that nobody asked for are dropped."""
        for future in self._ahead:
            if not future.cancel():
                future.exception()
        self._ahead = []

    def reset(self) -> None:
        self._settle()
        for i in self.iters:
            i.reset()
        self._start()

    def next(self) -> DataBatch:
        if self._pool is None:
            raise StateError("This PrefetchingIter is closed.")
        if not self._ahead:
            raise StopIteration
        ahead, self._ahead = self._ahead, []
        wait(ahead)  # all of them, so that an error leaves no thread at work
        fetched = [f.result() for f in ahead]
        batches: list[Any] = [f.batch for f in fetched]
        ended = [i for i, b in enumerate(batches) if b is None]
        if ended:
            if len(ended) < len(batches):
                raise ShapeError(
                    f"Iterators {ended} of {len(batches)} ended before the others; "
                    f"they must have equally many batches."
                )
            self._consumed = [f.state for f in fetched]
            raise StopIteration
        pads = [b.pad for b in batches]
        if any(p != pads[0] for p in pads):
            raise ShapeError(f"The iterators pad their batches differently: {pads}.")
        self._consumed = [f.state for f in fetched]
        self._fetch_ahead()
        self.current_batch = DataBatch(
            [a for b in batches for a in b.data or ()],
            [a for b in batches for a in b.label or ()],
            pads[0],
            batches[0].index,
            bucket_key=batches[0].bucket_key,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return self.current_batch

    def state(self) -> dict[str, Any]:
        """The consumer's position: a batch that is being prefetched counts as not yet fetched."""
        for i, state in zip(self.iters, self._consumed):
            if state is None:
                i.state()  # raises, and says why
        return {"iters": list(self._consumed)}

    def set_state(self, state: dict[str, Any]) -> None:
        kinds = schema.fields({"iters": schema.row(*[schema.anything] * len(self.iters))})
        kinds(state, f"The state of a PrefetchingIter over {len(self.iters)} iterators")
        self._settle()
        try:
            for i, s in zip(self.iters, state["iters"]):
                i.set_state(s)
        finally:
            self._start()

    def close(self) -> None:
        """End the threads; `next` raises StateError from now on. Closing twice does nothing."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            self._settle()
            pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> PrefetchingIter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Fetched:
    """A batch (None at the end) and its iterator's state after it (None if it has none)."""

    def __init__(self, batch: DataBatch | None, state: Any) -> None:
        self.batch = batch
        self.state = state


def _fetch(iterator: DataIter) -> _Fetched:
    # A function, not a method: a thread that held the PrefetchingIter would keep it alive for ever.
    try:
        batch = iterator.next()
    except StopIteration:
        batch = None
    return _Fetched(batch, _state_of(iterator))


def _state_of(iterator: DataIter) -> Any:
    try:
        return iterator.state()
    except StateError:
        return None
