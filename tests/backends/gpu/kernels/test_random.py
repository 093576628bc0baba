"""Random numbers of the GPU, run on the CPU: the bits that the CPU's kernels draw."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from tests.backends.gpu.gpu_case import BACKEND
from tests.conformance.case import Case
from tests.conformance.conformance import Call, kernels_of, same_bits, stages
from tests.emulators.emulated_device import compiler

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def both(case, dtype=None):
    """(kernel's outputs, reference's) of each stage."""
    call = Call.of(case, dtype=dtype)
    for op, inputs in stages(call, case.inputs(dtype=dtype)):
        want, _ = call.execute(op, inputs)
        with kernels_of(BACKEND):
            got, _ = call.execute(op, inputs)
        for name in want:
            yield name, got[name], want[name]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axes, shape", [((), (7, 3, 611)), ((1,), (5, 9, 13))])
def test_dropout_keeps_the_same_elements(axes, shape, dtype):
    """To the bit, forward and backward, also where the last pack is not full."""
    for name, got, want in both(Case(ops.Dropout, {"p": 0.3, "axes": axes}, [shape]), dtype):
        same_bits(got, want, name)
        assert 0.2 < np.mean(np.asarray(want, np.float32) == 0) < 0.4


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "axes, shape", [((), (3, 7, 11, 5)), ((), (2, 8, 4)), ((2, 3), (3, 5, 4, 9)), ((1,), (4, 6, 5))]
)
def test_dropout_with_channels_last_keeps_the_same_elements(axes, shape, dtype):
    """As on the CPU, and as in an array with its channels behind the batch."""
    last = Case(ops.DropoutChannelsLast, {"p": 0.3, "axes": axes}, [shape])
    for name, got, want in both(last, dtype):
        same_bits(got, want, name)
    usual = Case(ops.Dropout, {"p": 0.3, "axes": axes}, [(shape[0], shape[-1], *shape[1:-1])])
    inputs = {"data": last.inputs(dtype=dtype)[0]}
    with kernels_of(BACKEND):
        got, _ = Call.of(last, dtype=dtype).execute(last.op, inputs)
    turned = {n: np.ascontiguousarray(np.moveaxis(x, -1, 1)) for n, x in inputs.items()}
    want, _ = Call.of(usual, dtype=dtype).execute(ops.Dropout, turned)
    same_bits(got["out"], np.moveaxis(want["out"], 1, -1), "out")


@pytest.mark.parametrize("classes", [1023, 1024, 2500])
def test_classes_beyond_one_stretch_are_the_references(classes):
    op = ops.SampleMultinomial
    x = np.random.default_rng(0).random((3, classes)).astype(np.float32)
    case = Case(op, {"shape": (40,)}, [x.shape], dtypes={"data": "float32"})
    call = Call.of(case)
    want, _ = call.execute(op, {"data": x})
    with kernels_of(BACKEND):
        got, _ = call.execute(op, {"data": x})
    same_bits(got["out"], want["out"], "out")


def test_dropout_of_everything():
    for name, got, _ in both(Case(ops.Dropout, {"p": 1.0}, [(33,)]), "float32"):
        assert not got.any(), name


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_uniform_numbers(dtype):
    for low, high in ((0.0, 1.0), (-1.0, 2.0), (0.1, 0.2)):
        attrs = {"shape": (1023,), "low": low, "high": high, "dtype": dtype}
        for name, got, want in both(Case(ops.RandomUniform, attrs, [])):
            same_bits(got, want, name)


@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_whole_numbers(dtype):
    spans = [(-7, 90), (0, 2)] + ([(-(2**40), 2**45 + 1)] if dtype == "int64" else [])
    for low, high in spans:
        attrs = {"shape": (517,), "low": low, "high": high, "dtype": dtype}
        for name, got, want in both(Case(ops.RandomRandint, attrs, [])):
            same_bits(got, want, name)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["normal", "exponential"])
def test_numbers_of_other_laws_are_the_same_but_for_rounding(name, dtype):
    op = ops.find_op(f"_random_{name}")
    for _, got, want in both(Case(op, {"shape": (3001,), "dtype": dtype}, [])):
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=2 * np.finfo(dtype).eps, atol=1e-15
        )
