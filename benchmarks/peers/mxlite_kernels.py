"""mxlite's side of single operators: kernels that a program would take, bound to arrays as in one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness.worker import serve

import mxlite as mx
from mxlite.backends import backend_of, bind_call
from mxlite.graph import Op, parse_attrs
from mxlite.ops import find_op
from peers.kernel_peer import Call, head, KernelPeer
from peers.mxlite_peer import MXLite
from peers.operators import Row


class Ours(KernelPeer):
    """Kernels of the CPU backend."""

    backend = backend_of(mx.cpu())

    def versions(self) -> dict[str, str]:
        return MXLite().versions()

    def answer(self, do: str, **arguments: Any) -> Any:
        with self.backend.running(self.backend.threads()), np.errstate(all="ignore"):
            return super().answer(do, **arguments)

    def calls(self, row: Row, arrays: list[np.ndarray]) -> dict[str, Call]:
        op = find_op(row.op)
        a = parse_attrs(op, row.attrs)
        shapes = op.infer_shape(a, *(i.shape for i in row.inputs))
        types = op.infer_type(a, *(x.dtype for x in arrays))
        ins, outs = op.input_names(a), op.output_names(a)
        visible = outs[: op.num_visible_outputs(a)]
        have = dict(zip(ins, map(self.array, arrays)))
        have |= {n: self.backend.array(s, t) for n, s, t in zip(outs, *(x[1] for x in (shapes, types)))}

        def bound(which: type[Op], wanted: tuple[str, ...]) -> Call:
            """A call of the operator or its gradient that makes the arrays `wanted`."""
            read = {n for n in which.input_names(a) if n in have} - op.unneeded(a)
            kernel = self.backend.choose(
                which, a, *shapes, types[0][0], types[0], frozenset(read.union(wanted))
            )
            run = bind_call(
                kernel,
                self.backend.xp,
                which,
                a,
                [have[n] if n in read else None for n in which.input_names(a)],
                [have[n] if n in wanted else None for n in which.output_names(a)],
                work=self.backend.empty(kernel.workspace),
                train=True,
                shapes=shapes,
            )
            return Call(run, kernel.name, lambda: [have[n] for n in wanted])

        found = {"forward": bound(op, visible)}
        if op.grad_op is not None:
            bound(op, outs).run()  # a gradient may read outputs that users do not see
            have |= {"d_" + n: self.array(head(have[n].shape)) for n in visible}
            wanted = {"d_" + n: x for n, x, i in zip(ins, arrays, row.inputs) if i.kind == "float"}
            have |= {n: self.array(x) for n, x in wanted.items()}
            found["gradient"] = bound(op.grad_op, tuple(wanted))
        return found

    def array(self, x: np.ndarray) -> Any:
        """A copy that is aligned as a program's arrays are."""
        made = self.backend.array(x.shape, x.dtype)
        made[...] = x
        return made


if __name__ == "__main__":
    serve(Ours().answer)
