"""Whatever an operator is called with, it answers with arrays as inferred, or with an error that helps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from case import Case
from conformance import (
    Call,
    check_in_place,
    check_inputs_are_untouched,
    check_unwanted_outputs,
    check_writes_all_and_reads_no_garbage,
)
from hypothesis import given, HealthCheck, note, Phase, settings
from operator_strategies import Trial, trials

from mxlite import ndarray as nd, ops
from mxlite.core.errors import DeviceError, MXLiteError, OperatorError
from mxlite.engine import use_engine
from mxlite.ndarray.functions import FUNCTIONS

OPERATORS = [op for op in ops.ALL if not op.subgraphs]
"""All but loops and branches, whose graphs test_control_flow draws."""


def say(trial: Trial) -> str:
    return repr(trial)


def check_error(trial: Trial, error: MXLiteError) -> None:
    """It is ours all the way down, names the operator, and says something concrete."""
    if isinstance(error, OperatorError):
        cause = error.__cause__
        assert isinstance(cause, MXLiteError), f"{trial!r}: the kernel raised {cause!r}"
    text = str(error)
    names = (trial.op.op_name, *trial.op.aliases)
    if isinstance(error, DeviceError):  # a device is what the call is about, whatever the operator
        return
    assert any(n in text for n in names), f"{trial!r}: the error does not name the operator: {text}"
    rest = text.replace(trial.op.op_name, "")
    known = (*trial.op.inputs, *trial.op.Attrs.__dataclass_fields__)
    assert re.search(r"[0-9]|'[^']+'", rest) or any(k in rest for k in known), (
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
    inferred = Call.of(case)
    visible = trial.op.num_visible_outputs(inferred.attrs)
    assert [(o.shape, o.dtype) for o in outs] == list(zip(inferred.shapes[1], inferred.dtypes[1]))[:visible]
    for rule in (
        check_writes_all_and_reads_no_garbage,
        check_inputs_are_untouched,
        check_in_place,
        check_unwanted_outputs,
    ):
        rule(case)
    return True
