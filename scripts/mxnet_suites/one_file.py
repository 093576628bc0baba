"""Runs the tests of one file of MXNet in this process, with mxlite or with the wheel.

python -m mxnet_suites.one_file TESTS OUTCOMES LIMIT ONLY     as mxnet_suite.py starts it
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import random
import re
import signal
import sys
import time
import types
import unittest
import warnings
from pathlib import Path

from . import stand_ins

NOT_OURS = re.compile(
    r"gluon\.contrib|estimator|use_np\b|\bmx\.np\b|\bmx\.npx\b|\bnpx\.|_LIB\b|check_call|svrg|_NumpyArrayScope|"
    r"CachedOp|NDArrayHandle|_gen_atomic_symbol"
)
"""Matches the text of tests of gluon.contrib, mx.np, the C interface or SVRG, which mxlite does not have."""


def _tests(module: types.ModuleType) -> list[tuple[str, object, str]]:
    """(name, callable, source) in the order of the file; each method of a unittest class is a test."""
    found = []
    for name, value in list(vars(module).items()):
        own = getattr(value, "__module__", None) == module.__name__
        if name.startswith("test") and inspect.isfunction(value):
            if not own and inspect.getmodule(inspect.unwrap(value)) is not module:
                continue
            found.append((name, value, _text(value)))
        elif inspect.isclass(value) and issubclass(value, unittest.TestCase) and own:
            for method in unittest.defaultTestLoader.getTestCaseNames(value):
                run = functools.partial(_run_case, value, method)
                found.append((f"{name}.{method}", run, _text(getattr(value, method))))
    return found


def _text(function) -> str:
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return ""


def _run_case(kind, method) -> None:
    result = unittest.TestResult()
    kind(method).run(result)
    for _, text in (*result.errors, *result.failures):
        raise AssertionError(text)
    if result.skipped:
        raise unittest.SkipTest(result.skipped[0][1])


def run_file(tests: Path, results: Path, limit: int, only: str) -> None:
    """Run one file's tests in this process and write one outcome per line; skips those with outcomes."""
    os.environ.setdefault("MXNET_TEST_SEED", "7")
    os.environ.setdefault("MXNET_MODULE_SEED", "7")
    warnings.simplefilter("ignore")
    folder = tests.parent
    os.chdir(folder)
    for extra in ("../train", "../common", "."):
        sys.path.insert(0, str((folder / extra).resolve()))
    stand_ins.install()
    import mxnet as mx
    import numpy as np

    before = results.read_text().splitlines() if results.exists() else []
    done = {json.loads(line)["test"] for line in before}
    with open(results, "a", buffering=1) as out:

        def say(test, outcome, **more):
            print(json.dumps({"test": test, "outcome": outcome, **more}), file=out)

        try:
            module = importlib.import_module(tests.stem)
        except BaseException as error:
            say("(import)", "failed", why=f"{type(error).__name__}: {error}"[:300])
            return
        for test, function, text in _tests(module):
            if test in done or (only and not re.search(only, test)):
                continue
            if NOT_OURS.search(text):
                say(test, "left out")
                continue
            results.with_suffix(".now").write_text(test)
            random.seed(7)
            np.random.seed(7)  # noqa: NPY002
            mx.random.seed(7)
            start, why = time.perf_counter(), ""
            signal.signal(signal.SIGALRM, _late)
            signal.alarm(limit)
            try:
                if inspect.signature(function).parameters and not hasattr(function, "__wrapped__"):
                    raise unittest.SkipTest("takes arguments")
                function()
                outcome = "passed"
            except unittest.SkipTest as skip:
                outcome, why = "skipped", str(skip)
            except _Late:
                outcome = "late"
            except BaseException as error:
                outcome, why = "failed", _where(error, folder)
            finally:
                signal.alarm(0)
            with contextlib.suppress(Exception):
                mx.nd.waitall()
            say(test, outcome, why=why, s=round(time.perf_counter() - start, 2))
    results.with_suffix(".now").unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)  # threads left by failed tests must not block


class _Late(BaseException):
    """The test has run for as long as a test may; it is not an Exception, as tests catch those."""


def _late(*_) -> None:
    raise _Late


def _where(error: BaseException, folder: Path) -> str:
    """The error, and the line of the test that raised it."""
    line, trace = "", error.__traceback__
    while trace:
        if str(folder) in trace.tb_frame.f_code.co_filename:
            line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{line} {type(error).__name__}: {' '.join(str(error).split())}"[:400]


if __name__ == "__main__":
    run_file(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
