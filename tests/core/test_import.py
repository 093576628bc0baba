"""`import mxlite` leaves the process as it was: nothing but modules, and no more of these than it needs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

import mxlite

# What is there before and after; numpy, the one dependency that must be, is there before.
_LOOK = """
import json, os, sys, atexit, ctypes, gc, locale, logging, random, signal, threading, warnings
import numpy as np

def look():
    ctypes.pythonapi.getenv.restype = ctypes.c_char_p
    signals = {str(s): repr(signal.getsignal(s)) for s in signal.valid_signals()}
    random_state = random.getstate(), tuple(map(str, np.random.get_state()))
    threads = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0
    return dict(
        environment=dict(os.environ),
        of_children=open("/proc/self/environ").read() if os.path.exists("/proc/self/environ") else "",
        handlers=[repr(h) for h in logging.getLogger().handlers],
        level=logging.getLogger().level,
        signals=signals,
        python_threads=[t.name for t in threading.enumerate()],
        threads=threads,
        random=hash(random_state),
        errors={k: v for k, v in np.geterr().items()},
        printing=repr(np.get_printoptions()),
        filters=[repr(f) for f in warnings.filters],
        interval=sys.getswitchinterval(),
        recursion=sys.getrecursionlimit(),
        collects=gc.isenabled(),
        thresholds=gc.get_threshold(),
        hooks=[repr(sys.excepthook), repr(sys.displayhook), repr(threading.excepthook)],
        path=sys.path,
        folder=os.getcwd(),
        files=sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else [],
        mask=os.umask(os.umask(0o77)),
    )

look()
before, modules = look(), set(sys.modules)
import mxlite
after = look()
changed = {k: (before[k], after[k]) for k in before if before[k] != after[k]}
print(json.dumps(dict(changed=changed, modules=sorted(set(sys.modules) - modules))))
"""

LATE = {
    "torch", "llvmlite", "cupy", "cupy_backends", "matplotlib", "PIL", "scipy", "onnx", "pandas", "graphviz",
    "multiprocessing.pool", "concurrent.futures.process", "asyncio", "unittest", "pytest", "hypothesis",
    "http", "urllib.request", "ssl", "sqlite3", "xml", "email", "distutils", "setuptools", "pkg_resources",
    "importlib.metadata", "cProfile", "pdb", "doctest", "tkinter",
    "mxlite.backends.cpu.backend", "mxlite.cli", "mxlite.executor", "mxlite.formats", "mxlite.io",
    "mxlite.memplan", "mxlite.models", "mxlite.module", "mxlite.profiler", "mxlite.test_utils",
    "mxlite.tools",
}  # fmt: skip
"""Modules that only those need who use what they are for."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MXLITE")}
    environment["MXLITE_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache") / "there")
    done = subprocess.run(
        [sys.executable, "-c", _LOOK], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert not os.path.exists(environment["MXLITE_CACHE_DIR"])
    return json.loads(done.stdout)


def test_an_import_changes_nothing_in_the_process(seen):
    assert seen["changed"] == {}


def test_an_import_brings_no_module_that_only_some_need(seen):
    assert LATE.intersection(seen["modules"]) == set()


def test_an_import_loads_no_library_of_kernels():
    script = "import mxlite; print(open('/proc/self/maps').read())"
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("the system does not say what is loaded")
    maps = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not [name for name in ("libdnnl", "libgomp", "libllvmlite", "libcuda") if name in maps]


def test_an_import_makes_no_gradient_operators_and_few_dataclasses():
    """Each is a class, or a few functions, that a program seldom needs: `Op.grad_op`, `core/record.py`."""
    script = """
import dataclasses
whole, made = dataclasses._process_class, []
dataclasses._process_class = lambda kind, *a, **k: made.append(kind.__qualname__) or whole(kind, *a, **k)
from mxlite import ops
print(*[op.__name__ for op in ops.ALL if isinstance(vars(op)["grad_op"], type)])
print(*made)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    gradients, dataclasses = map(str.split, done.stdout.splitlines())
    assert gradients == [] and 0 < len(dataclasses) <= 20, dataclasses


def _for_type_checkers():
    """What the block of `mxlite/__init__.py` for type checkers says: name -> its place below mxlite."""
    with open(mxlite.__file__, encoding="utf-8") as file:
        blocks = [node for node in ast.parse(file.read()).body if isinstance(node, ast.If)]
    places = {}
    for node in blocks[0].body:
        if isinstance(node, ast.ImportFrom):
            below = f"{node.module}." if node.module else ""
            places |= {n.asname: below + n.name for n in node.names}
        else:
            places[node.targets[0].id] = places[node.value.id]
    return places


def test_type_checkers_are_told_what_python_loads_later():
    assert _for_type_checkers() == {n: p.replace(":", ".") for n, p in mxlite._LATER.items()}


NAMES = """
import importlib, sys
from mxlite.recordio import pack
import mxlite.contrib.text.embedding, mxlite.image.image, mxlite.image.detection, mxlite.image.augmenter
import mxlite.io.io, mxlite.optimizer.optimizer, mxlite.rnn.rnn_cell, mxlite.ndarray.op, mxlite.symbol.op
assert mx.contrib.text is mx.io.text is sys.modules["mxlite.contrib.text"]
assert sys.modules["mxlite.contrib.text.embedding"] is mx.io.text.embedding
assert sys.modules["mxlite.image.detection"] is sys.modules["mxlite.image.image"] is mx.image
assert mx.image.detection is mx.image.det is not mx.image
assert sys.modules["mxlite.optimizer.optimizer"] is mx.optimizer is mx.module.optim.optimizer
assert sys.modules["mxlite.rnn.rnn_cell"] is mx.rnn and sys.modules["mxlite.symbol.op"] is mx.sym
for name in ("image", "module", "optimizer", "random"):
    assert importlib.import_module("mxlite." + name) is getattr(mx, name)
    assert getattr(mx, name).__spec__.name == getattr(mx, name).__name__
files = [m.__file__ for m in {id(m): m for m in sys.modules.values() if hasattr(m, "__file__")}.values()]
twice = [f for f in files if f and "mxlite" in f and files.count(f) > 1]
assert not twice, twice
try:
    import mxlite.image.nowhere
except ModuleNotFoundError as error:
    assert error.name == "mxlite.image.nowhere", error.name
"""


@pytest.mark.parametrize("used", ["mx", "mx.contrib, mx.image, mx.rnn, mx.opt"])
def test_modules_are_loaded_once_whatever_name_they_are_imported_by(used):
    script = f"import mxlite as mx; {used}\n{NAMES}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_loaded_later_is_listed_and_comes_with_a_star():
    script = "import mxlite; print(*dir(mxlite)); from mxlite import *; print(*globals())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    listed, given = map(set, map(str.split, done.stdout.splitlines()))
    assert listed >= set(mxlite._LATER) <= given
