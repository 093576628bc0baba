"""OpenMP's threads sleep soon when they wait; nobody else sees how libgomp was told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mxlite.backends.cpu.runtime.spins import SPINS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libgomp is Linux's")

# libgomp says its settings as it is loaded, where OMP_DISPLAY_ENV asks it to.
_LOAD = """
import ctypes, os, subprocess, sys
sys.stderr.flush()
from mxlite.backends.cpu.compiled.calls import team
from mxlite.backends.cpu.onednn import library
before = dict(os.environ)
{first}
{second}
assert dict(os.environ) == before
ctypes.pythonapi.getenv.restype = ctypes.c_char_p
print(ctypes.pythonapi.getenv(b"GOMP_SPINCOUNT"))
subprocess.run([sys.executable, "-S", "-c", "import os; print(os.environ.get('GOMP_SPINCOUNT'))"])
"""
_ONES = ("library()", "team.openmp()")


def _loaded(first: str, second: str, **settings: str) -> tuple[str, list[str]]:
    """What libgomp said when it was loaded, and what the process and a child of it had as the variable."""
    left = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", _LOAD.format(first=first, second=second)],
        env={**left, "OMP_DISPLAY_ENV": "VERBOSE", **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    if not said:
        pytest.skip("there is no libgomp here")
    assert len(said) == 1
    return said[0].partition("=")[2].strip().strip("'"), done.stdout.split()


@pytest.mark.parametrize(("first", "second"), [_ONES, _ONES[::-1]])
def test_threads_sleep_soon_and_no_setting_is_left_behind(first, second):
    assert _loaded(first, second) == (str(SPINS), ["None", "None"])


@pytest.mark.parametrize("setting", [{"GOMP_SPINCOUNT": "77"}, {"OMP_WAIT_POLICY": "passive"}])
def test_what_the_user_says_holds(setting):
    spins = setting.get("GOMP_SPINCOUNT")
    found = [repr(spins.encode()), spins] if spins else ["None", "None"]
    assert _loaded(*_ONES, **setting) == (spins or "0", found)


def test_one_that_is_there_already_stays_as_it_is():
    found, _ = _loaded('ctypes.CDLL("libgomp.so.1")', "library(); team.openmp()")
    assert int(found) > SPINS
