"""PREFIX.resume: the state of training, so that it continues to bitwise the same weights.

Beside parameters and optimizer states it holds epoch and batch, the counter of the random generator (which
the next dropout uses), the loss scale of mixed precision, and the position and order of the data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Context, FormatError, replacing
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
from ...ndarray.files.stored import FileSource, StoredArray
from .statefile import Packed, stored_state, whole as whole_tree

_WORD = text("[0-9]{1,19}", "a number of at most 19 digits as text")
_RANDOM = row(text("[0-9]{1,20}", "a number of at most 20 digits as text"), _WORD)
_POSITION = fields(
    {
        "kind": exactly("resume"),
        "epoch": whole(),
        "nbatch": whole(),
        "args": named(array_of("fiubV")),
        "aux": named(array_of("fiubV")),
        "optimizer": array_of("u", 1),
        "random": _RANDOM,
        "data": anything,  # the iterator's to check
    },
    {"loss_scale": row(real(2.0**-126, 2.0**127), whole()), "random_of_others": several(_RANDOM)},
)


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
    """Content of a resume file: `optimizer` is what the Updater saved, `data` the state of the iterator.

    The arrays are still in the file, which stays open as long as one of them exists.
    """

    epoch: int
    nbatch: int
    args: dict[str, StoredArray]
    aux: dict[str, StoredArray]
    optimizer: FileSource
    random: Sequence[tuple[int, int]]
    data: Any
    loss_scale: tuple[float, int] | None = None

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
    args: Mapping[str, NDArray],
    aux: Mapping[str, NDArray],
    optimizer: Packed,
    moment: Moment,
    loss_scale: tuple[float, int] | None = None,
) -> None:
    """Write the file: whole, or not at all. A piece at a time: no array is copied."""
    # Numbers beyond 63 bits as text: JSON readers differ in handling them.
    first, *others = [[str(int(n)) for n in state] for state in moment.random]
    tree: dict[str, Any] = {
        "kind": "resume",
        "epoch": epoch,
        "nbatch": nbatch,
        "args": dict(args),
        "aux": dict(aux),
        "optimizer": optimizer,
        "random": first,
        "data": moment.data,
    }
    if others:
        tree["random_of_others"] = others
    if loss_scale is not None:
        tree["loss_scale"] = list(loss_scale)
    with replacing(f"{prefix}.resume") as file:
        Packed(tree).write(file)


def load(prefix: str) -> Position | None:
    """Read the file; None if there is none. Raises FormatError if it is damaged or something else."""
    path = f"{prefix}.resume"
    if not os.path.exists(path):
        return None
    tree = stored_state(FileSource.opened(path))
    if not isinstance(tree, dict) or tree.get("kind") != "resume":
        raise FormatError(f"{path} holds a state, but not one to resume training from.")
    _POSITION(tree, f"{path} is corrupt: its content")
    states = [tree["random"], *tree.get("random_of_others", ())]
    scale, steps = tree.get("loss_scale", (None, 0))
    return Position(
        tree["epoch"],
        tree["nbatch"],
        tree["args"],
        tree["aux"],
        tree["optimizer"].bytes("The optimizer state"),
        [(int(seed), int(counter)) for seed, counter in states],
        whole_tree(tree["data"]),
        None if scale is None else (float(scale), steps),
    )
