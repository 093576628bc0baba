"""Base of the worker processes that hold one network; needs only Python 3.8 or later and numpy.

A peer builds its network from the files that `Net.prepare` wrote, keeps it, and runs steps on request. While
it waits for a request it uses no CPU time.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RESET_PEAK = "5"  # written to clear_refs: resets the peak of resident memory to the present value


class Arrays(Mapping):  # type: ignore[type-arg]  # Python 3.8 has no Mapping[...]
    """Arrays of a file whose names begin with `kind:`, read lazily."""

    def __init__(self, path: str, kind: str) -> None:
        self.file = np.load(path, allow_pickle=False)
        self.kind = kind + ":"

    def __getitem__(self, name: str) -> np.ndarray:
        return self.file[self.kind + name]

    def __iter__(self) -> Iterator[str]:
        return (n[len(self.kind) :] for n in self.file.files if n.startswith(self.kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Peer:
    """Base class; a subclass has `versions`, `build`, `push_step`, `wait` and `loss`.

    `build(spec, **options)` makes the network; `push_step` starts one step of training (or inference), `wait`
    returns when all started work is done, `loss` is that of the last step, before its update (for inference:
    minus the logarithm of the probability of a class, three classes in turn).
    """

    def __init__(self) -> None:
        self.resident_before = 0
        self.spec: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        raise NotImplementedError

    def build(self, spec: dict[str, Any], **options: Any) -> None:
        raise NotImplementedError

    def push_step(self) -> None:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for completion; by default a step is complete when `push_step` returns."""

    def loss(self, turn: int) -> float:
        raise NotImplementedError

    # -- requests ------------------------------------------------------------------------------

    def load(self, spec: dict[str, Any], **options: Any) -> float:
        """Build the network; returns the seconds it took."""
        self.resident_before = resident("VmRSS")
        self.spec = spec
        start = time.perf_counter()
        self.build(spec, **options)
        return time.perf_counter() - start

    def losses(self, count: int) -> list[float]:
        """Losses of the next steps. Afterwards the peak of resident memory is reset."""
        found = []
        for turn in range(count):
            self.push_step()
            self.wait()
            found.append(self.loss(turn))
        gc.collect()
        trim()
        reset_peak()
        return found

    def run(self, count: int) -> float:
        """Seconds per step of `count` steps."""
        start = time.perf_counter()
        for _ in range(count):
            self.push_step()
        self.wait()
        return (time.perf_counter() - start) / count

    def memory(self) -> dict[str, int]:
        """Memory in bytes. resident: of the process, at the peak of the steps since `losses`; growth: the
        increase since before the network was built. Empty if the system does not report it."""
        peak = resident("VmHWM")
        return {"resident": peak, "growth": peak - self.resident_before} if peak else {}

    def processor(self) -> float:
        """CPU seconds of all threads of this process."""
        return time.process_time()

    def answer(self, do: str, **arguments: Any) -> Any:
        if do.startswith("_"):
            raise ValueError(do)
        return getattr(self, do)(**arguments)


def resident(key: str) -> int:
    """Bytes of resident memory now (VmRSS) or at the peak (VmHWM); 0 if the system does not report it."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    except OSError:
        pass  # then the peak is that of the process's whole life


def trim() -> None:
    """Return memory freed since building to the system, if the C library can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass


def trained(out: np.ndarray, labels: np.ndarray) -> float:
    """The loss of a training step: from probabilities, or from the sum of all losses, (1,)."""
    return float(out[0]) / labels.size if out.shape == (1,) else cross_entropy(out, labels)


def cross_entropy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -log p over rows; (N, C, ...) has a row for each position."""
    if probabilities.ndim > 2:
        probabilities = np.moveaxis(probabilities, 1, -1).reshape(-1, probabilities.shape[1])
    labels = labels.reshape(-1)
    rows = np.arange(len(labels))
    return float(-np.log(probabilities.astype(np.float64)[rows, labels.astype(int)]).mean())


def inferred(probabilities: np.ndarray, labels: np.ndarray, turn: int) -> float:
    """The loss with respect to one of several classes, so that inference can be compared like training."""
    return cross_entropy(probabilities, (labels + turn) % probabilities.shape[1])
