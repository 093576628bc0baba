"""Gradients that travel in two bits an element.

An element is sent as +t, -t or 0, t being the threshold; what was not sent stays behind, and is added to the
next gradient:

    residual += gradient
    sent      = +t where residual >= t,  -t where residual <= -t,  else 0
    residual -= sent

So does MXNet's store with {'type': '2bit', 'threshold': t}. The idea is that of Frank Seide, Hao Fu, Jasha
Droppo, Gang Li, Dong Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs". There is no server here: all ranks get the bytes of all, 2 / 32 of the
gradient from each, and add up what they mean in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..comm import Communicator
from ..core.errors import nearest, OpAttributeError, RangeError
from ..core.record import record
from ..core.wanted import number, wanted

PIECE = 1 << 18
"""Elements that are packed and sent at a time; a multiple of 4."""

_SHIFTS = np.array([0, 2, 4, 6], np.uint8)
_MEANINGS = np.array([0, 1, -1, 0], np.float32)  # of the two bits, in thresholds


@record
class TwoBit:
    """Compression to two bits an element, with this threshold."""

    threshold: float

    @staticmethod
    def of(params: Any) -> TwoBit | None:
        """The compression that `set_gradient_compression` was asked for; None for {'type': 'none'}."""
        wanted("compression_params", params, "a dict such as {'type': '2bit', 'threshold': 0.5}", Mapping)
        if unknown := [n for n in params if n not in ("type", "threshold")]:
            raise OpAttributeError(
                f"compression_params have 'type' and 'threshold', not {unknown[0]!r}."
                f"{nearest(str(unknown[0]), ('type', 'threshold'))}"
            )
        kind = params.get("type", "2bit")
        if kind not in ("2bit", "none"):
            raise OpAttributeError(f"Gradients are compressed by type '2bit' or 'none', got {kind!r}.")
        threshold = number("threshold", params.get("threshold", 0.5))
        if not 0 < threshold < np.inf:
            raise RangeError(f"The threshold of gradient compression must be above 0, got {threshold}.")
        return None if kind == "none" else TwoBit(threshold)

    def nbytes_of(self, shapes: Sequence[tuple[int, ...]], ranks: int) -> int:
        """Bytes that arrays of these shapes own: residuals, and what is sent and received at a time."""
        sizes = [int(np.prod(s)) for s in shapes]
        return 4 * sum(sizes) + self.work_bytes(max(sizes, default=0), ranks)

    @staticmethod
    def work_bytes(size: int, ranks: int) -> int:
        """Bytes of the scratch that an array of `size` elements needs."""
        return ranks * (-(-min(size, PIECE) // 4))

    def sum(self, comm: Communicator, array: Any, residual: Any, work: Any) -> None:
        """Replace `array`, contiguous, by the sum of what all ranks send of theirs.

        residual: float32, one axis, as many elements; work: uint8, one axis, of `work_bytes` bytes.
        """
        flat = array.reshape(-1)
        for at in range(0, flat.size, PIECE):
            part, kept = flat[at : at + PIECE], residual[at : at + PIECE]
            if not np.isfinite(part).all():
                raise RangeError(
                    f"Rank {comm.rank} would compress a gradient of inf or nan, which its residual would keep."
                )
            kept += part.astype(np.float32, copy=False)
            each = -(-part.size // 4)
            every = work[: comm.size * each]
            every[comm.rank * each :][:each] = self._taken(kept)
            comm.wait(comm.all_gather(every, [each] * comm.size))
            total = np.zeros(part.size, np.float32)
            for row in every.reshape(comm.size, each):
                total += self._meant(row)[: part.size]
            part[...] = total

    def _taken(self, residual: Any) -> Any:
        """Take what is sent out of the residual: four elements a byte, the first one in its lowest bits."""
        up, down = residual >= self.threshold, residual <= -self.threshold
        residual[up] -= np.float32(self.threshold)
        residual[down] += np.float32(self.threshold)
        codes = np.zeros(-(-residual.size // 4) * 4, np.uint8)
        codes[: residual.size] = up + 2 * down.view(np.uint8)
        return np.bitwise_or.reduce(codes.reshape(-1, 4) << _SHIFTS, axis=1)

    def _meant(self, packed: Any) -> Any:
        """The elements that these bytes stand for."""
        codes = (packed[:, None] >> _SHIFTS) & 3
        return _MEANINGS[codes].reshape(-1) * np.float32(self.threshold)
