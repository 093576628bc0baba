"""Every form of every optimizer step: the bits of its formula, computed by numpy as it stands.

The formula is called with whole arrays, each of its steps rounded to their type. The reference kernels assign
scratch to it and run it in chunks; the CPU's kernels are generated from it.
"""

from __future__ import annotations

from dataclasses import fields, replace

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.optim.recording import Rates
from mxlite.ops.optim.update import CHUNK
from mxlite.te.steps import NUMPY, Numpy, StandIn

FORMS = [op for op in ops.ALL if hasattr(op, "step_of") and "whole" not in vars(op.step_of)]
KINDS = {k: np.dtype(getattr(ml_dtypes, k, k)) for k in ("float32", "float64", "float16", "bfloat16")}
ON = {
    "rescale_grad": 0.37, "clip_gradient": 0.3, "clip_grad": 0.3, "clip_weights": 0.7, "momentum": 0.9,
    "wd_lh": 0.013, "eta": 0.3, "beta1": 0.83, "beta2": 0.97, "epsilon": 1e-3, "gamma1": 0.71, "gamma2": 0.6,
    "rho": 0.61, "lamda1": 0.3, "beta": 0.7, "bias_correction": True, "lazy_update": True,
}  # fmt: skip
SIGNED = ("weight", "grad", "mean", "mom", "z", "delta")


class Rounded(StandIn):
    """An array, each step on which is rounded to its type."""

    __array_ufunc__ = None

    def __init__(self, value):
        self.value, self.dtype = value, value.dtype

    def step(self, name, *operands):
        values = [x.value if isinstance(x, Rounded) else x for x in operands]
        return Rounded(NUMPY[name](*values).astype(self.dtype))


class RoundedNumpy(Numpy):
    def step(self, name, *operands):
        return operands[0].step(name, *operands)


def from_formula(step, attrs, rates, arrays):
    """The new weight and states of one weight: `arrays` are weight, gradient and states."""
    real = arrays[0].dtype.type
    r = Rates(real(rates[0]), real(rates[1]), *map(float, rates[2:]))
    with np.errstate(all="ignore"):
        made = step.step(RoundedNumpy(), attrs, r, *(Rounded(x.astype(arrays[0].dtype)) for x in arrays))
    return [x.value for x in (made if isinstance(made, tuple) else (made,))]


class Call:
    """A call of a form: two weights of `multi_`, one of the others."""

    def __init__(self, op, kind, given, wd, size):
        step, self.op = op.step_of, op
        each = [*step.inputs, *["weight32"] * op.has_master]
        first = {"lr": 0.1, "wd": wd, "t": 3}
        rates = [[first[n] for n in step.rates], [dict(first, lr=0.23, t=7)[n] for n in step.rates]]
        self.weights = [_arrays(each, op.has_master, kind, size, seed) for seed in (0, 1)]
        names = {f.name for f in fields(op.Attrs)}
        given = {n: x for n, x in given.items() if n in names}
        if op.form != "many":
            del self.weights[1:], rates[1:]
        self.arrays = [x for own in self.weights for x in own]
        self.has_outs = op.form in ("plain", "mixed", "many")
        self.outs = [np.full_like(own[0], 77) for own in self.weights] if self.has_outs else []
        self.rows = None
        if op.form in ("plain", "mixed"):
            given |= {n: x for n, x in zip(step.rates, rates[0]) if n in names}
        elif op.form == "many":
            given |= {"num_weights": 2, "num_args": len(self.arrays) + 2 * op.is_preloaded}
            lrs, wds, *times = zip(*rates)
            if op.is_preloaded:
                self.arrays += [np.array(lrs, "f"), np.array(wds, "f")]
                rates = [[*map(np.float32, r)] for r in rates]
            else:
                given |= {"lrs": lrs, "wds": wds}
            if op.counts:
                given[op.counts] = times[0]
        else:
            given["row"] = 1
            if op.form == "lazy":
                self.rows = np.arange(size[0]) % 3 != 0
                self.arrays.append(self.rows.astype("u1"))
            self.arrays.append(np.array([[9.0] * len(step.rates), rates[0]]))
        self.rates, self.attrs = rates, parse_attrs(op, given)

    def wanted(self, in_place=False):
        """The arrays and outputs after the call, from the formula. in_place: weights are the outputs."""
        op, arrays, outs = self.op, [], []
        for rates, own in zip(self.rates, self.weights):
            weight, grad, *states = own
            read = (states[-1], grad, *states[:-1]) if op.has_master else own
            new, *changed = from_formula(op.step_of, self.attrs, rates, read)
            changed += [new] * op.has_master
            new = new.astype(weight.dtype)
            if op.form in ("fused", "lazy"):
                rows = slice(None) if self.rows is None else self.rows
                after = [weight.copy(), grad, *(x.copy() for x in states)]
                for x, y in zip((after[0], *after[2:]), (new, *changed), strict=True):
                    x[rows] = y[rows]
                arrays += after
            else:
                arrays += [new if in_place else weight, grad, *changed]
                outs.append(new)
        return [*arrays, *self.arrays[len(arrays) :], *outs]

    def by(self, choose, in_place=False):
        """The same from a kernel."""
        own = [x.copy() for x in self.arrays]
        each = len(self.weights[0])
        outs = own[: each * len(self.outs) : each] if in_place else [x.copy() for x in self.outs]
        shapes = tuple(x.shape for x in own), tuple(x.shape for x in outs)
        kernel = choose(self.op, self.attrs, *shapes, own[0].dtype, tuple(x.dtype for x in own))
        work = np.empty(kernel.workspace, np.uint8)
        with np.errstate(all="ignore"):
            bind_call(kernel, np, self.op, self.attrs, own, outs, work=work, shapes=shapes)()
        return [*own, *outs]


def _arrays(names, master, kind, size, seed):
    rng = np.random.default_rng(seed)
    made = []
    for n in names:
        x = rng.standard_normal(size) if n in SIGNED else rng.uniform(0.1, 1, size)
        x = rng.uniform(-0.2, 0.2, size) if n == "g" else x  # a mean whose square is below `n`
        made.append(x.astype("f" if master and n not in ("weight", "grad") else KINDS[kind]))
    if master:
        made[-1] = made[0].astype("f")
    return made


def reference(op, attrs, inputs, outputs, dtype, dtypes):
    return CPU.reference(op, attrs, inputs, outputs, dtype)


def generated(op, *request):
    kernel = CPU.choose(op, *request)
    assert kernel.name == f"compiled {op.step_of.op_name}"
    return kernel


def same(made, wanted, *what):
    for i, (a, b) in enumerate(zip(made, wanted, strict=True)):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (*what, i)


def kinds_of(op):
    return ("float16", "bfloat16") if op.has_master else KINDS


@pytest.mark.parametrize("op", FORMS, ids=lambda op: op.op_name)
def test_the_reference_has_the_bits_of_the_formula(op):
    """With all attributes on, with the default of each, and with none; of one chunk and of several."""
    names = [n for n in ON if n in op.Attrs.__dataclass_fields__]
    listed = [ON, {}, *({n: x for n, x in ON.items() if n != off} for off in names)]
    for kind in kinds_of(op):
        for given in listed:
            for wd in (0.0, 0.017):
                call = Call(op, kind, given, wd, (7, 3))
                same(call.by(reference), call.wanted(), kind, given, wd)
                if call.has_outs and op.step_of.in_place:
                    same(call.by(reference, True), call.wanted(True), kind, given, wd)
        large = Call(op, kind, ON, 0.017, (CHUNK // 7 + 100, 9))
        same(large.by(reference), large.wanted(), kind)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("op", FORMS, ids=lambda op: op.op_name)
def test_generated_code_has_the_bits_of_the_formula(op):
    for kind in kinds_of(op):
        for given in (ON, {}):
            for wd in (0.0, 0.017):
                call = Call(op, kind, given, wd, (61, 17))
                same(call.by(generated), call.wanted(), kind, given, wd)
                if call.has_outs and op.step_of.in_place:
                    same(call.by(generated, True), call.wanted(True), kind, given, wd)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("name", ["sgd_mom_update", "_fused_sgd_mom", "_fused_mp_ftml", "_lazy_mp_adam"])
def test_a_learning_rate_of_nan_is_no_step_in_a_program_and_a_step_elsewhere(name):
    op = getattr(ops, name)
    call = Call(op, "float16" if op.has_master else "float32", ON, 0.017, (61, 17))
    if call.has_outs:
        call.attrs = replace(call.attrs, lr=float("nan"))
    else:
        call.arrays[-1][1, 0] = np.nan
    for choose in (generated, reference):
        made = call.by(choose)
        if call.has_outs:
            assert np.isnan(made[-1]).all()
        else:
            same(made, call.arrays)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
def test_a_call_for_many_weights_is_one_call_of_generated_code():
    op = ops.multi_adam_update
    call = Call(op, "float32", ON, 0.017, (300, 300))
    own = [x.copy() for x in call.arrays]
    shapes = tuple(x.shape for x in own), tuple(x.shape for x in call.outs)
    kernel = CPU.choose(op, call.attrs, *shapes, own[0].dtype, tuple(x.dtype for x in own))
    run = bind_call(kernel, np, op, call.attrs, own, call.outs, work=np.empty(0, "u1"), shapes=shapes)
    assert kernel.workspace == 0 and not isinstance(run, tuple)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("name", ["adam_update", "mp_sgd_mom_update", "multi_sgd_mom_update"])
def test_a_new_weight_that_nobody_reads_is_not_written(name):
    op = getattr(ops, name)
    kind = "float16" if op.has_master else "float32"
    call = Call(op, kind, ON, 0.017, (61, 17))
    wanted = call.wanted()[: len(call.arrays)]
    call.outs = [None] * len(call.outs)
    own = [x.copy() for x in call.arrays]
    shapes = tuple(x.shape for x in own), tuple(x.shape for x in own[: len(call.outs)])
    kernel = CPU.choose(op, call.attrs, *shapes, own[0].dtype, tuple(x.dtype for x in own))
    bind_call(kernel, np, op, call.attrs, own, call.outs, work=np.empty(0, "u1"), shapes=shapes)()
    same(own, wanted)


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize(
    ("name", "kind"),
    [("lamb_update_phase2", k) for k in KINDS]
    + [(n, k) for n in ("mp_lamb_update_phase1", "mp_lamb_update_phase2") for k in ("float16", "bfloat16")],
)
def test_generated_phases_of_lamb_have_the_bits_of_the_reference(name, kind):
    """Also where a norm is 0, and where nobody reads the result."""
    op, master = getattr(ops, name), name.startswith("mp_")
    given = {"t": 3, "wd": 0.01} if "phase1" in name else {"lr": 0.1, "upper_bound": 2.0}
    attrs = parse_attrs(op, given)
    arrays = _arrays(op.inputs, master, kind, (300, 100), 0)
    for norm in (3.0, 0.0):
        results = []
        for choose in (CPU.choose, reference):
            own = [
                np.array([norm], x.dtype) if n == "r1" else x[0, :1].copy() if n == "r2" else x.copy()
                for n, x in zip(op.inputs, arrays)
            ]
            out = np.full(arrays[0].shape, 7, "f" if "phase1" in name else own[0].dtype)
            shapes = tuple(x.shape for x in own), (out.shape,)
            kernel = choose(op, attrs, *shapes, own[0].dtype, tuple(x.dtype for x in own))
            assert kernel.name.startswith("compiled") or choose is reference
            for made in (None, out):
                work = np.empty(kernel.workspace, np.uint8)
                bind_call(kernel, np, op, attrs, own, [made], work=work, shapes=shapes)()
            results.append([*own, out])
        same(*results, norm)


def test_scratch_is_reused_as_soon_as_a_value_is_not_needed():
    """The figures are those of kernels written by hand."""
    most = {
        "sgd_update": 1, "sgd_mom_update": 1, "nag_mom_update": 2, "signsgd_update": 1, "signum_update": 2,
        "adam_update": 2, "_adamw_update": 2, "adagrad_update": 2, "adadelta_update": 2, "rmsprop_update": 2,
        "rmspropalex_update": 2, "ftrl_update": 3, "ftml_update": 2, "lamb_update_phase1": 1,
    }  # fmt: skip
    plain = {op.op_name: op for op in FORMS if op.form == "plain"}
    assert plain.keys() == most.keys()
    for name, op in plain.items():
        given = {n: x for n, x in (ON | {"lr": 0.1, "t": 3}).items() if n in op.Attrs.__dataclass_fields__}
        assert op.scratch(parse_attrs(op, given), KINDS["float32"]) <= most[name], name
