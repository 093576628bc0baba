"""Kernels of optimizers' steps and of loss scaling become machine code that spills nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.elementwise.update import trace, traced
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.handwritten import numpy_calls, step_source
from mxlite.backends.gpu.handwritten.weights import capacity_for
from mxlite.backends.gpu.kernels.optim import gradients, lamb
from mxlite.backends.gpu.matrix import recurrent_cells
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.optim.lamb_updates import direction
from mxlite.ops.optim.update import settings
from tests.backends.gpu.machine_code import ARCHITECTURES, compiled

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

STEPS = sorted(
    {o.step_of for o in ops.ALL if getattr(o, "form", None) == "plain"} - {ops.lamb_update},
    key=lambda o: o.op_name,
)
SETTINGS = {"lr": 0.1, "wd": 0.1, "t": 3, "rescale_grad": 0.5, "clip_gradient": 0.3, "clip_weights": 0.7}


def attrs_of(step):
    fields = step.Attrs.__dataclass_fields__
    given = {("clip_grad" if k == "clip_gradient" and k not in fields else k): v for k, v in SETTINGS.items()}
    return parse_attrs(step, {k: v for k, v in given.items() if k in fields})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("step", STEPS, ids=lambda op: op.op_name)
def test_every_step_fits_the_registers(step, architecture):
    """Of float32 and through a copy, one weight and many: four blocks of 256 threads on a multiprocessor."""
    decaying, plain = (trace(step, attrs_of(step), np.dtype("float32"), d) for d in (True, False))
    n = len(step.inputs)
    half = ("bfloat16", "bfloat16", *("float32",) * (n - 1))
    for dtypes, master, count in ((("float32",) * n, False, 1), (half, True, 2)):
        capacity = capacity_for(len(dtypes) + 1, count)
        source = step_source.source(decaying, plain, dtypes, master, "float64", capacity)
        found = compiled(source, architecture)["update"]
        assert found.registers <= 80 and found.spilled_bytes == found.stack_bytes == 0, (dtypes, found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_adam_in_other_types(kind, architecture):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    decaying, plain = (trace(ops.adam_update, attrs_of(ops.adam_update), dtype, d) for d in (True, False))
    source = step_source.source(decaying, plain, (kind,) * 4, False, "float32", 16)
    assert compiled(source, architecture)["update"].spilled_bytes == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_lamb(kind, architecture):
    attrs = attrs_of(ops.lamb_update)
    wide = np.dtype("float64" if kind == "float64" else "float32")
    first = tuple(trace(ops.lamb_update_phase1, attrs, wide, d) for d in (True, False))
    second = tuple(
        traced(direction, settings(ops.lamb_update_phase1, attrs), 3, wide, d) for d in (True, False)
    )
    dtypes = (kind, kind, wide.name, wide.name) + (("float32",) if kind == "bfloat16" else ())
    source = lamb.source(first, second, dtypes, kind == "bfloat16", 1 if kind == "float64" else 16)
    found = compiled(source, architecture)
    assert set(found) == {"lamb_norms", "lamb_step"}
    assert all(f.spilled_bytes == 0 for f in found.values())
    if kind != "bfloat16":
        compiled(lamb.phase2_source((kind,) * 5, kind), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_asked_of_gradients(architecture):
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for source in (gradients.finite_source(dtype, 1), gradients.squares_source(dtype, 16)):
            assert all(f.spilled_bytes == 0 for f in compiled(source, architecture).values())
    for nbytes in (1, 2, 4, 8):
        compiled(gradients.zeros_source(nbytes, 16), architecture)
    compiled(gradients.GATE, architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "types", [("float32",) * 3, ("float64",) * 3, ("bool", "float32", "bool"), ("bfloat16",) * 3]
)
def test_single_calls_of_recurrent_networks(types, architecture):
    found = compiled(numpy_calls.source(*types), architecture)["apply"]
    assert found.spilled_bytes == found.stack_bytes == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_steps_of_recurrent_networks(kind, architecture):
    found = compiled(recurrent_cells.source(kind), architecture)
    assert set(found) == set(recurrent_cells._KERNELS)
    assert kind == "float64" or all(f.spilled_bytes == 0 for f in found.values())
