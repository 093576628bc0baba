"""Kernels of batch normalization and of what follows it, generated and oneDNN's, against the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import storable, usable
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
    def of(
        cls, shape: tuple[int, ...], axis: int, dtype: str = "float32", train: bool = True, **attrs: Any
    ) -> Norm:
        op = ops.NormAct if attrs.get("relu") or attrs.get("plus") else ops.BatchNorm
        if op is ops.BatchNorm:
            attrs = {k: v for k, v in attrs.items() if k not in ("relu", "plus")}
        return cls(
            op, parse_attrs(op, {"axis": axis, "fix_gamma": False, "eps": 1e-3} | attrs), shape, dtype, train
        )

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
                [outs[n] for n in op.output_names(self.attrs)],
                work=work[: kernel.workspace], train=self.train,
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

BOTH = [(relu, add) for relu in (False, True) for add in (False, True)]

needs_compiler = pytest.mark.skipif(
    not usable(), reason="there is no compiler (llvmlite), or it may not be used"
)


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    monkeypatch.setattr("mxlite.backends.cpu.compiled.calls.team.LEAST_NBYTES", 0)
    with CPU.running(request.param):
        yield request.param


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "compiled")


def generated(norm: Norm) -> Norm:
    """`norm`, checked to have generated kernels."""
    assert norm.op.grad_op is not None
    assert {norm.kernel(op, True).name for op in (norm.op, norm.op.grad_op)} == {"compiled norm"}
    return norm


@needs_compiler
@pytest.mark.parametrize("shape, axis", SHAPES)
@pytest.mark.parametrize("relu, add", [(False, False), (True, False), (True, True)])
def test_generated_kernels_give_what_the_reference_gives(shape, axis, relu, add, threads, compiled):
    attributes = [{}, {"fix_gamma": True, "momentum": 0.3}, {"use_global_stats": True}]
    for dtype, attrs in [("float32", a) for a in attributes] + [("bfloat16", {}), ("float16", {})]:
        if dtype in storable():
            norm = generated(Norm.of(shape, axis, dtype, relu=relu, plus="array" * add, **attrs))
            close(norm.both(True), norm.both(False), KINDS[dtype])


@needs_compiler
@pytest.mark.parametrize("shape, axis", [SHAPES[0], SHAPES[4], SHAPES[8]])
@pytest.mark.parametrize("relu, add", BOTH)
def test_generated_kernels_work_in_place_and_leave_out_what_nobody_wants(
    shape, axis, relu, add, threads, compiled
):
    norm = generated(Norm.of(shape, axis, relu=relu, plus="array" * add))
    want = norm.both(True)
    grads = norm.op.grad_op.output_names(norm.attrs)
    places = [{"out": n} for n in norm.op.in_place_options(norm.attrs)["out"]]
    for alias in places:
        have = norm.inputs()
        got = norm.call(norm.op, have, True, alias=alias)
        close(got, {n: want[n] for n in got}, 0)
    for alias in (
        {"d_data": "d_out"}, {"d_data": "data"},
        {"d_addend": "d_out"}, {"d_addend": "d_out", "d_data": "data"},
    ):  # fmt: skip
        got = norm.both(True, alias=alias) if relu or add else None
        if got is not None:
            close(got, want, 0)
    for unwanted in grads:
        close(norm.both(True, unwanted=(unwanted,)), want | {unwanted: None}, 0)
        only = tuple(n for n in grads if n != unwanted)
        close(norm.both(True, unwanted=only), want | dict.fromkeys(only), 0)
    for unwanted in norm.op.output_names(norm.attrs):
        got = norm.call(norm.op, norm.inputs(), True, unwanted=(unwanted,))
        close(got, {n: want[n] for n in got} | {unwanted: None}, 0)


@needs_compiler
@pytest.mark.parametrize("relu, add", BOTH)
def test_results_written_around_the_cache_are_the_same(relu, add, compiled, monkeypatch):
    norm = generated(Norm.of((4, 9, 9, 32), 3, relu=relu, plus="array" * add))
    want = norm.both(True)
    monkeypatch.setattr("mxlite.backends.cpu.kernels.generated.compiled_norm.PAST_CACHE", 1)
    close(norm.both(True), want, 0)


@needs_compiler
@pytest.mark.parametrize("shape, axis", [((40, 8, 8, 16), 3), ((40, 16, 8, 8), 1)])
@pytest.mark.parametrize("shift", [0.0, 3e3, "outlier"])
def test_statistics_keep_their_digits_where_the_mean_is_large(shape, axis, shift, threads, compiled):
    norm = generated(Norm.of(shape, axis))
    have = norm.inputs(0.0 if shift == "outlier" else shift)
    if shift == "outlier":
        have["data"].reshape(-1)[:: have["data"].size // 3] = 1e4  # among them the very first number
    made = norm.call(norm.op, have, True)
    exact = have["data"].astype(np.float64)
    axes = tuple(i for i in range(4) if i != axis)
    assert (
        np.abs(made["mean"] - exact.mean(axes)) <= 1e-6 * (exact.std(axes) + np.abs(exact.mean(axes)))
    ).all()
    np.testing.assert_allclose(made["var"], (exact.var(axes) + norm.attrs.eps) ** -0.5, rtol=2e-5)


@needs_compiler
@pytest.mark.parametrize("shape, axis", [((3, 5, 5, 16), 3), ((3, 16, 5, 5), 1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("first", [True, False])
def test_what_is_not_finite_stays_in_its_channel(shape, axis, bad, first, compiled):
    norm = generated(Norm.of(shape, axis, relu=True))
    have = norm.inputs()
    np.moveaxis(have["data"], axis, 0)[3, 0 if first else 2, 0 if first else 4, 1] = bad
    want = dict(have)
    made, reference = norm.call(norm.op, have, True), norm.call(norm.op, want, False)
    for name in ("out", "var"):
        np.testing.assert_array_equal(np.isnan(made[name]), np.isnan(reference[name]), err_msg=name)
    assert np.isnan(np.moveaxis(made["out"], axis, 0)[3]).all()


@pytest.mark.skipif(not usable(), reason="llvmlite is not there")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("plus", ["", "array", "line", "relu"])
@pytest.mark.parametrize("shape", [(5, 7, 6, 16), (2, 3, 3, 3), (700, 20), (3, 2, 1, 1031)])
def test_a_norm_is_made_again_with_the_same_bits(shape, plus, dtype, fast):
    """By the statistics, without looking for them; also over the addend's bytes, or the data's."""
    if fast and dtype not in storable():
        pytest.skip(f"generated code does not store {dtype} here")
    for more in ({}, {"relu": False, "fix_gamma": True}):
        attrs = parse_attrs(
            ops.NormActLine, {"axis": len(shape) - 1, "fix_gamma": False, "plus": plus, "eps": 1e-3} | more
        )
        norm = Norm(ops.NormActLine, attrs, shape, dtype)
        have = norm.inputs(shift=3.0)
        want = norm.call(norm.op, have, fast)["out"]
        op = ops.NormRemat
        names = op.input_names(attrs)
        ins = [have[n] for n in names]
        shapes = tuple(x.shape for x in ins), (shape,)
        for where in (None, *op.in_place_options(attrs)["out"]):
            given = [x.copy() for x in ins]
            out = np.full_like(want, np.nan) if where is None else given[names.index(where)]
            kinds = tuple(x.dtype for x in ins)
            pick = CPU.choose if fast else CPU.reference
            kernel = pick(op, attrs, *shapes, as_dtype(dtype), **({"dtypes": kinds} if fast else {}))
            work = CPU.empty(kernel.workspace)
            work.fill(0xFF)
            bind_call(kernel, np, op, attrs, given, [out], work=work)()
            np.testing.assert_array_equal(out, want, err_msg=str(where))
        assert kernel.name == ("compiled norm" if fast else "reference")
