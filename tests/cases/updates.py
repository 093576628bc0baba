"""Rows of `conformance.py` for the optimizers' steps, in all their forms. See `cases.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mxlite import ops
from tests.conformance.case import Case, positive

_ALL = {"wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.3}

# step -> (states that must be positive, parameters of a first row, more of a second, why MXNet's differ
# there)
_STEPS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any], bool | str]] = {
    "sgd_update": ((), {"lr": 0.1}, _ALL, True),
    "sgd_mom_update": ((), {"lr": 0.1, "momentum": 0.9}, _ALL, True),
    "nag_mom_update": (
        (), {"lr": 0.1, "momentum": 0.9}, _ALL, "MXNet's momentum decays by the new weight",
    ),
    "signsgd_update": ((), {"lr": 0.1}, _ALL, True),
    "signum_update": ((), {"lr": 0.1, "momentum": 0.9}, {**_ALL, "wd_lh": 0.02}, True),
    "adam_update": (("var",), {"lr": 0.1}, _ALL, True),
    "_adamw_update": (
        ("var",), {"lr": 0.1}, {**_ALL, "eta": 0.5}, "MXNet's takes rescale_grad as an array",
    ),
    "adagrad_update": (("history",), {"lr": 0.1}, _ALL, True),
    "adadelta_update": (("acc_g", "acc_delta"), {}, {**_ALL, "rho": 0.8}, True),
    "rmsprop_update": (("n",), {"lr": 0.1}, {**_ALL, "gamma1": 0.8, "clip_weights": 0.5}, True),
    "rmspropalex_update": (
        ("n",), {"lr": 0.1}, {**_ALL, "gamma1": 0.8, "gamma2": 0.7, "clip_weights": 0.5}, True,
    ),
    "ftrl_update": (("n",), {"lr": 0.1}, {**_ALL, "lamda1": 0.4, "beta": 0.7}, True),
    "ftml_update": (
        ("v", "d"), {"lr": 0.1, "t": 3}, {"wd": 0.01, "rescale_grad": 0.5, "clip_grad": 0.3, "t": 7}, True,
    ),
    "lamb_update": (("var",), {"lr": 0.1, "t": 3}, {**_ALL, "t": 2, "bias_correction": False}, True),
    "lamb_update_phase1": (("var",), {"t": 3, "wd": 0.0}, {**_ALL, "t": 2, "bias_correction": False}, True),
}  # fmt: skip


def _small(rng: Any, shape: Any) -> Any:
    return rng.uniform(-0.3, 0.3, shape)


def _makers(positives: tuple[str, ...]) -> dict[str, Any]:
    """How to fill the states; `g` of rmspropalex is a mean whose square stays below `n`."""
    return {"g": _small, **dict.fromkeys(positives, positive)}


_SHAPES = {"": (3, 4), "-vector": (5,), "-chunks": (3, 7000)}


def _rows() -> dict[str, Case]:
    rows: dict[str, Case] = {}
    for name, (positives, first, more, differs) in _STEPS.items():
        op = getattr(ops, name)
        make = _makers(positives)
        for kind, shape in _SHAPES.items():
            rows[f"{name}{kind}"] = Case(op, first, [shape] * len(op.inputs), make=make, mxnet=differs)
        rows[f"{name}-all"] = Case(op, {**first, **more}, [(3, 4)] * len(op.inputs), make=make, mxnet=differs)
        if name == "nag_mom_update":
            rows[name] = Case(op, first, [(3, 4)] * 3)
    for op in ops.ALL:
        base = op.op_name
        if op.__module__ not in _MODULES or base in _STEPS:
            continue
        kinds = {"_fused": _fused, "_lazy": _lazy}
        rows |= kinds.get(base[: base.find("_", 1)], _other)(op)
    return rows


_MODULES = (
    "mxlite.ops.optim.optimizer_ops",
    "mxlite.ops.optim.adaptive_updates",
    "mxlite.ops.optim.lamb_updates",
)


def _step_of(op: Any) -> str:
    """The step that a form belongs to."""
    name = op.op_name.lstrip("_")
    for prefix in ("preloaded_", "multi_", "fused_", "lazy_", "mp_"):
        name = name.removeprefix(prefix)
    name = name if "_update" in name else f"{name}_update"
    return "_adamw_update" if name == "adamw_update" else name


def _fused(op: Any) -> dict[str, Case]:
    step = _step_of(op)
    positives, first, more, _ = _STEPS[step]
    rates = getattr(ops, step).rates
    attrs = {k: v for k, v in {**first, **more}.items() if k not in rates}
    mixed = "weight32" in op.inputs
    make = {**_makers(positives), "hyper": positive}
    return {
        op.op_name: Case(
            op,
            {"row": 1, **attrs},
            [(3, 4)] * (len(op.inputs) - 1) + [(2, len(rates))],
            dtype="float32" if mixed else "float64",
            dtypes={"hyper": "float64"} | (dict.fromkeys(("weight", "grad"), "float16") if mixed else {}),
            make=make,
        )
    }


def _lazy(op: Any) -> dict[str, Case]:
    """As `_fused`, with flags of the rows."""
    ((name, case),) = _fused(op).items()
    return {
        name: replace(
            case,
            shapes=[*case.shapes[:-2], (3,), case.shapes[-1]],
            dtypes={**case.dtypes, "rows": "uint8"},
            make={**case.make, "rows": lambda rng, shape: rng.integers(0, 2, shape).astype(float)},
        )
    }


def _other(op: Any) -> dict[str, Case]:
    name = op.op_name
    if "phase2" in name:
        mixed = name.startswith("mp_")
        shapes = [(3, 4), (3, 4), (1,), (1,)] + [(3, 4)] * mixed
        kinds = {"weight": "float16"} if mixed else {}
        make = {"r1": positive, "r2": positive}
        differs: bool | str = (
            "MXNet leaves weight32 as it was, so that its next step forgets this one" if mixed else True
        )
        how: dict[str, Any] = dict(
            mxnet=differs, make=make, dtypes=kinds, dtype="float32" if mixed else "float64"
        )
        return {
            name: Case(op, {"lr": 0.1}, shapes, **how),
            f"{name}-bounds": Case(op, {"lr": 0.1, "lower_bound": 0.2, "upper_bound": 0.7}, shapes, **how),
        }
    step = _step_of(op)
    positives, first, more, differs = _STEPS[step]
    base = getattr(ops, step)
    if not op.variadic:  # mp_
        differs = differs if step == "nag_mom_update" else name in _MXNET_MIXED or "MXNet has none"
        return {
            name: Case(
                op,
                {**first, **more},
                [(3, 4)] * len(op.inputs),
                dtype="float32",
                dtypes={"weight": "float16", "grad": "float16"},
                make=_makers(positives),
                mxnet=differs,
                tolerance32=2e-3,
            )
        }
    return {name: _many(op, base, positives, first, more)}


_MXNET_MIXED = ("mp_sgd_update", "mp_sgd_mom_update", "mp_lamb_update_phase1")


def _many(op: Any, base: Any, positives: Any, first: Any, more: Any) -> Case:
    mixed = "mp_" in op.op_name
    each = [*base.inputs, *(["weight32"] if mixed else [])]
    names = [f"arg{i}" for i in range(2 * len(each))]
    attrs = {k: v for k, v in {**first, **more}.items() if k not in (*base.rates, "lazy_update")}
    attrs |= {"num_weights": 2, "num_args": len(names)}
    shapes = [(3, 4)] * len(each) + [(2, 5)] * len(each)
    if op.op_name.startswith("preloaded"):
        attrs["num_args"] += 2
        shapes += [(2,), (2,)]
    else:
        attrs |= {"lrs": (0.1, 0.2), "wds": (0.0, 0.01)}
    if base.rates[2:]:
        attrs["step_count"] = (3, 7)
    of = dict(zip(names, each * 2))
    return Case(
        op,
        attrs,
        shapes,
        dtype="float32" if mixed else "float64",
        dtypes={n: "float16" for n, w in of.items() if mixed and w in ("weight", "grad")},
        make={n: m for n, w in of.items() if (m := _makers(positives).get(w)) is not None},
        tolerance32=2e-3 if mixed else 1e-4,
        empty=False,
        mxnet=True if op.op_name in _MXNET_MANY else "MXNet has none, or its parameters differ",
        large=[(300, 800)] * len(each) + [(500, 500)] * len(each) + shapes[2 * len(each) :],
    )


_MXNET_MANY = (
    "multi_sgd_update", "multi_sgd_mom_update", "multi_mp_sgd_update", "multi_mp_sgd_mom_update",
    "preloaded_multi_sgd_update", "preloaded_multi_sgd_mom_update", "preloaded_multi_mp_sgd_update",
    "preloaded_multi_mp_sgd_mom_update",
)  # fmt: skip

ROWS: dict[str, Case] = _rows() | {
    f"group_adagrad{kind}": Case(
        ops.find_op("_contrib_group_adagrad_update"),
        attrs,
        [shape, shape, (3, 1)],
        make={"history": positive},
    )
    for kind, shape, attrs in (
        ("", (3, 4), {"lr": 0.1}),
        ("-wide", (3, 9000), {"lr": 0.1, "epsilon": 0.1}),
        ("-all", (3, 4), {"lr": 0.1, "rescale_grad": 0.5, "clip_gradient": 0.3}),
    )
}
