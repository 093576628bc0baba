"""float32 copies of 16-bit weights, the **masters**: updates change them, weights are them rounded.

An update reads a weight's master and never the weight. So an assignment to the weight (`set_params`,
`arg_dict["fc1_weight"][:] = 0`, weights that are cut to a range) would be ignored by the next update, as in
MXNet. Here masters follow their weights: before an update, the master of a weight that has been written since
is set to it wherever it does not round to it. Elsewhere it stays: writing back what was read loses nothing.

Writes that bypass the engine, into memory shared by DLPack for example, are not detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

from ...ndarray import NDArray, where

PIECE = 1 << 18  # elements that are compared at a time, so that temporaries are small


@dataclass
class Masters:
    """A flag: float32 copies of 16-bit weights have been made. Executors that share the copies share it."""

    made: bool = False


_seen: dict[int, tuple[ref[NDArray], int]] = {}
"""By the id of a master: it, and its weight's number of writes when the two agreed."""


def follow(weight: NDArray, master: NDArray) -> None:
    """Set `master` to `weight` where it does not round to it; do nothing if the weight was not written since
    `note`."""
    found = _seen.get(id(master))
    if found is not None and found[1] == weight.var.pushes:
        return
    if weight.stype != "default":
        return  # only updates write its rows
    wide, narrow = master.reshape((-1,)), weight.reshape((-1,))
    for start in range(0, weight.size, PIECE):
        mine, new = wide[start : start + PIECE], narrow[start : start + PIECE]
        mine[:] = where(mine.astype(weight.dtype) == new, mine, new.astype("float32"))
    note(weight, master)


def note(weight: NDArray, master: NDArray) -> None:
    """Note that `weight` is `master` rounded, after all that has been pushed."""
    key = id(master)
    found = _seen.get(key)
    alive = ref(master, lambda _: _seen.pop(key, None)) if found is None else found[0]
    _seen[key] = alive, weight.var.pushes
