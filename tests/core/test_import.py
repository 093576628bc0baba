"""`import mxlite` leaves the process as it was: nothing but modules, and no more of these than it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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
