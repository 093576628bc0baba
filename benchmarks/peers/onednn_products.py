"""oneDNN's side of benchmarks/products.py: its primitives, with plain and with packed weights."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.cpu.convolution.shapes import window
from mxlite.backends.cpu.onednn import bind, Memory, memory, memory_any, Primitive, reorder
from mxlite.backends.cpu.onednn.constants import DIRECT, DST, INFERENCE, SRC, WEIGHTS
from mxlite.core.dtype import float32
from mxlite.ops.nn.conv_kernels import Geometry
from peers.kernel_peer import Call, KernelPeer
from peers.mxlite_peer import MXLite
from peers.products import Row, ROWS


class Theirs(KernelPeer):
    """Primitives; a packed matrix and all arrays of a convolution lie as the primitive likes best."""

    rows = ROWS
    backend = backend_of(mx.cpu())

    def versions(self) -> dict[str, str]:
        return {"oneDNN": MXLite().versions()["oneDNN"]}

    def answer(self, do: str, **arguments: Any) -> Any:
        with self.backend.running(self.backend.threads()):
            return super().answer(do, **arguments)

    def calls(self, row: Row, arrays: list[np.ndarray]) -> dict[str, Call]:
        x, y = arrays
        if not row.stride:
            out = (len(x), y.shape[1])
            sides = memory(x.shape, float32), memory(out, float32)
            return {
                way: self.call(Primitive("matmul", sides[0], wanted, None, sides[1]), x, y, out)
                for way, wanted in (
                    ("plain", memory(y.shape, float32)),
                    ("packed", memory_any(y.shape, float32)),
                )
            }
        across = (x.shape[-1] + 2 * row.pad - y.shape[-1]) // row.stride + 1
        g = Geometry(
            1, x.shape[1], x.shape[2:], len(y), (across,) * 2, y.shape[2:], (row.stride,) * 2, (1, 1),
            (row.pad,) * 2, row.groups, float32,
        )  # fmt: skip
        if row.groups > 1:
            y = y.reshape(row.groups, -1, *y.shape[1:])
        out = (1, g.f, *g.out)
        data, weight, made = (memory_any(shape, float32) for shape in (x.shape, y.shape, out))
        kinds = ctypes.c_int(INFERENCE), ctypes.c_int(DIRECT)
        return {
            "onednn": self.call(
                Primitive("convolution_forward", *kinds, data, weight, None, made, *window(g)), x, y, out
            )
        }

    def call(self, primitive: Primitive, x: np.ndarray, y: np.ndarray, shape: tuple[int, ...]) -> Call:
        """A call on arrays in the layouts that it wants."""
        wanted = [primitive.wants(i) for i in (SRC, WEIGHTS, DST)]
        data, weight = (self.moved(a, memory(a.shape, float32), w) for a, w in zip((x, y), wanted))
        out = self.backend.empty(wanted[2].nbytes)
        arrays = {SRC: (wanted[0], data), WEIGHTS: (wanted[1], weight), DST: (wanted[2], out)}
        run = bind(primitive, arrays, self.backend.empty(primitive.scratch))
        plain = memory(shape, float32)

        def results() -> list[np.ndarray]:
            return [self.moved(out, wanted[2], plain).view(np.float32).reshape(shape)]

        return Call(run, primitive.implementation, results)

    def moved(self, array: Any, source: Memory, target: Memory) -> Any:
        """A copy in another layout, as bytes."""
        how, made = reorder(source, target), self.backend.empty(target.nbytes)
        bind(how, {SRC: (source, array), DST: (target, made)}, self.backend.empty(how.scratch))()
        return made


if __name__ == "__main__":
    serve(Theirs().answer)
