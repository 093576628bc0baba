"""Whatever an operator is called with, it answers with arrays as inferred, or with an error that helps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, HealthCheck, settings, strategies as st

from mxlite import ndarray as nd, ops, symbol as sym
from mxlite.backends import base
from mxlite.core.compat.npshape import np_shape
from mxlite.core.dtype import is_floating
from mxlite.core.errors import DeviceError, MXLiteError, OperatorError, OutOfMemoryError, StateError
from mxlite.engine import use_engine
from mxlite.ndarray.operators.functions import FUNCTIONS
from mxlite.symbol.functions import operator_function
from tests.backends.cpu.fast_kernels import only
from tests.conformance.case import Case
from tests.conformance.conformance import (
    Call,
    check_in_place,
    check_inputs_are_untouched,
    check_unwanted_outputs,
    check_writes_all_and_reads_no_garbage,
    same_bits,
)
from tests.conformance.operator_strategies import Trial, trials

RULES = (
    check_writes_all_and_reads_no_garbage,
    check_inputs_are_untouched,
    check_in_place,
    check_unwanted_outputs,
)

OPERATORS = [op for op in ops.ALL if not op.subgraphs]
"""All but loops and branches, whose graphs test_control_flow draws."""


def check_error(trial: Trial, error: MXLiteError, node: str = "") -> None:
    """It is ours all the way down, names the operator, and says something concrete."""
    if isinstance(error, OperatorError):
        cause = error.__cause__
        assert isinstance(cause, MXLiteError), f"{trial!r}: the kernel raised {cause!r}"
    text = str(error)
    names = (trial.op.op_name, *trial.op.aliases, *([node] if node else []))
    if isinstance(error, DeviceError):  # a device is what the call is about, whatever the operator
        return
    assert any(n in text for n in names), f"{trial!r}: the error does not name the operator: {text}"
    rest = text.replace(trial.op.op_name, "")
    known = (*trial.op.inputs, *trial.op.Attrs.__dataclass_fields__)
    assert re.search(r"[0-9]|'[^']+'|\(\)", rest) or any(k in rest for k in known), (
        f"{trial!r}: says nothing: {text}"
    )


def call(trial: Trial) -> list[Any] | None:
    """What `mx.nd` gives as numpy arrays; None if it refused, as it should."""
    try:
        arrays = [nd.array(x, dtype=x.dtype) for x in trial.arrays()]
        with use_engine("naive"):
            made = FUNCTIONS[trial.op.op_name](*arrays, **trial.attrs)
            outs = made if isinstance(made, list) else [made]
            return [o.asnumpy() for o in outs]
    except MXLiteError as error:
        check_error(trial, error)
        return None


def case_of(trial: Trial) -> Case:
    attrs = dict(trial.attrs)
    if trial.op.variadic:
        attrs.setdefault("num_args", len(trial.shapes))
    case = Case(trial.op, attrs)
    names = trial.op.input_names(case.parsed)
    numbers = trial.arrays()
    return Case(
        trial.op,
        attrs,
        trial.shapes,
        dtypes={n: str(d) for n, d in zip(names, trial.dtypes)},
        make={n: (lambda rng, shape, x=x: x) for n, x in zip(names, numbers)},
    )


def check(trial: Trial) -> bool:
    """All properties of one call. Says whether the operator ran."""
    outs = call(trial)
    if outs is None:
        return False
    case = case_of(trial)
    inferred = Call.of(case, case.shapes)
    visible = trial.op.num_visible_outputs(inferred.attrs)
    assert [(o.shape, o.dtype) for o in outs] == list(zip(inferred.shapes[1], inferred.dtypes[1]))[:visible]
    if inferred.shapes[0] == trial.shapes:  # or the row of an input may be given in more than one way
        for rule in RULES:
            rule(case)
    return True


def check_symbol(trial: Trial) -> bool:
    """The same of a symbol that is bound and trained: what it gives is what `mx.nd` gives."""
    arrays = trial.arrays()
    names = [f"x{i}" for i in range(len(arrays))]
    try:
        with use_engine("naive"), np_shape():
            net = operator_function(trial.op.op_name)(
                *[sym.Variable(n, dtype=str(x.dtype)) for n, x in zip(names, arrays)],
                name="node",
                **trial.attrs,
            )
            known = {n: x.shape for n, x in zip(names, arrays)}
            _, shapes, _ = net.infer_shape(**known)
            given = {*net.list_arguments(), *net.list_auxiliary_states()}
            floating = [n for n, x in zip(names, arrays) if is_floating(x.dtype)]
            exe = net.simple_bind(
                grad_req={n: "write" if n in floating else "null" for n in net.list_arguments()},
                **{n: s for n, s in known.items() if n in given},
            )
            held = {**exe.arg_dict, **exe.aux_dict}
            for n, x in zip(names, arrays):
                held[n][...] = nd.array(x, dtype=x.dtype)
            outs = [o.asnumpy() for o in exe.forward(is_train=False)]
            assert [o.shape for o in outs] == shapes
            if all(is_floating(o.dtype) for o in outs):
                exe.forward(is_train=True)
                exe.backward([nd.ones(o.shape, dtype=o.dtype) for o in outs])
                for g in exe.grad_arrays:
                    if g is not None:
                        g.asnumpy()
    except (OutOfMemoryError, StateError):  # of the arena, which is every node's; no gradient at all
        return False
    except MXLiteError as error:
        check_error(trial, error, "node")
        return False
    if len(given) != len(arrays) or {"ctx", "num_args"} & set(trial.attrs):
        # Inputs that are not given are made, and their shapes may follow; a graph does not read `ctx`.
        return True
    again = call(trial)
    assert again is not None or trial.op.random, f"{trial!r}: mx.nd refuses what mx.sym takes"
    if again is not None and not trial.op.random and "rng" not in trial.op.signature.services:
        for got, want in zip(outs, again):
            same_bits(got, want, repr(trial))
    return True


def machine(monkeypatch: Any) -> None:
    """128 MiB of memory, so that what asks for more is refused and not tried."""
    monkeypatch.setattr(base, "host_memory", lambda: 1 << 27)


FAMILIES = [m for m in ops.FAMILIES if any(op.__module__ == m.__name__ for op in OPERATORS)]


def search(of: Any, each: int, body: Any) -> None:
    """Run `body` on random trials of the operators `of`, the same ones every time."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

    @settings(
        max_examples=each * len(of),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=quiet,
    )
    @given(st.sampled_from(of).flatmap(trials))
    def run(trial: Trial) -> None:
        body(trial)

    run()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.__name__.split(".")[-1])
def test_a_call_gives_what_was_inferred_or_an_error_that_helps(family, monkeypatch):
    machine(monkeypatch)
    search([op for op in OPERATORS if op.__module__ == family.__name__], 6, check)


@pytest.mark.parametrize("part", range(4))
def test_a_bound_symbol_gives_what_the_call_gives_or_an_error_that_helps(part, monkeypatch):
    machine(monkeypatch)
    of = [op for op in OPERATORS if not op.op_name.startswith(("_fused", "_metric"))]  # they have no output
    with only("reference"):  # a call on a small array runs that kernel, a bound program a generated one
        search(of[part::4], 1, check_symbol)
