"""Printed loop nests become machine code: one of each class for all architectures, and for one of them, with
MXLITE_ALL_GPU_ROWS=1, those of every operator that declares a computation."""

from __future__ import annotations

import os

import pytest

from mxlite.backends.base import Request
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.kernels.generated.computed import ARRAYS, rows
from mxlite.backends.gpu.nests import Launches
from mxlite.backends.gpu.nests.launches import source
from mxlite.backends.nests.program import nests_for
from tests.backends.gpu.machine_code import compiled
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call, operators, takes
from tests.emulators.emulated_device import EmulatedDevice

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
NAMES = {
    "elements": ("box-iou", "float32"),
    "rows": ("log_softmax", "float16"),
    "columns": ("sum-first", "bfloat16"),
    "adds": ("bilinear-sampler", "float32"),
}
PARTS = 8
DEVICE = EmulatedDevice()


def found(name, dtype):
    """The nests of an operator and its gradient in a conformance row."""
    call = Call.of(CASES[name], dtype=dtype)
    for op in operators(call):
        r = Request(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
        nests = nests_for(r, ARRAYS) if op in rows(DEVICE) else None
        if nests is not None:
            yield op, nests


def compile_all(name, dtype, architecture):
    """What each kernel takes; nothing is spilled, but where functions need a stack of their own."""
    forms = set()
    for op, nests in found(name, dtype):
        made = Launches(DEVICE, nests)
        forms |= {p.form.threads for p in made.placed}
        for kernel, used in compiled(made.text, architecture).items():
            assert used.registers <= 255, (op.op_name, kernel, used)
            assert not used.spilled_bytes or used.stack_bytes, (op.op_name, kernel, used)
    return forms


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", NAMES)
def test_one_of_each_class_compiles(kind, architecture):
    row, dtype = NAMES[kind]
    name = next(n for n in CASES if n.startswith(row) and takes(CASES[n], dtype))
    assert kind in compile_all(name, dtype, architecture)


def test_counts_of_64_bits_and_float64_compile():
    (_, nests), *_ = found(next(n for n in CASES if n.startswith("log_softmax")), "float64")
    assert nests.number == "float64"
    made = Launches(DEVICE, nests)
    forms = tuple((p.placed.nest, p.form) for p in made.placed)
    assert compiled(source(forms, "float64", True), "sm_90")


@pytest.mark.skipif("MXLITE_ALL_GPU_ROWS" not in os.environ, reason="minutes of compiling")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_compiles(part):
    listed = rows(DEVICE)
    seen: dict[type, str] = {}
    for name, case in CASES.items():
        if case.op in listed and takes(case, "float32"):
            seen.setdefault(case.op, name)
    assert len(seen) > 100
    for name in list(seen.values())[part::PARTS]:
        compile_all(name, "float32", "sm_90")
