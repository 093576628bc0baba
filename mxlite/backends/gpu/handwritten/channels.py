"""Work split of sums over samples and positions among blocks; see cuda/channels.cuh."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from .layout import power_of_two

THREADS = 256
PARTS = 1024  # blocks that sums are split over: eight for each multiprocessor of the largest GPUs
AT_ONCE_ROUNDS = 32  # packs of a thread, up to which one block has all of a channel


@dataclass(frozen=True)
class Split:
    """Work of each block: its threads, and how samples and positions are split into parts."""

    shape: tuple[int, int, int]
    pack: int
    threads: tuple[int, int]
    steps: tuple[int, int]
    parts: tuple[int, int]
    channels: int  # blocks side by side

    @property
    def last(self) -> bool:
        return self.shape[2] == 1

    @property
    def num_parts(self) -> int:
        return self.parts[0] * self.parts[1]

    @property
    def numbers(self) -> list[Any]:
        """Kernel arguments of the split: SIZE of channels.cuh."""
        return [ctypes.c_int64(x) for x in (*self.shape, *self.steps, self.parts[1])]


def split(shape: tuple[int, int, int], pack: int, parts: int, rounds: int) -> Split:
    """Split into at most `parts` blocks in total, with at least `rounds` loop iterations of each thread."""
    i, c, p = shape
    last = p == 1
    columns = -(-(c if last else p) // pack)
    across = min(32 if last else THREADS, power_of_two(columns))
    down = min(THREADS // across, power_of_two(i))
    channels = -(-columns // across) if last else c
    all_i, all_j = max(1, -(-i // down)), 1 if last else -(-columns // across)
    wanted = min(max(1, parts // max(1, channels)), -(-all_i * all_j // rounds))
    parts_i = min(all_i, max(1, wanted))
    parts_j = min(all_j, max(1, wanted // parts_i))
    step_i = max(1, -(-i // parts_i))
    step_j = 1 if last else -(-all_j // parts_j) * across * pack
    parts_i, parts_j = max(1, -(-i // step_i)), max(1, -(-p // step_j))
    return Split(shape, pack, (across, down), (step_i, step_j), (parts_i, parts_j), channels)


def split_at_once(shape: tuple[int, int, int], pack: int) -> Split | None:
    """Split with one part, if threads can go through it in a few rounds."""
    i, c, p = shape
    last = p == 1
    columns = -(-(c if last else p) // pack)
    across = min(4 if last else THREADS, power_of_two(columns))
    down = min(THREADS // across, power_of_two(i))
    rounds = -(-i // down) * (1 if last else -(-columns // across))
    if rounds > AT_ONCE_ROUNDS:
        return None
    channels = -(-columns // across) if last else c
    return Split(shape, pack, (across, down), (max(1, i), max(1, p)), (1, 1), channels)
