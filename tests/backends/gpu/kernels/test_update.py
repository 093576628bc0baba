"""Kernels of optimizers' steps, run on the CPU: the bits of the reference, in every form."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends import Backend, bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.gpu.handwritten.weights import capacity_for, CHUNK, tables, Weight
from mxlite.backends.gpu.kernels.optim import lamb, update
from mxlite.graph.attrs import parse_attrs
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICE = EmulatedDevice()
BACKEND = Backend("emulated", np, {**update.rows(DEVICE), **lamb.rows(DEVICE)})
STEPS = {op.op_name: op for op in (o.step_of for o in BACKEND.kernels if getattr(o, "form", "") == "plain")}
COUNTED = ("ftml_update", "lamb_update", "lamb_update_phase1")  # powers and sums of squares: near, not equal


def form(step, kind):
    """The form of a step."""
    return next(o for o in BACKEND.kernels if getattr(o, "step_of", None) is step and o.form == kind)


def arrays_of(names, kinds, size, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for n, k in zip(names, kinds):
        if n in ("weight", "grad", "mean", "mom", "z", "g", "delta"):
            x = rng.standard_normal(size) * (0.2 if n == "g" else 1)
        else:
            x = rng.uniform(0.1, 1, size)
        made.append(x.astype(k))
    return made


def both(op, attrs, arrays, outs, kernels=(BACKEND, CPU), times=2):
    """Arrays and outputs after `times` runs on each of both backends; None among `outs`: not wanted."""
    results = []
    shapes = tuple(x.shape for x in arrays), tuple(arrays[0].shape if o is None else o.shape for o in outs)
    for backend in kernels:
        own = [a.copy() for a in arrays]
        made = [None if o is None else np.full_like(o, 77) for o in outs]
        dtypes = tuple(a.dtype for a in own)
        if backend is CPU:
            kernel = CPU.reference(op, attrs, *shapes, dtypes[0])
        else:
            kernel = backend.choose(op, attrs, *shapes, dtypes[0], dtypes)
            assert kernel.name.startswith("cuda")
        work = CPU.empty(kernel.workspace)
        run = bind_call(kernel, np, op, attrs, own, made, work=work, shapes=shapes)
        with np.errstate(all="ignore"):
            for _ in range(times):
                run()
        results.append([*own, *(m for m in made if m is not None)])
    return results


def same(results, exact=True, rtol=3e-6):
    for i, (a, b) in enumerate(zip(*results)):
        if exact:
            assert a.tobytes() == b.tobytes(), i
        else:
            np.testing.assert_allclose(a.astype("d"), b.astype("d"), rtol=rtol, atol=rtol)


def settings(op, more):
    """Rescaling and clipping under the names that the operator has for them."""
    fields = op.Attrs.__dataclass_fields__
    more = {("clip_grad" if k == "clip_gradient" and k not in fields else k): v for k, v in more.items()}
    return {k: v for k, v in more.items() if k in fields}


ALL = {"rescale_grad": 0.5, "clip_gradient": 0.3, "clip_weights": 0.7, "momentum": 0.9, "eta": 0.5}


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_step_has_the_bits_of_the_reference(name):
    """With decay and without, from attributes and from `hyper`, of one element, of packs and of the rest."""
    step = STEPS[name]
    exact = name not in COUNTED
    fused = next(
        (o for o in BACKEND.kernels if getattr(o, "step_of", None) is step and o.form == "fused"), None
    )
    for size, wd in ((1, 0.0), (2 * CHUNK + 1003, 0.01), (39, 0.0)):
        arrays = arrays_of(step.inputs, ["float32"] * len(step.inputs), size)
        rates = dict(zip(step.rates, (0.1, wd, 3)))
        if fused is not None:
            attrs = parse_attrs(fused, {**settings(fused, ALL), "row": 1})
            hyper = np.array([[9.0] * len(rates), list(rates.values())])
            same(both(fused, attrs, [*arrays, hyper], []), exact)
        attrs = parse_attrs(step, {**settings(step, ALL), **settings(step, rates)})
        same(both(step, attrs, arrays, [arrays[0]]), exact)


@pytest.mark.parametrize("name", ["sgd_mom_update", "lamb_update"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_master_copy_is_changed_and_rounded_into_the_weight(name, kind):
    step, dtype = STEPS[name], np.dtype(getattr(ml_dtypes, kind, kind))
    for wanted in (True, False):
        names = (*step.inputs, "weight32")
        kinds = [dtype if n in ("weight", "grad") else np.dtype("float32") for n in names]
        arrays = arrays_of(names, kinds, 1003)
        arrays[-1] = arrays[0].astype("float32")
        op = form(step, "mixed")
        rates = settings(op, {"lr": 0.1, "wd": 0.01, "t": 3})
        results = both(
            op, parse_attrs(op, {**settings(op, ALL), **rates}), arrays, [arrays[0] if wanted else None]
        )
        same(results, name == "sgd_mom_update", 1e-2 if wanted else 3e-6)
    op = form(step, "fused")
    op = next(
        o
        for o in BACKEND.kernels
        if getattr(o, "step_of", None) is step and o.form == "fused" and o.has_master
    )
    hyper = np.array([[0.1, 0.01, 3.0][: len(step.rates)]])
    results = both(op, parse_attrs(op, {**settings(op, ALL), "row": 0}), [*arrays, hyper], [])
    same(results, name == "sgd_mom_update", 1e-2)
    assert (results[0][0] == results[0][-2].astype(dtype)).all()


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_other_types_are_computed_as_numpy_does(kind):
    """16-bit numbers without a copy are rounded after every operation."""
    step, dtype = STEPS["adam_update"], np.dtype(getattr(ml_dtypes, kind, kind))
    arrays = arrays_of(step.inputs, [dtype] * 4, 1003)
    attrs = parse_attrs(step, {"lr": 0.1, "wd": 0.01, **settings(step, ALL)})
    same(both(step, attrs, arrays, [arrays[0]]))
    fused = form(step, "fused")
    hyper = np.array([[0.1, 0.01]])
    same(both(fused, parse_attrs(fused, {"row": 0, **settings(fused, ALL)}), [*arrays, hyper], []))


@pytest.mark.parametrize("name", ["sgd_mom_update", "lamb_update"])
def test_an_update_whose_rate_is_nan_changes_nothing(name):
    fused = form(STEPS[name], "fused")
    attrs = parse_attrs(fused, {**settings(fused, ALL), "row": 0})
    arrays = arrays_of(fused.inputs[:-1], ["float32"] * len(fused.inputs[:-1]), 100)
    hyper = np.array([[np.nan, 0.01, 3.0][: len(STEPS[name].rates)]])
    for result in both(fused, attrs, [*arrays, hyper], []):
        for a, b in zip(result, arrays):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "name", ["multi_mp_sgd_mom_update", "preloaded_multi_sgd_update", "_multi_lamb_update"]
)
def test_many_weights_in_few_launches(name):
    """More weights than a table has, among them empty ones and ones of several blocks."""
    op = next(o for o in BACKEND.kernels if o.op_name == name)
    step, count = op.step_of, 70
    each = [*step.inputs, *(["weight32"] if op.has_master else [])]
    half = np.dtype("float16")
    kinds = [half if op.has_master and n in ("weight", "grad") else np.dtype("float32") for n in each]
    sizes = [(i * 37) % 200 + 1 if i % 10 else (0, 5000)[i % 20 > 0] for i in range(count)]
    args = [a for i, n in enumerate(sizes) for a in arrays_of(each, kinds, n, seed=i)]
    rng = np.random.default_rng(9)
    lrs, wds = rng.uniform(0.05, 0.2, count), np.where(np.arange(count) % 3, 0.01, 0.0)
    more = settings(op, ALL) | {"num_weights": count, "num_args": len(args)}
    if op.is_preloaded:
        args += [lrs.astype("float32"), wds.astype("float32")]
        more["num_args"] += 2
    else:
        more |= {"lrs": tuple(lrs), "wds": tuple(wds)}
    if op.counts:
        more[op.counts] = tuple(range(1, count + 1))
    outs = [args[i * len(each)] for i in range(count)]
    DEVICE.launched.clear()
    same(both(op, parse_attrs(op, more), args, outs, times=1), "lamb" not in name)
    beside = [(ctypes.c_double * 38)()] if "lamb" in name else []  # LAMB has two formulas
    tables_ = -(-count // capacity_for(len(each) + 1, count, beside))
    assert len(DEVICE.launched) == tables_ * (2 if "lamb" in name else 1)


def test_addresses_that_are_not_aligned_for_packs():
    step = STEPS["sgd_update"]
    attrs = parse_attrs(step, {"lr": 0.1, **settings(step, ALL)})
    base = [np.arange(5000, dtype="f") for _ in range(2)]
    kernel = BACKEND.choose(step, attrs, ((4000,),) * 2, ((4000,),), np.dtype("f"))
    want = None
    for skip in (0, 1, 2):
        w, g = base[0][:4000].copy(), np.roll(base[1], skip)[skip : skip + 4000]
        bind_call(kernel, np, step, attrs, [w, g], [w], work=np.empty(0, "u1"))()
        assert want is None or w.tobytes() == want
        want = w.tobytes()


def test_sums_of_large_layers_are_split_by_size_alone():
    sizes = [1, CHUNK, CHUNK + 1, CHUNK * lamb.MOST_PARTS, CHUNK * lamb.MOST_PARTS + 1, 10**9 + 7]
    for n in sizes:
        chunk = lamb.chunk_of(n)
        assert chunk % CHUNK == 0 and -(-n // chunk) <= lamb.MOST_PARTS
        assert lamb.Layers.workspace([n]) == 16 * -(-n // chunk)
    w, g = np.full(3 * CHUNK + 5, 2.0, "f"), np.full(3 * CHUNK + 5, 0.5, "f")
    op = STEPS["lamb_update"]
    attrs = parse_attrs(op, {"lr": 0.1, "t": 1, "bias_correction": False})
    arrays = [w, g, np.zeros_like(w), np.zeros_like(w)]
    same(both(op, attrs, arrays, [w], times=3), False)
    attrs = parse_attrs(op, {"lr": 0.1, "t": 1, "lower_bound": 1e3, "upper_bound": 2e3})
    same(both(op, attrs, arrays, [w], times=3), False)


def test_a_table_is_cut_where_the_blocks_would_be_too_many():
    weights = [Weight((256,) * 3, 2**40, False) for _ in range(9)]
    made = tables(weights, 16)
    assert sum(count for _, count, _ in made) == 9
    assert all(blocks < 2**31 for _, _, blocks in made)
    assert [blocks for _, _, blocks in tables([Weight((0, 0), 0, True)] * 2, 1)] == [0, 0]


@pytest.mark.parametrize("name", ["lamb_update_phase2", "mp_lamb_update_phase2", "mp_lamb_update_phase1"])
def test_the_phases_of_lamb(name):
    op = next(o for o in BACKEND.kernels if o.op_name == name)
    mixed = [n in ("weight", "grad") and name.startswith("mp_") for n in op.inputs]
    kinds = [np.dtype("float16" if m else "float32") for m in mixed]
    arrays = [x[:1] if n in ("r1", "r2") else x for n, x in zip(op.inputs, arrays_of(op.inputs, kinds, 1003))]
    attrs = parse_attrs(op, settings(op, {"lr": 0.1, "t": 3, "wd": 0.01, "lower_bound": 0.4, **ALL}))
    out = arrays[0] if "phase2" in name else arrays[0].astype("f")
    same(both(op, attrs, arrays, [out], times=1), False, 1e-6)
