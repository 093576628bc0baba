"""PREFIX.resume: where training stood, so that it goes on to bitwise the same weights.

Beside parameters and optimizer states that is: epoch and batch, the counter of the random generator (what the
next dropout draws), the loss scale of mixed precision, and the position and order of the data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import Context, FormatError, replacing
from ..ndarray import array, NDArray, random as nd_random
from .statefile import pack_state, unpack_state

_KEYS = {"kind", "epoch", "nbatch", "args", "aux", "optimizer", "random", "data"}


@dataclass(frozen=True)
class Position:
    """What a resume file holds: `optimizer` is what the Updater saved, `data` the state of the iterator."""

    epoch: int
    nbatch: int
    args: dict[str, NDArray]
    aux: dict[str, NDArray]
    optimizer: bytes
    random: tuple[int, int]
    data: Any
    loss_scale: tuple[float, int] | None = None

    def restore_randomness(self, train_data: Any, ctx: Context) -> None:
        """Set the device's random generator and the iterator back to where they were."""
        nd_random.set_state(self.random, ctx)
        if self.data is not None and hasattr(train_data, "set_state"):
            train_data.set_state(self.data)


def save(
    prefix: str,
    epoch: int,
    nbatch: int,
    args: Mapping[str, NDArray],
    aux: Mapping[str, NDArray],
    optimizer: bytes,
    train_data: Any,
    ctx: Context,
    loss_scale: tuple[float, int] | None = None,
) -> None:
    """Write the file: whole, or not at all."""
    tree: dict[str, Any] = {
        "kind": "resume",
        "epoch": epoch,
        "nbatch": nbatch,
        "args": dict(args),
        "aux": dict(aux),
        "optimizer": np.frombuffer(optimizer, np.uint8),
        # Numbers beyond 63 bits as text: JSON readers differ about them.
        "random": [str(int(n)) for n in nd_random.get_state(ctx)],
        "data": train_data.state() if hasattr(train_data, "state") else None,
    }
    if loss_scale is not None:
        tree["loss_scale"] = list(loss_scale)
    with replacing(f"{prefix}.resume") as file:
        file.write(pack_state(tree))


def load(prefix: str) -> Position | None:
    """Read the file; None if there is none. Raises FormatError if it is damaged or something else."""
    path = f"{prefix}.resume"
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        tree = unpack_state(file.read(), path)
    if not isinstance(tree, dict) or tree.get("kind") != "resume" or set(tree) - {"loss_scale"} != _KEYS:
        raise FormatError(f"{path} holds a state, but not one to resume training from.")
    try:
        seed, counter = tree["random"]
        scale, steps = tree.get("loss_scale", (None, 0))
        return Position(
            int(tree["epoch"]),
            int(tree["nbatch"]),
            {n: array(a, dtype=a.dtype) for n, a in tree["args"].items()},
            {n: array(a, dtype=a.dtype) for n, a in tree["aux"].items()},
            tree["optimizer"].tobytes(),
            (int(seed), int(counter)),
            tree["data"],
            None if scale is None else (float(scale), int(steps)),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path} is corrupt: {error}.") from None
