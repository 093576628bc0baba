"""The sums of `ops/nn/image_gradient.py`, by the generated loops of `image_loops.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....ops.nn.conv_kernels import Geometry
from ....ops.nn.pool_kernels import Windows
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled import call, storable, usable, width
from ..compiled.codegen.routine import code_of
from ..compiled.nests import ColumnSum
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of
from ..runtime.threads import num_threads
from .choice import by_weight
from .direct import part_of
from .image_loops import chosen_entry, SLOTS, sums_entry

_byte = np.dtype("uint8")

MOST = 32  # vectors of a patch


class _Images:
    """Base of both sums: the geometry `g` of the convolution, and sums for `extra` more filters."""

    def __init__(self, g: Geometry, extra: int = 0) -> None:
        self.lanes = width() if usable() else 0
        if not self.lanes or g.dtype.name not in storable() or len(g.size) != 2 or g.groups != 1:
            raise LookupError
        # A row of a patch is copied in whole vectors; the next row overwrites what is beyond it.
        side = g.kernel[1] * g.c
        self.wide = -(-side // self.lanes)
        self.vectors = -(-((g.kernel[0] - 1) * side) // self.lanes) + self.wide
        if any(d != 1 for d in g.dilate) or self.vectors > MOST or 0 in (g.n, g.c, *g.size, *g.out):
            raise LookupError
        self.g, self.extra, self.threads = g, extra, num_threads()
        own, reached = (g.size[1] + 2 * g.pad[1]) * g.c, (g.out[1] - 1) * g.stride[1] * g.c
        longest = max(own, reached + self.wide * self.lanes)
        self.row = 4 * (-(-longest // self.lanes) * self.lanes)  # bytes
        self.rows = g.size[0] + 2 * g.pad[0]

    @property
    def patch(self) -> int:
        """Number of elements of a patch."""
        return self.vectors * self.lanes

    @property
    def sums(self) -> Shape:
        """Shape of a thread's sums; the last axis has room for whole vectors."""
        return (self.g.f + self.extra, self.patch)

    @property
    def positions(self) -> tuple[int, int]:
        """Number of factors for each filter, and of patches, that exist at a time."""
        raise NotImplementedError

    def places(self) -> dict[str, int]:
        """Offsets in a thread's scratch: the image, patches, factors, sums."""
        factors, patches = self.positions
        at_patches = _whole(self.rows * self.row + 4 * self.wide * self.lanes)
        at_factors = at_patches + _whole(4 * patches * self.patch)
        at_sums = at_factors + _whole(4 * factors * self.g.f)
        share = _whole(at_sums + 4 * prod(self.sums), 4096) + 64
        return {"at_patches": at_patches, "at_factors": at_factors, "at_sums": at_sums, "share": share}

    def piece(self) -> Piece:
        return ((self.threads * self.places()["share"],), _byte)

    def found(self, work: Any) -> Any:
        """The first thread's sums, which hold those of all threads at the end."""
        at = self.places()["at_sums"]
        return work[at : at + 4 * prod(self.sums)].view(float32).reshape(self.sums)

    def by_weight(self, sums: Any) -> Any:
        """Sums by the axes of the weight: (F + extra, C, *K)."""
        g = self.g
        taps = sums[:, : prod(g.kernel) * g.c].reshape(-1, *g.kernel, g.c)
        return taps.transpose(0, 3, 1, 2)

    def numbers(self) -> dict[str, int]:
        g = self.g
        return {
            **self.places(), "images": g.n, "h": g.size[0], "line": g.size[1] * g.c, "nbytes": self.row,
            "at_image": g.pad[0] * self.row + 4 * g.pad[1] * g.c, "row": self.rows,
            "down": g.stride[0] * self.row, "right": 4 * g.stride[1] * g.c,
            "oh": g.out[0], "ow": g.out[1], "filters": g.f, "patch": 4 * self.patch,
            "made_h": g.out[0], "made_w": g.out[1],
        }  # fmt: skip

    def form(self) -> tuple[int, int, int, int, str]:
        """Key of the generated code: rows of a patch, their numbers and vectors, all vectors, the type."""
        g = self.g
        return g.kernel[0], g.kernel[1] * g.c, self.wide, self.vectors, g.dtype.name

    def call(self, code: tuple[Any, str], arrays: dict[str, Any], more: dict[str, int]) -> Run:
        values = self.numbers() | {n: address_of(x) for n, x in arrays.items()} | more
        return call(code[0], code[1], [values.get(s, 0) for s in SLOTS], self.threads, keep=arrays)


class PatchSums(_Images):
    """Sums of (made - mean) * patch and of patches."""

    name = "compiled patches"

    def __init__(self, g: Geometry) -> None:
        super().__init__(g, extra=1)
        self.panel = 2 - self.vectors % 2  # vectors
        self.pieces = [(self.sums, float32), self.piece()]

    @property
    def positions(self) -> tuple[int, int]:
        return self.g.out[1], self.g.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, made: Any, data: Any, mean: Any, sums: Any, patches: Any, work: Any) -> Run:
        flat, own = carve(work, self.pieces)
        code = code_of(sums_entry, *self.form())
        arrays = dict(data=data, made=made, mean=mean, table=np.ones(1, float32), work=own)
        run = self.call(code, arrays, {})
        # In panels of a few vectors, and within them by filters.
        panels = self.found(own).reshape(-1, self.sums[0], self.panel * self.lanes).transpose(1, 0, 2)
        rows, all_sums = flat.reshape(panels.shape), self.by_weight(flat)

        def sum_up() -> None:
            run()
            np.copyto(rows, panels)
            if sums is not None:
                np.copyto(sums, all_sums[:-1])
            if patches is not None:
                np.copyto(patches, all_sums[-1])

        return sum_up


class PatchSumsByProduct:
    """The same for processors that multiply 16-bit numbers themselves: sums of made * patch as the weight
    gradient with `made` for d_out, those of patches from the sum of all images. The difference has more
    rounding errors where the mean is many times the standard deviation, as the 16-bit numbers have.
    """

    def __init__(self, g: Geometry) -> None:
        if part_of(g).dtype != g.dtype or g.dtype == float32:
            raise LookupError
        self.way, self.shape = by_weight(g, float32, False), (g.f, g.c, *g.kernel)
        if self.way is None:
            raise LookupError
        self.name = f"{self.way.name}, compiled patches"
        self.columns = ColumnSum(g.n, g.c * prod(g.size), g.dtype, float32)
        self.alone = PatchSums(replace(g, n=1, f=0, dtype=float32))
        most = max(self.way.nbytes, self.columns.nbytes, self.alone.nbytes)
        self.pieces: list[Piece] = [
            (self.shape, float32), (self.shape, float32), ((g.c * prod(g.size),), float32), ((most,), _byte),
        ]  # fmt: skip

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, made: Any, data: Any, mean: Any, sums: Any, patches: Any, work: Any) -> Run:
        products, spare, image, rest = carve(work, self.pieces)
        sums = products if sums is None else sums
        patches = spare[0] if patches is None else patches
        calls = [
            self.way.connect(made, data, products, None, rest[: self.way.nbytes]),
            self.columns.connect(data, image, rest[: self.columns.nbytes]),
            self.alone.connect(image, image, image, None, patches, rest[: self.alone.nbytes]),
        ]
        column = mean.reshape(-1, 1, 1, 1)

        def center() -> None:
            np.multiply(column, patches, out=spare)
            np.subtract(products, spare, out=sums)

        return in_turn([*calls, center])


class ChosenSums(_Images):
    """Sums of gamma * var * d * patch, d being the gradient `grad` of the elements that pooling with windows
    `w` has `chosen`; 0 where `relu` is set and their norm is not above 0.
    """

    name = "compiled patches of maxima"

    def __init__(self, g: Geometry, w: Windows, relu: bool) -> None:
        super().__init__(g)
        last = [(o - 1) * s for o, s in zip(w.out, w.stride)]
        if len(w.out) != 2 or prod(w.kernel) >= 255 or any(p >= n for p, n in zip(last, g.out)):
            raise LookupError
        self.w, self.relu = w, relu
        self.pieces = [self.piece()]

    @property
    def positions(self) -> tuple[int, int]:
        return self.w.out[1], self.w.kernel[0] * self.g.out[1]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(
        self, grad: Any, chosen: Any, index: Any, norm: Sequence[Any], data: Any, work: Any
    ) -> tuple[Run, Any]:
        """The call, and the view of its result, (F, C, *K), in `work`. norm: gamma, beta, mean and var."""
        (own,), w = carve(work, self.pieces), self.w
        y, x = np.divmod(np.arange(prod(w.kernel) + 1), w.kernel[1])
        y[-1], x[-1] = w.pad  # no maximum: all are nan
        table = ((y * self.g.out[1] + x) * 4 * self.patch).astype(np.int64)
        code = code_of(chosen_entry, *self.form(), self.relu)
        arrays = dict(
            data=data, made=grad, chosen=chosen, index=index, table=table, work=own,
            **dict(zip(("gamma", "beta", "mean", "var"), norm)),
        )  # fmt: skip
        more = {
            "oh": w.out[0], "ow": w.out[1], "window_h": w.kernel[0], "step_h": w.stride[0],
            "step_w": w.stride[1], "above": w.pad[0], "left": w.pad[1],
        }  # fmt: skip
        return self.call(code, arrays, more), self.by_weight(self.found(own))


def _whole(nbytes: int, to: int = 64) -> int:
    return -(-nbytes // to) * to
