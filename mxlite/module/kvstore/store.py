"""A store of arrays by key, that several producers add to and several readers get, within this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core import BindError, MXLiteError, nearest, replacing, ShapeError, StateError, UnknownNameError
from ...core.disk.files import opened
from ...core.errors import ArgumentError, RangeError
from ...core.wanted import wanted
from ...dist import add_devices
from ...ndarray import NDArray
from ...ndarray.sparse import retain
from ..optim.optimizer_base import Optimizer
from ..optim.updater import get_updater, Updater
from ..saved import shards

Keyed = tuple[Any, list[NDArray]]


class KVStore:
    """Arrays by key. Keys are numbers, or text, not both.

    `push` adds up the values of a key; the sum replaces the stored array, or goes to the
    updater, which updates the stored array. `pull` copies a stored array to given arrays.
    Every method takes one key, or a list of keys with as many values; a value is an NDArray or, as from
    several devices, a list of such.
    """

    compression: Any = None
    """How values travel to other workers, if they are compressed."""

    def __init__(self, kind: str = "local") -> None:
        self._kind = kind
        self._stored: dict[Any, NDArray] = {}
        self._updater: Any = None
        self._restore: Callable[[Any], None] | None = None
        self._index: dict[Any, Any] = {}  # of adopted arrays in the updater

    @property
    def type(self) -> str:
        """The name given to `create`."""
        return self._kind

    @property
    def rank(self) -> int:
        """This worker's number: 0, as there is only one."""
        return 0

    @property
    def num_workers(self) -> int:
        """Number of processes that share the store: 1."""
        return 1

    def is_capable(self, capability: str) -> bool:
        """True if the store has that capability; 'optimizer': updates inside it."""
        if capability.lower() != "optimizer":
            raise RangeError(f"A capability of a KVStore is 'optimizer', got {capability!r}.")
        return True

    # -- arrays --------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of a value under a new key. BindError if the key is there already."""
        for k, values in _keyed(key, value):
            self._check_kind(k)
            if k in self._stored:
                raise BindError(f"KVStore: key {k!r} has been initialised already.")
            self._stored[k] = values[0].copy()
            self._share(self._stored[k])

    def _share(self, array: NDArray) -> None:
        """Give all workers the array of the first."""

    def of_all_workers(self, key: Any, total: NDArray) -> NDArray:
        """The sum of what all workers push at one time."""
        return total

    def adopt(self, key: Any, array: NDArray, index: Any) -> None:
        """Store this very array, not a copy; the updater knows it as `index`.

        Module does so with its parameters: on one device there is no need for second ones.
        """
        self._check_kind(key)
        self._stored[key] = array
        self._index[key] = index

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add up the values of each key, and store the sum or update by it. `priority` has no effect."""
        for k, values in _keyed(key, value):
            stored = self._at(k)
            total = values[0]
            for other in values:
                if other.shape != stored.shape:
                    raise ShapeError(f"KVStore: {k!r} is {stored.shape}, but {other.shape} was pushed.")
            if len(values) > 1:
                total = total.copy()
                add_devices(total, values[1:])
            total = self.of_all_workers(k, total)
            if self._updater is None:
                total.copyto(stored)
            else:
                self._updater(self._index.get(k, k), total.as_in_context(stored.context), stored)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy the stored array of each key to `out`: an NDArray, or a list of such.

        With `ignore_sparse` sparse arrays in `out` stay as they are; `row_sparse_pull` writes those.
        """
        if out is None:
            raise ArgumentError("KVStore.pull needs out=, the arrays to be written.")
        for k, outs in _keyed(key, out):
            for target in outs:
                if not (ignore_sparse and target.stype != "default"):
                    self._at(k).copyto(target)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` to `out`, which is `value` if it is not given."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority, ignore_sparse=False)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` to `out`."""
        self.init(key, value)
        self.pull(key, out, priority, ignore_sparse=False)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy rows of the stored array of each key to `out`, row_sparse arrays; the other rows become 0.

        row_ids: the numbers of the rows, an NDArray for each of `out`, or one for all.
        """
        if out is None or row_ids is None:
            raise ArgumentError("KVStore.row_sparse_pull needs out=, the arrays to be written, and row_ids=.")
        for k, outs in _keyed(key, out):
            ids = _at_key(row_ids, key, k)
            rows = ids if isinstance(ids, (list, tuple)) else [ids] * len(outs)
            if len(rows) != len(outs):
                raise ShapeError(
                    f"KVStore: {len(outs)} arrays of {k!r} need as many row_ids, not {len(rows)}."
                )
            stored: Any = self._at(k).tostype("row_sparse")
            for target, numbers in zip(outs, rows):
                if target.stype != "row_sparse":
                    raise ArgumentError(
                        f"row_sparse_pull writes row_sparse arrays, but out of {k!r} is {target.stype}; "
                        f"pull copies whole arrays."
                    )
                retain(stored, numbers).copyto(target)

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Raise: nothing is sent anywhere."""
        raise MXLiteError("set_gradient_compression: one process sends no gradients, so none are compressed.")

    # -- updates -------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Treat pushed values as gradients, by which this optimizer updates the stored arrays."""
        self._set_updater(get_updater(optimizer))

    def _set_updater(
        self,
        updater: Callable[[Any, NDArray, NDArray], Any],
        restore: Callable[[Any], None] | None = None,
    ) -> None:
        """Call `updater(key, pushed, stored)` at each push; it changes `stored` in place.

        restore: takes the states of a file, where more than the updater has a part in them, as a step does.
        """
        self._updater, self._restore = updater, restore

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the states of the optimizer; all ranks that share them call it. See `Updater.get_states`."""
        updater = self._states()
        if isinstance(updater, Updater):
            shards.write(fname, updater.tree(dump_optimizer))
            return
        with replacing(fname) as file:
            file.write(updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Read what `save_optimizer_states` wrote."""
        updater = self._states()
        if isinstance(updater, Updater):
            (self._restore or updater.take_states)(shards.read(fname).tree)
        else:
            with opened(fname) as file:
                updater.set_states(file.read())

    def _states(self) -> Any:
        if not hasattr(self._updater, "get_states"):
            raise StateError("KVStore: there are no optimizer states; call set_optimizer first.")
        return self._updater

    def barrier(self) -> None:
        """Wait until all workers are here: there is one."""

    def _barrier(self) -> None:
        """MXNet's name of `barrier`."""
        self.barrier()

    # -- keys ----------------------------------------------------------------------------------

    def _at(self, key: Any) -> NDArray:
        self._check_kind(key)
        if key not in self._stored:
            known = [k for k in self._stored if isinstance(k, str)]
            hint = nearest(key, known) if isinstance(key, str) else ""
            raise UnknownNameError(f"KVStore: key {key!r} has not been initialised; call init first.{hint}")
        return self._stored[key]

    def _check_kind(self, key: Any) -> None:
        if isinstance(key, bool):
            raise ArgumentError(f"A key of a KVStore is a number or text, got {key!r}.")
        first = next(iter(self._stored), key)
        if isinstance(first, str) != isinstance(key, str):
            raise BindError(f"KVStore: its keys are like {first!r}, all numbers or all text; got {key!r}.")


def _at_key(values: Any, keys: Any, key: Any) -> Any:
    """The value for `key`, given one value for all keys, or as many as there are keys."""
    if not isinstance(keys, (list, tuple)) or not isinstance(values, (list, tuple)):
        return values
    if len(values) != len(keys):
        raise ShapeError(f"KVStore: {len(keys)} keys need as many row_ids, got {len(values)}.")
    return values[list(keys).index(key)]


def _keyed(key: Any, value: Any) -> Iterator[Keyed]:
    """(key, its arrays) for each different key, in order. Raises ShapeError where the lists do not match."""
    found: dict[Any, list[NDArray]] = {}
    for k, v in _pairs(key, value):
        found.setdefault(k, []).append(v)
    return iter(found.items())


def _pairs(key: Any, value: Any) -> Iterator[tuple[Any, NDArray]]:
    if isinstance(key, (list, tuple)):
        if not isinstance(value, Sequence) or len(value) != len(key):
            count = len(value) if isinstance(value, Sequence) else 1
            raise ShapeError(f"KVStore: {len(key)} keys need as many values, got {count}.")
        for k, v in zip(key, value):
            yield from _pairs(k, v)
        return
    wanted("A key of a KVStore", key, "a number or text", int, str)
    for v in value if isinstance(value, (list, tuple)) else [value]:
        yield key, wanted(f"KVStore: the value of {key!r}", v, "an NDArray", NDArray)
