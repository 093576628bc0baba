"""DataLoaderIter: the batches of a loader of Gluon as an iterator for Module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import ndarray as nd
from ..core.errors import ArgumentError
from ..ndarray import NDArray
from .iterator import DataDesc, DataIter


class DataLoaderIter(DataIter):
    """Batches (data, label) of `loader`, which is started anew in each epoch, converted to `dtype`.

    The first batch gives the shapes; a smaller one at the end is filled up with zeros, and `pad` counts them.
    """

    def __init__(
        self,
        loader: Iterable[tuple[NDArray, NDArray]],
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
    ) -> None:
        first = next(iter(loader), None)
        if first is None:
            raise ArgumentError("DataLoaderIter: the loader has no batch, so the shapes are not known.")
        data, label = first
        super().__init__(data.shape[0])
        self._loader = loader
        self.dtype = dtype
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self.reset()

    def reset(self) -> None:
        """Begin an epoch."""
        self._batches: Iterator[tuple[NDArray, NDArray]] = iter(self._loader)
        self._batch: tuple[NDArray, NDArray] | None = None

    def iter_next(self) -> bool:
        """Go to the next batch; False at the end of the epoch."""
        self._batch = next(self._batches, None)
        return self._batch is not None

    def getdata(self) -> list[NDArray]:
        """The inputs of this batch."""
        return [self._filled(0)]

    def getlabel(self) -> list[NDArray]:
        """The labels of this batch."""
        return [self._filled(1)]

    def getpad(self) -> int:
        """The number of rows at the end that do not count."""
        assert self._batch is not None
        return self.batch_size - int(self._batch[0].shape[0])

    def getindex(self) -> None:
        """None: a loader does not tell the numbers of its samples."""
        return None

    def _filled(self, place: int) -> NDArray:
        assert self._batch is not None
        array: NDArray = self._batch[place].astype(self.dtype)
        if not self.getpad():
            return array
        return nd.concat(array, nd.zeros((self.getpad(), *array.shape[1:]), dtype=self.dtype), dim=0)
