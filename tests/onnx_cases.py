"""The ONNX standard's own node tests, out of the `onnx` wheel, and what became of each of them here."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np


@functools.cache
def all_cases():
    """The 1,884 cases by name (with onnx 1.23). Making them takes 6 s, once a process."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


@dataclass(frozen=True)
class Outcome:
    """One case: passed, not supported (`why` is the importer's reason), or failed (`why` is the error)."""

    name: str
    kind: str  # "passed", "not supported" or "failed"
    why: str = ""


def run_case(case) -> Outcome:
    """Import, run, compare. Only the importer's own NotSupportedError makes a case not supported."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    from mxlite.formats.onnx import NotSupportedError
    from mxlite.formats.onnx.backend import MXLiteBackend

    assert case.data_sets, f"{case.name} has no data to compare with"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = MXLiteBackend.prepare(case.model)
            for inputs, wanted in case.data_sets:
                outputs = prepared.run([_normalize_tensor(x) for x in inputs])
                Runner.assert_similar_outputs(
                    [_normalize_tensor(x) for x in wanted], outputs, rtol=case.rtol, atol=case.atol
                )
    except NotSupportedError as error:
        return Outcome(case.name, "not supported", str(error))
    except Exception as error:
        return Outcome(case.name, "failed", f"{type(error).__name__}: {error}")
    return Outcome(case.name, "passed")


def count(outcomes) -> dict[str, int]:
    kinds = Counter(o.kind for o in outcomes)
    return {kind: kinds[kind] for kind in ("passed", "not supported", "failed")}
