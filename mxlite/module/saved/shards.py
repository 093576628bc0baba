"""Files of the ranks of a job: a shard of each, and the file of rank 0 that names them.

    run.resume                            what all ranks have in common; of each shared array its shape, its
                                          dtype and its pieces; of each shard its name, size and checksum
    run.resume.9f2c51d07be84a36.0-of-2    rank 0's parts of the shared arrays, and what only rank 0 has
    run.resume.9f2c51d07be84a36.1-of-2

A shared array is cut into pieces, and each piece into one part for each rank (`comm/ordered_sum.py`). So an
index says which shard has the element, and any number of ranks reads what any other has written.

The number in the names is of one checkpoint, so that a new one overwrites nothing of the last. When all
shards are on the disk, rank 0 replaces the file that names them. Until then the last checkpoint is there,
from then on the new one, and the shards of the last are deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...comm import Communicator, current, gathered, in_words, own_parts, parts, PIECE, shard_length
from ...core import FormatError, replacing, StateError
from ...core.disk.schema import anything, array as array_of, exactly, fields, row, several, text, whole
from ...core.dtype import as_dtype
from ...dist import agree
from ...dist.exchange import meet
from ...ndarray import NDArray
from ...ndarray.files.stored import Extent, FileSource, StoredArray
from .statefile import described, Packed, stored_checksum, stored_state

_RANKS = "ranks"
_SHARD = "shard"
_LEAST_STEP = 1024  # elements: a file cannot ask for millions of tiny pieces

_NUMBER = text("[0-9a-f]{16}", "16 hexadecimal digits")
_NAMED = fields(
    {
        "checkpoint": _NUMBER,
        "files": several(row(text(r"[^/\\\0]{1,255}", "the name of a file"), whole(), whole(0, 2**32 - 1))),
    }
)
_CONTENT = fields(
    {
        "kind": exactly(_SHARD),
        "checkpoint": _NUMBER,
        "rank": whole(),
        "ranks": whole(1),
        "arrays": several(array_of("fiubV", 1)),
        "own": anything,
    }
)


class Shard(NamedTuple):
    """An array of `shape` of which this rank keeps its parts, one after another in `array`, in a tree."""

    array: NDArray
    shape: tuple[int, ...]


# -- writing -----------------------------------------------------------------------------------


def write(path: str, tree: Any, own: Any = None) -> None:
    """Write a tree to the file `path`: whole, or not at all. A piece at a time: no array is copied.

    If there are Shards in the tree, or something of this rank's `own`, all ranks call it with one path, in a
    folder that all of them see, and the rest of the tree is that of rank 0. An error on one rank is one on
    all.
    """
    held: list[NDArray] = []
    tree = _described(tree, held)
    if own is None and not held:
        with replacing(path) as file:
            Packed(tree).write(file)
        _sweep(path)
        return
    meet(f"Writing {path}")
    agree("The checkpoint", f"file {path}")
    comm = current()
    drawn = np.frombuffer(os.urandom(8), np.uint8).copy()
    comm.wait(comm.broadcast(drawn, 0))
    number = drawn.tobytes().hex()
    names = [f"{os.path.basename(path)}.{number}.{q}-of-{comm.size}" for q in range(comm.size)]
    folder = os.path.dirname(path)
    mine = os.path.join(folder, names[comm.rank])

    def write_shard() -> tuple[int, int]:
        content = {"kind": _SHARD, "checkpoint": number, "rank": comm.rank, "ranks": comm.size}
        packed = Packed(content | {"arrays": held, "own": own})
        with replacing(mine) as file:
            packed.write(file)
        return packed.nbytes, packed.checksum

    def publish() -> tuple[int, int]:
        if comm.rank == 0:
            files = []
            for q, (name, (nbytes, checksum)) in enumerate(zip(names, written.tolist())):
                if _size(os.path.join(folder, name)) != nbytes:
                    raise StateError(
                        f"Rank 0 does not see {name!r}, the {nbytes:,} bytes that rank {q} has written: "
                        f"{path} must lie in a folder that all ranks share."
                    )
                files.append([name, nbytes, checksum])
            with replacing(path) as file:
                Packed(tree | {_RANKS: {"checkpoint": number, "files": files}}).write(file)
        return 0, 0

    try:
        written = _on_all(comm, path, write_shard)
        _on_all(comm, path, publish)
    except Exception:
        with contextlib.suppress(OSError):
            os.unlink(mine)
        raise
    if comm.rank == 0:
        _sweep(path, number)


def _on_all(comm: Communicator, path: str, attempt: Callable[[], tuple[int, int]]) -> Any:
    """The two numbers that `attempt` gives on each rank, (ranks, 2). Raises on all if it raises on one."""
    found, error = np.zeros(3, np.int64), None
    try:
        found[:] = 1, *attempt()
    except Exception as raised:  # the others have to hear of it first
        error = raised
    rows = gathered(comm, found)
    if error is not None:
        raise error
    if failed := [q for q in range(comm.size) if not rows[q, 0]]:
        raise StateError(f"{path} was not written, since {in_words(failed)} failed. What was there stays.")
    return rows[:, 1:]


def _described(tree: Any, held: list[NDArray]) -> Any:
    """A tree with descriptions of the Shards in it, whose arrays are added to `held`."""
    if isinstance(tree, Shard):
        held.append(tree.array)
        dtype = np.dtype(tree.array.dtype)
        return {_SHARD: [len(held) - 1, str(as_dtype(dtype)), list(tree.shape), PIECE // dtype.itemsize]}
    if isinstance(tree, dict):
        return {k: _described(v, held) for k, v in tree.items()}
    return [_described(v, held) for v in tree] if isinstance(tree, (list, tuple)) else tree


def _size(path: str) -> int:
    """Bytes of a file; -1 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _sweep(path: str, number: str = "") -> None:
    """Delete the shards beside `path` of checkpoints other than `number`: the last, and unfinished ones."""
    folder, base = os.path.split(path)
    shard = re.compile(re.escape(base) + r"\.([0-9a-f]{16})\.\d+-of-\d+")
    with contextlib.suppress(OSError):
        for name in os.listdir(folder or "."):
            if (found := shard.fullmatch(name)) and found[1] != number:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))


# -- reading -----------------------------------------------------------------------------------


class Saved(NamedTuple):
    """A tree from a file, its arrays left there. `shards` are those that it names, None if it names none."""

    tree: Any
    shards: Shards | None


def read(path: str) -> Saved:
    """What `write` wrote, on any number of ranks. FormatError if a file is damaged, missing or another's."""
    tree = stored_state(FileSource.opened(path))
    if not isinstance(tree, dict) or _RANKS not in tree:
        return Saved(tree, None)
    shards = Shards(path, _NAMED(tree.pop(_RANKS), f"{path} is corrupt: its {_RANKS!r}"))
    return Saved(_joined(tree, shards), shards)


class Shards:
    """The shards that the file `path` names. Each is opened, and its checksum verified, when it is needed."""

    def __init__(self, path: str, named: Any) -> None:
        self.path = path
        self.ranks = len(named["files"])
        self._number, self._files = named["checkpoint"], named["files"]
        self._open: dict[int, Any] = {}
        if not self._files:
            raise FormatError(f"{path} is corrupt: it names no shards.")
        self.nbytes = sum(nbytes for _, nbytes, _ in self._files)
        for name, nbytes, _ in self._files:
            have = _size(self._place(name))
            if have < 0:
                raise FormatError(
                    f"{self._place(name)} is missing: {path} is the checkpoint of {self.ranks} ranks, and "
                    f"needs the shard of each beside it."
                )
            if have != nbytes:
                raise FormatError(
                    f"{self._place(name)} has {have:,} bytes, but {path} names a shard of {nbytes:,}: it is "
                    f"cut off, or of another checkpoint."
                )

    def _place(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.path), name)

    def content(self, rank: int) -> Any:
        """The tree in the shard of that rank."""
        if rank not in self._open:
            name, _, checksum = self._files[rank]
            what = self._place(name)
            source = FileSource.opened(what)
            tree = stored_state(source)
            if not isinstance(tree, dict) or tree.get("kind") != _SHARD:
                raise FormatError(f"{what} holds a state, but not a shard of a checkpoint.")
            _CONTENT(tree, f"{what} is corrupt: its content")
            found, wanted = (
                f"the shard of rank {r} of {n} in checkpoint {number}, of checksum {total:08x}"
                for r, n, number, total in (
                    (tree["rank"], tree["ranks"], tree["checkpoint"], stored_checksum(source)),
                    (rank, self.ranks, self._number, checksum),
                )
            )
            if found != wanted:
                raise FormatError(f"{what} is {found}, but {self.path} names {wanted}.")
            self._open[rank] = tree
        return self._open[rank]

    def held(self, rank: int, number: int, dtype: np.dtype[Any], length: int) -> StoredArray:
        """The parts of the array `number` that the shard of `rank` has: `length` elements, perhaps more."""
        arrays = self.content(rank)["arrays"]
        found = arrays[number] if number < len(arrays) else None
        if found is None or found.dtype != dtype or found.shape[0] < length:
            has = "nothing" if found is None else f"{found.shape[0]:,} elements of {found.dtype}"
            raise FormatError(
                f"{self._place(self._files[rank][0])} has {has} of array {number}, but {self.path} wants "
                f"{length:,} of {dtype}."
            )
        return found


def _joined(tree: Any, shards: Shards) -> Any:
    """A tree with ShardedArrays in the places of their descriptions."""
    if isinstance(tree, list):
        return [_joined(v, shards) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) != [_SHARD]:
        return {k: _joined(v, shards) for k, v in tree.items()}
    where = f"{shards.path} is corrupt: the description of a shared array"
    row(whole(), anything, anything, whole(_LEAST_STEP))(tree[_SHARD], where)
    number, dtype, shape, step = tree[_SHARD]
    kind, axes = described([dtype, shape], shards.path)
    array = ShardedArray(shards, number, axes, kind, step)
    if array.nbytes > shards.nbytes:
        raise FormatError(
            f"{shards.path} is corrupt: an array of {array.nbytes:,} bytes in shards of {shards.nbytes:,}."
        )
    return array


class ShardedArray(StoredArray):
    """An array of `shape` in pieces of `step` elements, of each of which every shard has a part."""

    def __init__(
        self, shards: Shards, number: int, shape: tuple[int, ...], dtype: np.dtype[Any], step: int
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._shards, self._number, self._step = shards, number, step

    def extents(self, start: int = 0, stop: int | None = None) -> Iterator[Extent]:
        """Where the elements [start, stop) lie; shards that were not needed before are verified."""
        count, step, ranks = prod(self.shape), self._step, self._shards.ranks
        stop = count if stop is None else stop
        before = parts(step, ranks)  # elements of a whole piece in each shard
        for piece in range(start // step, -(-stop // step)):
            first = piece * step
            for rank, length in enumerate(parts(min(step, count - first), ranks)):
                a, b = max(start, first), min(stop, first + length)
                if a < b:
                    at = piece * before[rank] + a - first
                    held = self._shards.held(rank, self._number, self.dtype, at + b - a)
                    yield from held.extents(at, at + b - a)
                first += length

    def bytes(self, what: str) -> FileSource:
        """Raise FormatError: shared arrays contain no other files."""
        raise FormatError(f"{what} in {self._shards.path} must be the bytes of a file, not a shared array.")


class ArrayPart(StoredArray):
    """What one rank of so many keeps of a stored array: its parts, one after another, as the planned step has
    them."""

    def __init__(self, of: StoredArray, rank: int, ranks: int) -> None:
        count, size = prod(of.shape), of.dtype.itemsize
        self.shape, self.dtype = (shard_length(count, size, ranks),), of.dtype
        self._of, self._own = of, tuple(own_parts(count, PIECE // size, ranks, rank))

    def extents(self, start: int = 0, stop: int | None = None) -> Iterator[Extent]:
        """Where the elements lie, all of them: others are not asked for."""
        return (s for own in self._own for s in self._of.extents(own.start, own.stop))


def verify(arrays: Sequence[StoredArray]) -> None:
    """Raise FormatError if a file in which an element of these lies is damaged or another's."""
    for array in arrays:
        for _ in array.extents():
            pass
