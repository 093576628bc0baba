"""PREFIX.resume: the state of training, so that it continues to bitwise the same weights.

Beside parameters and optimizer states it holds epoch and batch, the counter of the random generator (which
the next dropout uses), the loss scale of mixed precision, and the position and order of the data. In the
checkpoint of several ranks (`shards.py`) each has a generator, data and auxiliary states of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Context, FormatError
from ...core.disk.schema import (
    anything,
    array as array_of,
    exactly,
    fields,
    named,
    real,
    row,
    several,
    text,
    whole,
)
from ...ndarray import NDArray, random as nd_random
from ...ndarray.files.stored import StoredArray
from . import shards
from .statefile import stored_state, whole as whole_tree

_WORD = text("[0-9]{1,19}", "a number of at most 19 digits as text")
_RANDOM = row(text("[0-9]{1,20}", "a number of at most 20 digits as text"), _WORD)
_COMMON = {
    "kind": exactly("resume"),
    "epoch": whole(),
    "nbatch": whole(),
    "args": named(array_of("fiubV")),
    "optimizer": lambda value, where: value if isinstance(value, dict) else array_of("u", 1)(value, where),
}
_OWN = {
    "aux": named(array_of("fiubV")),
    "random": _RANDOM,
    "data": anything,  # the iterator's to check
}
_OTHERS = {"random_of_others": several(_RANDOM)}
_SCALE = {"loss_scale": row(real(2.0**-126, 2.0**127), whole())}
_POSITION = fields(_COMMON | _OWN, _SCALE | _OTHERS)
_SHARED, _OF_RANK = fields(_COMMON, _SCALE), fields(_OWN, _OTHERS)


@dataclass(frozen=True)
class Moment:
    """Positions of each device's random numbers and of the data."""

    random: Sequence[tuple[int, int]]
    data: Any

    @classmethod
    def of(cls, train_data: Any, contexts: Sequence[Context]) -> Moment:
        """The current moment."""
        data = train_data.state() if hasattr(train_data, "state") else None
        return cls([nd_random.get_state(c) for c in contexts], data)


@dataclass(frozen=True)
class Position:
    """Content of a resume file: `optimizer` is what the Updater saved, or a file with that as older versions
    wrote it, `data` the state of the iterator.

    `random` is None where a generator goes on as it is. The arrays are still in the file, which stays open as
    long as one of them exists.
    """

    epoch: int
    nbatch: int
    args: dict[str, StoredArray]
    aux: dict[str, StoredArray]
    optimizer: Any
    random: Sequence[tuple[int, int]]
    data: Any
    loss_scale: tuple[float, int] | None = None

    def state_tree(self) -> Any:
        """What the Updater saved."""
        if isinstance(self.optimizer, StoredArray):
            return stored_state(self.optimizer.bytes("The optimizer state"))
        return self.optimizer

    def restore_randomness(self, train_data: Any, contexts: Sequence[Context]) -> None:
        """Restore the random generators of the devices, as many as there were, and the iterator."""
        for state, context in zip(self.random, contexts):
            nd_random.set_state(state, context)
        if self.data is not None and hasattr(train_data, "set_state"):
            train_data.set_state(self.data)


def save(
    prefix: str,
    epoch: int,
    nbatch: int,
    args: Mapping[str, NDArray | shards.Shard],
    aux: Mapping[str, NDArray],
    optimizer: Mapping[str, Any],
    moment: Moment,
    loss_scale: tuple[float, int] | None = None,
    together: bool = False,
) -> None:
    """Write the file: whole, or not at all. A piece at a time: no array is copied.

    All ranks call it `together`, or each for a file of its own.
    """
    # Numbers beyond 63 bits as text: JSON readers differ in handling them.
    first, *others = [[str(int(n)) for n in state] for state in moment.random]
    common: dict[str, Any] = {
        "kind": "resume",
        "epoch": epoch,
        "nbatch": nbatch,
        "args": dict(args),
        "optimizer": optimizer,
    }
    own: dict[str, Any] = {
        "aux": dict(aux),
        "random": first,
        "data": moment.data,
    }
    if others:
        own["random_of_others"] = others
    if loss_scale is not None:
        common["loss_scale"] = list(loss_scale)
    path = f"{prefix}.resume"
    if together:
        shards.write(path, common, own)
    else:
        shards.write(path, common | own)


def load(prefix: str, rank: int = 0, ranks: int | None = 1) -> Position | None:
    """Read the file, as `rank` of so many, or as the rank for which it was written; None if there is none.

    A rank that the file does not know begins with the auxiliary states of rank 0. If the number of ranks is
    another one, the data is divided in another way, and an epoch that was begun is begun again. Raises
    FormatError if the file is damaged or something else.
    """
    path = f"{prefix}.resume"
    if not os.path.exists(path):
        return None
    tree, files = shards.read(path)
    if not isinstance(tree, dict) or tree.get("kind") != "resume":
        raise FormatError(f"{path} holds a state, but not one to resume training from.")
    what = f"{path} is corrupt: its content"
    if files is None:
        own, writers = _POSITION(tree, what), 1
    else:
        _SHARED(tree, what)
        writers = files.ranks
        own = files.content(rank if rank < writers else 0)["own"]
        _OF_RANK(own, f"{path} is corrupt: what its shard of rank {rank} has")
    same = ranks in (None, writers)
    states = [own["random"], *own.get("random_of_others", ())]
    scale, steps = tree.get("loss_scale", (None, 0))
    return Position(
        tree["epoch"],
        tree["nbatch"] if same else 0,
        tree["args"],
        own["aux"],
        tree["optimizer"],
        [(int(seed), int(counter)) for seed, counter in states] if same or rank < writers else (),
        whole_tree(own["data"]) if same else None,
        None if scale is None else (float(scale), steps),
    )
