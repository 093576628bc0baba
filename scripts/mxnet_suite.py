#!/usr/bin/env python
"""Runs MXNet's own unit tests with mxlite, and with the real wheel for comparison.

    python scripts/mxnet_suite.py CHECKOUT [--files test_io.py ...] [--wheel PYTHON] [--results FOLDER]

CHECKOUT is a checkout of MXNet (we compare with its tags 1.9.1 and 1.0.0); no part of it is kept here. Each
file of FILES runs in its own process: once under this Python, where `import mxnet` gives mxlite
(mxlite/core/alias.py), and once under the Python of the wheel (MXLITE_MXNET_PYTHON). A test counts if the
wheel passes it; it is left out if its text concerns parts that mxlite does not have: Gluon, mx.np, handles of
the C interface. With --results the outcomes are kept as JSON lines, and a second run reuses them: delete a
file to rerun its tests.

The tests were written for nose and numpy 1.x: stand-ins for nose, and for names removed from numpy, are
installed in both processes. The exit code is 1 if mxlite fails a test that counts.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import warnings
from pathlib import Path

FILES = """
    attr autograd base contrib_autograd contrib_control_flow contrib_krprod contrib_operator contrib_optimizer
    contrib_text engine engine_import exc_handling executor higher_order_grad image infer_shape infer_type
    init io kvstore metric model_parallel module multi_device_exec ndarray operator optimizer profiler random
    recordio rnn runtime sparse_ndarray sparse_operator symbol test_utils thread_local viz
""".split()
"""Files on Symbol, NDArray, Module and related parts; each tag has most of them."""
NOT_OURS = re.compile(
    r"gluon|use_np\b|\bmx\.np\b|\bmx\.npx\b|\bnpx\.|_LIB\b|check_call|svrg|_NumpyArrayScope|\bnn\.|Block\b|"
    r"_BlockScope|CachedOp|NDArrayHandle|_gen_atomic_symbol"
)
"""Matches the text of tests of Gluon, mx.np, the C interface or SVRG, which mxlite does not have."""
LIMIT = 300  # seconds per test, some of which take a minute on an idle machine
_OLD_NAMES = {
    "bool": bool, "int": int, "float": float, "object": object, "str": str, "long": int, "complex": complex,
    "float_": "float64", "product": "prod", "cumproduct": "cumprod", "alltrue": "all", "sometrue": "any",
    "round_": "round", "infty": "inf", "Inf": "inf", "NaN": "nan", "NAN": "nan", "PINF": "inf",
    "in1d": "isin",
    "row_stack": "vstack", "asscalar": lambda a: a.item(), "unicode_": "str_", "string_": "bytes_",
    "complex_": "complex128", "trapz": "trapezoid",
}  # fmt: skip


# Part that runs in the process of one file.


def _nose() -> None:
    """Install stand-ins for the parts of nose that the tests use."""
    nose, tools = types.ModuleType("nose"), types.ModuleType("nose.tools")
    case = unittest.TestCase()
    case.maxDiff = None

    def raises(*errors):
        def decorate(function):
            @functools.wraps(function)
            def inside(*args, **kwargs):
                with case.assertRaises(errors):
                    function(*args, **kwargs)

            return inside

        return decorate

    def make_decorator(function):
        return lambda new: functools.wraps(function)(new)

    def ok_(expression, message=None):
        assert expression, message

    def eq_(a, b, message=None):
        assert a == b, message or f"{a!r} != {b!r}"

    for name in dir(case):
        if name.startswith("assert"):
            snake = re.sub("([A-Z])", lambda m: "_" + m[0].lower(), name)
            setattr(tools, snake, getattr(case, name))
    tools.assert_raises_regexp = case.assertRaisesRegex
    tools.raises, tools.make_decorator, tools.ok_, tools.eq_ = raises, make_decorator, ok_, eq_
    nose.tools, nose.SkipTest, nose.runmodule, nose.main = tools, unittest.SkipTest, print, print
    nose.plugins = types.ModuleType("nose.plugins")
    nose.plugins.attrib = types.ModuleType("nose.plugins.attrib")
    nose.plugins.attrib.attr = lambda *_, **__: lambda function: function
    nose.plugins.skip = types.ModuleType("nose.plugins.skip")
    nose.plugins.skip.SkipTest = unittest.SkipTest
    for module in (nose, tools, nose.plugins, nose.plugins.attrib, nose.plugins.skip):
        sys.modules[module.__name__] = module


def _absent(name: str) -> types.ModuleType:
    """A stand-in for a module that mxlite lacks and only some tests of a file use: raises if called."""

    class Absent:
        def __init__(self, *_, **__):
            raise NotImplementedError(f"{name}: mxlite has none")

    module = types.ModuleType(name)
    module.__path__ = []
    module.__all__ = []

    def find(attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        inner = f"{name}.{attribute}"
        return sys.modules[inner] if inner in sys.modules else type(attribute, (Absent,), {})

    module.__getattr__ = find
    sys.modules[name] = module
    return module


def _wrapping(arange):
    """numpy 1's arange, which wraps around on overflow of the dtype."""

    @functools.wraps(arange)
    def inside(*args, dtype=None, **kwargs):
        try:
            return arange(*args, dtype=dtype, **kwargs)
        except OverflowError:
            return arange(*args, **kwargs).astype(dtype)

    return inside


def _stand_ins() -> None:
    import numpy as np

    for old, new in _OLD_NAMES.items():
        if old not in np.__dict__ and not hasattr(np, old):
            setattr(np, old, getattr(np, new) if isinstance(new, str) else new)
    np.arange = _wrapping(np.arange)
    _nose()
    import mxnet as mx

    if mx.__name__ != "mxnet":
        for name in ("gluon", "gluon.nn", "gluon.block", "gluon.rnn", "gluon.contrib", "gluon.utils",
                     "gluon.model_zoo", "gluon.model_zoo.vision",
                     "np", "npx", "numpy", "numpy_extension", "contrib.amp"):  # fmt: skip
            _absent(f"mxnet.{name}")
        mx.gluon, mx.np, mx.npx = (sys.modules[f"mxnet.{name}"] for name in ("gluon", "np", "npx"))


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


def run_file(folder: Path, name: str, results: Path, only: str | None) -> None:
    """Run one file's tests in this process and write one outcome per line; skips those with outcomes."""
    os.environ.setdefault("MXNET_TEST_SEED", "7")
    os.environ.setdefault("MXNET_MODULE_SEED", "7")
    warnings.simplefilter("ignore")
    os.chdir(folder)
    for extra in ("../train", "../common", "."):
        sys.path.insert(0, str((folder / extra).resolve()))
    _stand_ins()
    import mxnet as mx
    import numpy as np

    before = results.read_text().splitlines() if results.exists() else []
    done = {json.loads(line)["test"] for line in before}
    with open(results, "a", buffering=1) as out:

        def say(test, outcome, **more):
            print(json.dumps({"test": test, "outcome": outcome, **more}), file=out)

        try:
            module = importlib.import_module(name)
        except BaseException as error:
            say("(import)", "failed", why=f"{type(error).__name__}: {error}"[:300], ours=True)
            return
        for test, function, text in _tests(module):
            if test in done or (only and not re.search(only, test)):
                continue
            ours = not NOT_OURS.search(text)
            if not ours:
                say(test, "left out", ours=False)
                continue
            results.with_suffix(".now").write_text(test)
            random.seed(7)
            np.random.seed(7)  # noqa: NPY002
            mx.random.seed(7)
            start, why = time.perf_counter(), ""
            signal.signal(signal.SIGALRM, _late)
            signal.alarm(LIMIT)
            try:
                if inspect.signature(function).parameters and not hasattr(function, "__wrapped__"):
                    raise unittest.SkipTest("takes arguments")
                function()
                outcome = "passed"
            except unittest.SkipTest as skip:
                outcome, why = "skipped", str(skip)
            except BaseException as error:
                outcome, why = "failed", _where(error, folder)
            finally:
                signal.alarm(0)
            with contextlib.suppress(Exception):
                mx.nd.waitall()
            say(test, outcome, why=why, s=round(time.perf_counter() - start, 2), ours=True)
    results.with_suffix(".now").unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)  # threads left by failed tests must not block


def _late(*_) -> None:
    raise TimeoutError(f"not done within {LIMIT} s")


def _where(error: BaseException, folder: Path) -> str:
    """The error, and the line of the test that raised it."""
    line, trace = "", error.__traceback__
    while trace:
        if str(folder) in trace.tb_frame.f_code.co_filename:
            line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{line} {type(error).__name__}: {' '.join(str(error).split())}"[:400]


# Part that runs in the parent process.


def _outcomes(python: str, path: str, folder: Path, name: str, results: Path, only: str | None) -> dict:
    """The outcomes of one file under one Python, by test."""
    file = results / f"{name}.jsonl"
    environment = {**os.environ, "PYTHONPATH": path, "MXNET_SUBGRAPH_BACKEND": "NONE", "PYTHONHASHSEED": "0"}
    command = [python, str(Path(__file__).resolve()), str(folder), "--run", name, "--results", str(results)]
    command += ["--only", only] if only else []
    while not (file.exists() and file.with_suffix(".done").exists()):
        before = file.stat().st_size if file.exists() else 0
        running = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        size, seen = before, time.monotonic()
        while running.poll() is None:
            time.sleep(0.2)
            now = file.stat().st_size if file.exists() else 0
            if now != size:
                size, seen = now, time.monotonic()
            elif time.monotonic() - seen > LIMIT + 60:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        at = file.with_suffix(".now")
        if running.returncode == 0 or not at.exists():
            file.touch()
            file.with_suffix(".done").touch()
            break
        why = f"process ended with {running.returncode}"
        row = {"test": at.read_text(), "outcome": "failed", "why": why, "ours": True}
        with open(file, "a") as out:  # a crash, or a test blocked in native code
            print(json.dumps(row), file=out)
        at.unlink()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["test"]: row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--files", nargs="*", help="such as test_io.py; default: those about what mxlite has")
    parser.add_argument("--only", help="regular expression of test names")
    parser.add_argument("--wheel", default=os.environ.get("MXLITE_MXNET_PYTHON"), help="a Python with MXNet")
    parser.add_argument("--results", type=Path, help="folder where outcomes are kept")
    parser.add_argument("--sides", default="wheel,mxlite", help="which to run; the other's are read")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_file(given.checkout, given.run, given.results / f"{given.run}.jsonl", given.only)
        return 0
    folder = (given.checkout / "tests/python/unittest").resolve()
    names = [Path(f).stem for f in given.files or [f"test_{name}" for name in FILES]]
    names = [name for name in names if (folder / f"{name}.py").exists()]
    with tempfile.TemporaryDirectory() as scratch:
        root = str(Path(__file__).resolve().parent.parent)
        alias = Path(scratch, "alias")
        subprocess.run(
            [sys.executable, "-m", "mxlite", "alias", "--into", str(alias)],
            check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": root},
        )  # fmt: skip
        sides = {"wheel": (given.wheel, ""), "mxlite": (sys.executable, f"{alias}{os.pathsep}{root}")}
        counted = passed = 0
        for name in names:
            found = {}
            for side, (python, path) in sides.items():
                results = Path(given.results or scratch, side)
                results.mkdir(parents=True, exist_ok=True)
                if python and side in given.sides.split(","):
                    found[side] = _outcomes(python, path, folder, name, results, given.only)
                elif (results / f"{name}.jsonl").exists():
                    rows = [json.loads(line) for line in (results / f"{name}.jsonl").read_text().splitlines()]
                    found[side] = {row["test"]: row for row in rows}
            there, here = found.get("wheel", {}), found.get("mxlite", {})
            goals = [test for test, row in there.items() if row["outcome"] == "passed"]
            if given.only:
                goals = [test for test in goals if re.search(given.only, test)]
            failing = [test for test in goals if here.get(test, {}).get("outcome") != "passed"]
            counted, passed = counted + len(goals), passed + len(goals) - len(failing)
            print(f"{name}: {len(goals) - len(failing)} of {len(goals)} that the wheel passes", flush=True)
            for test in failing:
                row = here.get(test) or here.get("(import)") or {}
                print(f"    {test}: {row.get('outcome', 'not run')} {row.get('why', '')}", flush=True)
    print(f"mxlite passes {passed} of the {counted} tests that the wheel passes")
    return int(passed < counted)


if __name__ == "__main__":
    sys.exit(main())
