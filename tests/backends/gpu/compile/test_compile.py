"""Every kernel of the GPU backend becomes machine code for the architectures that are promised."""

from __future__ import annotations

import pytest

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.compiler.kinds import floating
from mxlite.backends.gpu.compiler.source import KernelSource, NAMES
from mxlite.backends.gpu.compiler.steps import FUNCTIONS
from mxlite.backends.gpu.nests import Launches
from mxlite.core.dtype import as_dtype
from mxlite.te.expression import expression_of
from mxlite.te.steps import NUMPY
from tests.backends.gpu.machine_code import ARCHITECTURES, compiled
from tests.emulators.emulated_device import EmulatedDevice
from tests.te.formulas import expression, nests_of_expression, writer

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")


def text(made, shape, views, inputs, outputs):
    number = "" if floating(*map(as_dtype, outputs)) else "int64"
    nests = nests_of_expression(made, views, inputs, shape, outputs, number)
    return Launches(EmulatedDevice(), nests, "elementwise").text


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 5, 8)])
def test_all_steps_and_dtypes_in_one_elementwise_kernel(architecture, shape):
    w, inputs = writer(len(NAMES))
    x, y = inputs[:2]
    values = [*inputs]
    for name in NUMPY:
        if name == "select":
            values.append(w(name, w("gt", x, y), x, y))
        elif name in "add sub mul div max min pow hypot arctan2 fmod copysign".split():
            values.append(w(name, x, y))
        elif name in ("eq", "ne", "gt", "ge", "lt", "le"):
            values.append(w("select", w(name, x, y), 1.0, 0.0))
        else:
            values.append(w(name, x))
    total = values[0]
    for value in values[1:]:
        total = total + value
    made = expression_of(inputs, [total])
    views = [shape if i % 3 != 1 else (*shape[:-1], 1) for i in range(len(NAMES))]
    for result in ("float32", "bfloat16"):
        compiled(text(made, shape, views, list(NAMES), [result]), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_steps_that_only_this_backend_has_spill_nothing(architecture, dtype):
    """They hold functions whose arguments may need a table: that is on the stack, and no spill."""
    for name, step in FUNCTIONS.items():
        if ("bitwise" in name or "shift" in name) == (dtype == "int32"):
            made = expression(step.count("{}"), lambda w, *x, name=name: [w(name, *x)])
            given = [dtype] * made[0].num_inputs
            for used in compiled(
                text(made, (8,), [(8,)] * len(given), given, [dtype]), architecture
            ).values():
                assert used.spilled_bytes == 0, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_usual_chain_spills_nothing(architecture):
    """Sum, rectifier and a cast of float32: what a residual block has."""
    made = expression(2, lambda w, x, y: [w("max", x + y * w.constant(0.5), 0.0)] * 2)
    source = text(made, (3, 8), [(3, 8), (1, 8)], ["float32"] * 2, ["float32", "bfloat16"])
    found = compiled(source, architecture)["elementwise0"]
    assert found.spilled_bytes == found.stack_bytes == 0
    assert found.registers <= 64  # four blocks of 256 threads on a multiprocessor, at least


def test_wrong_text_is_answered_with_the_compilers_words():
    with pytest.raises(nvrtc.CompilationError, match=r"sm_90[^\n]*\n(.|\n)*nonsense"):
        nvrtc.compile(KernelSource('extern "C" __global__ void f() { nonsense; }'), "sm_90")


def test_usage_is_read_from_the_log():
    log = (
        "ptxas info    : Compiling entry function 'f' for 'sm_90'\n"
        "ptxas info    : Function properties for f\n"
        "    40 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers\n"
    )
    assert nvrtc.usage(log) == {"f": nvrtc.Usage(255, 32, 40)}
