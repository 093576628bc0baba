"""Generated optimizer steps: the bits of the reference, whatever the rates."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.cpu.kernels.generated.compiled_update import ROWS
from mxlite.graph.attrs import parse_attrs

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not installed")

STEPS = sorted((op for op in ROWS if getattr(op, "form", "") == "fused"), key=lambda op: op.op_name)


def test_every_step_that_is_a_formula_of_one_element_is_generated():
    steps = [op for op in ops.ALL if hasattr(op, "step_of")]
    assert {op for op in steps if op not in ROWS} == {op for op in steps if op.step_of is ops.lamb_update}


@pytest.mark.parametrize("size", [1, 1000, 70_001])
@pytest.mark.parametrize("wd", [0.0, 0.01])
@pytest.mark.parametrize("more", [{}, {"rescale_grad": 0.5, "clip_gradient": 0.3}])
@pytest.mark.parametrize("op", STEPS, ids=lambda op: op.op_name)
def test_the_bits_are_the_reference(op, more, wd, size):
    fields = op.Attrs.__dataclass_fields__
    more = {("clip_grad" if k == "clip_gradient" and k not in fields else k): v for k, v in more.items()}
    attrs = parse_attrs(op, {**{k: v for k, v in more.items() if k in fields}, "row": 1})
    master = op.has_master
    for kind in ("bfloat16", "float16") if master else ("float32",):
        if kind not in storable():
            continue
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
        names = op.input_names(attrs)[:-1]
        kinds = [dtype if n in ("weight", "grad") else np.dtype("float32") for n in names]
        rng = np.random.default_rng(0)
        arrays = [
            (rng.uniform(0.1, 1, size) if n not in ("weight", "grad") else rng.standard_normal(size)).astype(
                k
            )
            for n, k in zip(names, kinds)
        ]
        if master:
            arrays[-1] = arrays[0].astype("float32")
        hyper = np.array([[9.0, 9.0], [0.1, wd]])
        shapes = (*((size,) for _ in names), (2, 2))
        dtypes = (*kinds, np.dtype("float64"))
        chosen = CPU.choose(op, attrs, shapes, (), dtype, dtypes)
        assert chosen.name.startswith("compiled")
        results = []
        for kernel in (chosen, CPU.reference(op, attrs, shapes, (), dtype)):
            own = [a.copy() for a in arrays]
            work = np.empty(kernel.workspace, np.uint8)
            run = bind_call(kernel, np, op, attrs, [*own, hyper], [], work=work, shapes=(shapes, ()))
            with np.errstate(all="ignore"):
                for _ in range(3):
                    run()
            results.append(own)
        for n, a, b in zip(names, *results):
            assert a.tobytes() == b.tobytes(), (n, kind)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", [op for op in STEPS if not op.has_master], ids=lambda op: op.op_name)
def test_a_narrow_gradient_is_widened_in_registers(op, kind):
    if kind not in storable():
        pytest.skip(f"this machine does not load {kind}")
    attrs, size, narrow = parse_attrs(op, {"row": 0}), 1003, np.dtype(getattr(ml_dtypes, kind, kind))
    names = op.input_names(attrs)[:-1]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.1, 1, size).astype("f") for _ in names]
    arrays[1] = arrays[1].astype(narrow)
    hyper = np.array([[0.1, 0.01]])
    shapes = (*((size,) for _ in names), (1, 2))
    results = []
    for grad in (arrays[1], arrays[1].astype("f")):
        own = [a.copy() for a in arrays]
        own[1] = grad
        dtypes = (*(a.dtype for a in own), hyper.dtype)
        kernel = CPU.choose(op, attrs, shapes, (), own[0].dtype, dtypes)
        assert kernel.name.startswith("compiled")
        bind_call(kernel, np, op, attrs, [*own, hyper], [], work=np.empty(0, np.uint8))()
        results.append([a for i, a in enumerate(own) if i != 1])
    for a, b in zip(*results):
        assert a.tobytes() == b.tobytes()


def test_rates_are_read_when_it_runs():
    op = ops._fused_sgd
    attrs = parse_attrs(op, {"row": 0})
    w, g, hyper = np.ones(4, "f"), np.ones(4, "f"), np.array([[0.5, 0.0]])
    shapes = ((4,), (4,), (1, 2))
    kernel = CPU.choose(op, attrs, shapes, (), w.dtype, (w.dtype, g.dtype, hyper.dtype))
    run = bind_call(kernel, np, op, attrs, [w, g, hyper], [], work=np.empty(0, np.uint8))
    run()
    hyper[0] = 0.25, 1.0
    run()
    np.testing.assert_array_equal(w, 0.5 - 0.25 * 0.5 - 0.25)
