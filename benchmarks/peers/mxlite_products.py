"""mxlite's side of benchmarks/products.py: what is chosen at bind, and generated products by schedule."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.cpu.compiled.matrix.product import product as generated
from mxlite.backends.cpu.compiled.matrix.schedule import (
    default,
    legal,
    MatricesForm,
    MatricesSchedule,
    MatricesTask,
)
from mxlite.backends.cpu.onednn.product import Layout
from mxlite.backends.cpu.products import product_of, Term
from mxlite.core.dtype import float32
from peers.kernel_peer import Call, KernelPeer
from peers.mxlite_peer import MXLite
from peers.products import Row, ROWS

STEPS, SHORT_S = 2, 0.002


class Ours(KernelPeer):
    """A convolution is a program of its own, in which data and result have channels last."""

    rows = ROWS
    backend = backend_of(mx.cpu())

    def versions(self) -> dict[str, str]:
        return MXLite().versions()

    def answer(self, do: str, **arguments: Any) -> Any:
        with self.backend.running(self.backend.threads()):
            return self.search(**arguments) if do == "search" else super().answer(do, **arguments)

    def calls(self, row: Row, arrays: list[np.ndarray]) -> dict[str, Call]:
        if row.stride:
            return {"chosen": convolution(row, *arrays)}
        self.arrays = [self.aligned(x) for x in arrays]
        (m, k), n = row.inputs[0].shape, row.inputs[1].shape[1]
        self.task = MatricesTask(MatricesForm(), m, n, k)
        sides = self.sides = Layout.dense(m, k), Layout.dense(k, n), Layout.dense(m, n)
        made = product_of(float32, Term("x", "y", "out", sides))
        assert made is not None
        return {"chosen": self.bound(made), "default": self.generated(default(self.task, self.threads))}

    @property
    def threads(self) -> int:
        return mx.get_num_threads()

    def generated(self, schedule: MatricesSchedule) -> Call:
        made = generated(*self.sides, schedule=schedule)
        assert made is not None
        return self.bound(made, " ".join(f"{k}={v}" for k, v in asdict(schedule).items()))

    def bound(self, made: Any, name: str = "") -> Call:
        out = self.backend.array((self.task.m, self.task.n), np.dtype("float32"))
        run = made.bind(*self.arrays, out, None, self.backend.empty(made.scratch))
        return Call(run, name or made.name, lambda: [out])

    def aligned(self, x: np.ndarray) -> Any:
        made = self.backend.array(x.shape, x.dtype)
        made[...] = x
        return made

    def search(self, number: int) -> str:
        """Hold the fastest schedule as "best": of the default one, of `number` legal ones, and of as
        many that differ from the fastest of them in one field. Replies with it."""
        found = list(legal(self.task, self.threads))
        tried: dict[MatricesSchedule, float] = {}

        def fastest(some: Sequence[MatricesSchedule], seconds: float) -> MatricesSchedule:
            for s in some:
                if s not in tried:
                    self.held["tried"] = self.generated(s)
                    tried[s] = self.time("tried", seconds)
            return min(some, key=lambda s: tried[s])

        rng = random.Random(0)
        best = fastest([found[0], *rng.sample(found, min(number, len(found)))], SHORT_S)
        for _ in range(STEPS):
            near = [s for s in found if sum(a != b for a, b in zip(astuple(s), astuple(best))) == 1]
            best = fastest([best, *rng.sample(near, min(number, len(near)))], SHORT_S)
        finalists = [found[0], *sorted(tried, key=lambda s: tried[s])[:4]]
        tried.clear()
        best = fastest(finalists, 10 * SHORT_S)
        self.held["best"] = self.generated(best)
        return str(self.held["best"].kernel)


def convolution(row: Row, data: np.ndarray, weight: np.ndarray) -> Call:
    """The call of a module for inference."""
    made = mx.sym.Convolution(
        mx.sym.transpose(mx.sym.Variable("data"), axes=(0, 3, 1, 2)), kernel=weight.shape[2:],
        num_filter=len(weight), stride=(row.stride,) * 2, pad=(row.pad,) * 2, num_group=row.groups,
        no_bias=True, name="convolution",
    )  # fmt: skip
    module = mx.mod.Module(mx.sym.transpose(made, axes=(0, 2, 3, 1)), label_names=None, context=mx.cpu())
    batch = mx.io.DataBatch([mx.nd.array(data.transpose(0, 2, 3, 1))])
    module.bind([("data", batch.data[0].shape)], for_training=False)
    module.init_params(arg_params={"convolution_weight": mx.nd.array(weight)})

    module.forward(batch, is_train=False)
    program = module._executor

    def run() -> None:
        program.forward(is_train=False)
        mx.nd.waitall()

    kernels = [t.kernel for t in program._planned.infer.problem.tasks if "onvolution" in t.op]
    return Call(run, *kernels, lambda: [program.outputs[0].asnumpy().transpose(0, 3, 1, 2).copy()])


if __name__ == "__main__":
    serve(Ours().answer)
