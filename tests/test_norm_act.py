"""Batch normalization and what follows it: generated and oneDNN's kernels against the reference, and the pass
that joins them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.threads import num_threads, set_num_threads
from mxlite.core.dtype import as_dtype
from mxlite.graph.attrs import parse_attrs
from mxlite.graph.opdef import Op

KINDS = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}


@dataclass
class Norm:
    """One call of a norm, forwards and backwards, by any kernel."""

    op: type[Op]
    attrs: Any
    shape: tuple[int, ...]
    dtype: str = "float32"
    train: bool = True

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int, dtype: str = "float32", train: bool = True, **attrs: Any) -> Norm:
        op = ops._norm_act if attrs.get("relu") or attrs.get("add") else ops.BatchNorm
        if op is ops.BatchNorm:
            attrs = {k: v for k, v in attrs.items() if k not in ("relu", "add")}
        return cls(op, parse_attrs(op, {"axis": axis, "fix_gamma": False, "eps": 1e-3} | attrs), shape, dtype, train)

    def shapes(self) -> Any:
        names = self.op.input_names(self.attrs)
        known = [self.shape if n in ("data", "addend") else None for n in names]
        return self.op.infer_shape(self.attrs, *known)

    def inputs(self, shift: float = 0.0) -> dict[str, Any]:
        rng = np.random.default_rng(3)
        kind = as_dtype(self.dtype)
        made = {}
        for name, shape in zip(self.op.input_names(self.attrs), self.shapes()[0]):
            x = rng.standard_normal(shape) + (shift if name == "data" else 0)
            x = np.abs(x) + 0.5 if name == "moving_var" else x
            made[name] = x.astype(kind if name in ("data", "addend") else "float32")
        made["d_out"] = rng.standard_normal(self.shape).astype(kind)
        return made

    def kernel(self, op: type[Op], fast: bool) -> Any:
        dtype = as_dtype(self.dtype)
        if not fast:
            return CPU.reference(op, self.attrs, *self.shapes(), dtype)
        return CPU.choose(op, self.attrs, *self.shapes(), dtype, train=self.train)

    def call(
        self,
        op: type[Op],
        have: dict[str, Any],
        fast: bool,
        alias: dict[str, str] | None = None,
        unwanted: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Outputs of `op` by name; `have` gets those too. Moving averages in `have` are moved by backward."""
        kernel = self.kernel(op, fast)
        outs: dict[str, Any] = {}
        for name in op.output_names(self.attrs):
            like = have["data"] if name in ("out", "d_out", "d_data", "d_addend") else have["gamma"]
            outs[name] = None if name in unwanted else np.full_like(like, np.nan)
            if alias and name in alias:
                outs[name] = have[alias[name]]
        work = CPU.empty(kernel.workspace + 64)
        work.fill(0xFF)
        names = op.input_names(self.attrs)
        with np.errstate(all="ignore"):
            bind_call(
                kernel, np, op, self.attrs, [have[n] for n in names],
                [outs[n] for n in op.output_names(self.attrs)], work=work[: kernel.workspace], train=self.train,
            )()  # fmt: skip
        assert (work[kernel.workspace :] == 0xFF).all()
        have.update(outs)
        return outs

    def both(self, fast: bool, shift: float = 0.0, **how: Any) -> dict[str, Any]:
        """All that forward and backward make, moving averages included."""
        have = self.inputs(shift)
        made = dict(self.call(self.op, have, fast))
        assert self.op.grad_op is not None
        made |= self.call(self.op.grad_op, have, fast, **how)
        return made | {n: have[n] for n in ("moving_mean", "moving_var")}


def close(got: dict[str, Any], want: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == want.keys()
    for name, x in want.items():
        if x is None or got[name] is None:
            assert x is got[name], name
            continue
        a, b = np.asarray(got[name], np.float64), np.asarray(x, np.float64)
        scale = float(np.max(np.abs(b), initial=0))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-3), err_msg=name)


SHAPES = [
    ((5, 7, 6, 16), 3),  # whole vectors
    ((3, 5, 4, 24), -1),
    ((2, 3, 3, 3), 3),  # rows of several pixels
    ((700, 20), 1),
    ((3, 2, 1, 1031), 3),  # no whole vectors, and too many channels to repeat them
    ((1, 1, 1, 5), 3),
    ((2, 2, 5, 70), 3),
    ((4, 6, 7, 7), 1),
    ((2, 3, 20, 25), 1),
    ((2, 1, 5, 9), 1),
    ((3, 4, 2), 1),
    ((1, 5, 3, 4, 6), 1),
    ((4, 3, 5, 6), 2),
]

needs_compiler = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite), or it may not be used")


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("shape, axis", SHAPES)
@pytest.mark.parametrize("relu, add", [*itertools.product((False, True), repeat=2)])
def test_generated_kernels_give_what_the_reference_gives(shape, axis, relu, add, threads, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "compiled")
    monkeypatch.setattr("mxlite.backends.cpu.compiled.team.LEAST_NBYTES", 0)
    for dtype, tolerance in KINDS.items():
        for attrs in ({}, {"fix_gamma": True, "momentum": 0.3}, {"use_global_stats": True}):
            norm = Norm.of(shape, axis, dtype, relu=relu, add=add, **attrs)
            assert norm.kernel(norm.op, True).name == "compiled norm"
            assert norm.kernel(norm.op.grad_op, True).name == "compiled norm"
            close(norm.both(True), norm.both(False), tolerance)


@pytest.mark.skipif(library() is None, reason="oneDNN is not there")
@pytest.mark.parametrize("shape, axis", [((5, 7, 6, 16), 3), ((700, 32), 1), ((2, 3, 3, 5, 64), -1)])
@pytest.mark.parametrize("train", [True, False])
def test_onednn_gives_what_the_reference_gives(shape, axis, train, threads, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    for attrs in ({}, {"fix_gamma": True, "momentum": 0.3}, {"use_global_stats": True}):
        norm = Norm.of(shape, axis, train=train, **attrs)
        if norm.kernel(norm.op, True).name == "reference":
            pytest.skip("oneDNN has nothing better on this CPU")
        close(norm.both(True), norm.both(False), KINDS["float32"])
        close(norm.both(True, unwanted=("d_gamma",)), norm.both(False, unwanted=("d_gamma",)), KINDS["float32"])
        close(norm.both(True, unwanted=("d_data",)), norm.both(False, unwanted=("d_data",)), KINDS["float32"])
        close(norm.both(True, alias={"d_data": "d_out"}), norm.both(False), KINDS["float32"])
