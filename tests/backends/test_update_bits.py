"""Every optimizer step in every type, whichever of its attributes are switched on: the bits of numpy.

The expression that all generated code is made of, evaluated by numpy; the CPU's generated code; and the GPU's
kernels on the emulated device, against the reference kernels.
"""

from __future__ import annotations

import random
from dataclasses import fields

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend, bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.elementwise.update import trace
from mxlite.backends.gpu.kernels.optim import update
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.optim.update import Update
from mxlite.te.expression import evaluate
from tests.emulators.emulated_device import compiler, EmulatedDevice

STEPS = sorted(
    (o for o in ops.ALL if getattr(o, "form", None) == "plain" and o.whole.__func__ is Update.whole.__func__),
    key=lambda op: op.op_name,
)
"""The steps that are a formula of one element; LAMB's sums up layers."""
KINDS = ("float64", "float32", "float16", "bfloat16")
ON = {
    "lr": (0.1, 0.05), "wd": (0.01, 0.3), "t": (1, 7), "rescale_grad": (0.3, 1.7), "momentum": (0.9, 0.37),
    "clip_gradient": (0.2, 0.7), "clip_grad": (0.2, 0.7), "clip_weights": (0.6, 0.9), "wd_lh": (0.013, 0.2),
    "eta": (0.3, 1.1), "beta1": (0.9, 0.57), "beta2": (0.999, 0.83), "epsilon": (1e-4, 0.01),
    "gamma1": (0.95, 0.71), "gamma2": (0.9, 0.33), "rho": (0.9, 0.61), "lamda1": (0.01, 0.3),
    "beta": (1.0, 0.7), "bias_correction": (True, True), "lazy_update": (True, True),
}  # fmt: skip
"""Two values of each attribute with which it has an effect; no power of 2, so that products are rounded."""
SIGNED = ("weight", "grad", "mean", "mom", "z", "g", "delta")


def dtype_of(kind):
    return np.dtype(getattr(ml_dtypes, kind, kind))


def settings_of(step):
    """Attributes: all switched on, twice; each left at its default; each with those it must have alone."""
    names = [f.name for f in fields(step.Attrs)]
    assert set(names) <= set(ON), f"{step.op_name} has an attribute that ON does not know"
    whole = [{n: ON[n][i] for n in names} for i in (0, 1)]
    needed = {n: ON[n][0] for n in names if n in ("lr", "t")}
    yield from whole
    for n in names:
        if n not in needed:
            yield {k: x for k, x in whole[0].items() if k != n}
            yield {**needed, n: ON[n][0]}


def arrays_of(step, dtype, seed, size=1003):
    rng = np.random.default_rng(seed)
    made = []
    for n in step.inputs:
        x = rng.standard_normal(size) * (0.2 if n == "g" else 1) if n in SIGNED else rng.uniform(0.1, 1, size)
        made.append(x.astype(dtype))
    return made


def from_reference(op, attrs, arrays, outs=()):
    """Arrays and outputs after one run of the reference kernel."""
    return from_kernel(lambda *request: CPU.reference(*request[:5]), op, attrs, arrays, outs)


def from_kernel(choose, op, attrs, arrays, outs=()):
    own, made = [x.copy() for x in arrays], [np.full_like(x, 77) for x in outs]
    shapes = tuple(x.shape for x in own), tuple(x.shape for x in made)
    kernel = choose(op, attrs, *shapes, own[0].dtype, tuple(x.dtype for x in own))
    work = CPU.empty(kernel.workspace)
    run = bind_call(kernel, np, op, attrs, own, made, work=work, shapes=shapes)
    with np.errstate(all="ignore"):
        run()
    return own + made


def chosen(backend, start):
    def choose(*request):
        kernel = backend.choose(*request)
        assert kernel.name.startswith(start), kernel.name
        return kernel

    return choose


def same(made, wanted, *what):
    for i, (a, b) in enumerate(zip(made, wanted, strict=True)):
        wrong = np.flatnonzero(a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}"))
        assert not len(wrong), (*what, i, wrong[:3], a[wrong[:3]], b[wrong[:3]])


def number_of(form, numbers, t):
    """A number derived from the count of updates, in double as Python computes it."""
    if form[0] == "t":
        return t
    if form[0] == "number":
        return numbers[form[1]]
    a, b = (number_of(x, numbers, t) for x in form[1:])
    return {"sub": float.__sub__, "pow": float.__pow__, "div": float.__truediv__}[form[0]](a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda op: op.op_name)
def test_the_expression_of_a_step_is_rounded_as_numpy_rounds_it(step, kind):
    """A bfloat16 times a Python float is a float32, and so is what follows from it: as 1 - lr * wd_lh."""
    dtype = dtype_of(kind)
    wide = np.dtype("float64" if kind == "float64" else "float32")
    for seed, given in enumerate(settings_of(step)):
        attrs = parse_attrs(step, given)
        arrays = arrays_of(step, dtype, seed)
        *states, out = from_reference(step, attrs, arrays, [arrays[0]])
        lr, wd = (dtype.type(getattr(attrs, n)) for n in ("lr", "wd"))
        found = trace(step, attrs, dtype, bool(wd))
        counts = [number_of(f, found.numbers, float(getattr(attrs, "t", 1))) for f in found.counted]
        counted = [dtype.type(x) if kind == "float16" else x for x in counts]
        inputs = [x.astype(wide) for x in (*arrays, lr, wd)] + [wide.type(x) for x in counted]
        made = evaluate(found.expression, found.constants, inputs, wide)
        same([x.astype(dtype) for x in made], [out, *states[2:]], kind, given)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("step", STEPS, ids=lambda op: op.op_name)
def test_generated_code_of_the_cpu_has_the_bits_of_numpy(step):
    """It is generated for float32: of the weight itself, or of its copy."""
    for op in ops.ALL:
        if getattr(op, "step_of", None) is not step or op.form != "fused" or step.rates != ("lr", "wd"):
            continue
        for seed, given in enumerate(settings_of(step)):
            rates = {n: given.pop(n, 0.0) for n in step.rates}
            attrs = parse_attrs(op, {k: v for k, v in given.items() if k != "lazy_update"} | {"row": 0})
            for kind in ("bfloat16", "float16") if op.has_master else ("float32",):
                arrays = arrays_of(step, np.dtype("float32"), seed)
                if op.has_master:
                    arrays.append(arrays[0].copy())
                    arrays[:2] = (x.astype(dtype_of(kind)) for x in arrays[:2])
                arrays.append(np.array([list(rates.values())]))
                made = from_kernel(chosen(CPU, "compiled"), op, attrs, arrays)
                same(made, from_reference(op, attrs, arrays), op.op_name, kind, given, rates)


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda op: op.op_name)
def test_kernels_of_the_gpu_have_the_bits_of_numpy(step, kind):
    """With all attributes on, and one choice of few, since each text is compiled; powers are only near."""
    backend = Backend("emulated", np, update.rows(EmulatedDevice()))
    listed = list(settings_of(step))
    for given in (listed[1], random.Random(f"{step.op_name} {kind}").choice(listed[2:])):
        attrs = parse_attrs(step, given)
        arrays = arrays_of(step, dtype_of(kind), 5)
        made = from_kernel(chosen(backend, "cuda"), step, attrs, arrays, [arrays[0]])
        wanted = from_reference(step, attrs, arrays, [arrays[0]])
        if len(step.rates) < 3:
            same(made, wanted, kind, given)
        for a, b in zip(made, wanted):
            few = 4 * float(ml_dtypes.finfo(dtype_of(kind)).eps)
            np.testing.assert_allclose(a.astype("d"), b.astype("d"), rtol=few, atol=few)
