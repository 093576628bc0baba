"""Runs of one operator, with the kernel the CPU backend chooses and with the reference kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.graph.attrs import parse_attrs
from mxlite.graph.opdef import Op
from mxlite.ops.random.philox import RandomStream

GUARD = 256  # bytes on both sides of scratch


class Node:
    """An operator with attributes on inputs of given shapes and dtypes (optional ones left out)."""

    def __init__(
        self, op: type[Op], shapes: dict[str, tuple[int, ...]], dtype: str = "float32", train: bool = True,
        dtypes: dict[str, str] | None = None, **attrs: Any,
    ) -> None:  # fmt: skip
        self.op, self.attrs, self.train = op, parse_attrs(op, attrs), train
        self.names = op.input_names(self.attrs)
        kinds = [np.dtype((dtypes or {}).get(n, dtype)) for n in self.names]
        ins, outs = op.infer_shape(self.attrs, *(shapes.get(n) for n in self.names))
        self.in_types, self.out_types = op.infer_type(self.attrs, *kinds)
        self.shapes = (tuple(ins), tuple(outs))
        self.outputs = op.output_names(self.attrs)

    def layout(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        found = {}
        for names, shapes, types in (
            (self.names, self.shapes[0], self.in_types),
            (self.outputs, self.shapes[1], self.out_types),
        ):
            for n, s, d in zip(names, shapes, types):
                found[n] = found["d_" + n] = (s, d)
        return found

    def kernel(self, backward: bool = False, wanted: Any = None) -> Any:
        """The kernel the backend chooses."""
        op = self.op.grad_op if backward else self.op
        used = None
        if wanted is not None:
            used = frozenset((*op.input_names(self.attrs), *wanted))
        return CPU.choose(op, self.attrs, *self.shapes, self.in_types[0], self.in_types, used, self.train)

    def reference(self, backward: bool = False) -> Any:
        op = self.op.grad_op if backward else self.op
        return CPU.reference(op, self.attrs, *self.shapes, self.in_types[0])

    def inputs(self, seed: int = 0, scale: float = 1.0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {
            n: (rng.standard_normal(s) * scale).astype(d)
            for n, s, d in zip(self.names, self.shapes[0], self.in_types)
        }

    def run(
        self, kernel: Any, arrays: dict[str, Any], backward: bool = False, wanted: Any = None,
        imperative: bool = False, into: dict[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Outputs by name. They hold NaN before, as does scratch, which has guards around."""
        op = self.op.grad_op if backward else self.op
        layout = self.layout()
        outs: dict[str, Any] = {}
        for name in op.output_names(self.attrs):
            shape, dtype = layout[name]
            if wanted is not None and name not in wanted:
                outs[name] = None
            elif into and name in into:
                outs[name] = into[name]
            else:
                outs[name] = (
                    np.full(int(np.prod(shape)) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)
                )
        block = CPU.empty(GUARD + kernel.workspace + GUARD)
        block.fill(0xFF)
        work = block[GUARD : GUARD + kernel.workspace]
        ins = [arrays.get(n) for n in op.input_names(self.attrs)]
        before = [None if x is None else x.copy() for x in ins]
        how = {}
        if imperative:
            how["link"] = lambda run, *args, **keywords: lambda: run(*args, **keywords)
        call = bind_call(
            kernel, np, op, self.attrs, ins, list(outs.values()), work=work,
            rng=RandomStream(np.array([7, 3], np.uint64), 5), train=self.train, shapes=self.shapes, **how,
        )  # fmt: skip
        with np.errstate(all="ignore"), CPU.running(CPU.threads()):
            call()
            if not imperative:
                first = {n: None if x is None else x.copy() for n, x in outs.items()}
                call()  # a call is made many times
                for n, x in first.items():
                    assert x is None or x.tobytes() == outs[n].tobytes(), f"{n} differs in a second run"
        assert (block[:GUARD] == 0xFF).all() and (block[GUARD + kernel.workspace :] == 0xFF).all()
        for x, y in zip(ins, before):
            assert x is None or x.tobytes() == y.tobytes(), "an input was written"
        return outs


def close(got: Any, want: Any, tolerance: float, what: str = "") -> None:
    """Equal within `tolerance` of the largest number."""
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert a.shape == b.shape, what
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=1e-30))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def compare(
    node: Node,
    arrays: dict[str, Any] | None = None,
    tolerance: float = 2e-5,
    heads: dict[str, Any] | None = None,
    imperative: bool = False, name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Forward and backward of the chosen kernels against the reference ones; `name` begins the kernels'
    names.
    """
    arrays = node.inputs() if arrays is None else arrays
    chosen = node.kernel()
    if name is not None:
        assert chosen.name.startswith(name), chosen.name
    got = node.run(chosen, arrays, imperative=imperative)
    want = node.run(node.reference(), arrays, imperative=True)
    for n in want:
        if n in node.outputs[: node.op.num_visible_outputs(node.attrs)]:
            close(got[n], want[n], tolerance, n)
    if node.op.grad_op is None:
        return got, {}
    rng = np.random.default_rng(1)
    given = {**arrays, **got}
    for n, s, d in zip(node.outputs, node.shapes[1], node.out_types):
        given["d_" + n] = rng.standard_normal(s).astype(d)
    given |= heads or {}
    back = node.kernel(backward=True)
    if name is not None:
        assert back.name.startswith(name), back.name
    grads = node.run(back, given, backward=True, imperative=imperative)
    exact = node.run(node.reference(True), {**given, **want}, backward=True, imperative=True)
    for n in exact:
        close(grads[n], exact[n], tolerance, n)
    return got, grads
