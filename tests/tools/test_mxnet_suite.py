"""scripts/mxnet_suite.py, on a small checkout and a stand-in for the wheel."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import time
import mxnet as mx
from nose.tools import raises

OURS = hasattr(mx, "sym")

def test_both_pass():
    mx.nd.waitall()

@raises(ZeroDivisionError)
def test_an_expected_error():
    1 / 0

def test_only_the_wheel_passes():
    assert not OURS

def test_the_wheel_fails():
    assert OURS

def test_the_process_ends():
    if OURS:
        import os
        os._exit(3)

def test_out_of_time():
    if OURS and not FAST:
        time.sleep(60)

def test_left_out():
    mx.np.nothing
"""
WHEEL = """
__version__ = "1.9.1"
class random:
    seed = print
class nd:
    waitall = print
"""


@pytest.fixture
def suite(tmp_path):
    """A run of the script in which a test has a second; it returns the page and what is printed."""
    checkout, wheel = tmp_path / "checkout", tmp_path / "wheel"
    tests = checkout / "tests/python/unittest/test_attr.py"
    (wheel / "mxnet").mkdir(parents=True)
    tests.parent.mkdir(parents=True)
    (checkout / "python/mxnet").mkdir(parents=True)
    (checkout / "python/mxnet/libinfo.py").write_text('__version__ = "1.9.1"\n')
    (wheel / "mxnet/__init__.py").write_text(WHEEL)
    python = wheel / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{wheel}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)

    def run(fast):
        tests.write_text(f"FAST = {fast}\n{TESTS}")
        out = subprocess.run(
            [sys.executable, ROOT / "scripts/mxnet_suite.py", checkout, "--wheel", python, "--limit", "1"]
            + ["--results", tmp_path / "results", "--output", tmp_path],
            text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert out.returncode == 1, out.stderr
        return next(tmp_path.glob("*-mxnet-suites.md")).read_text(), out.stdout

    return run


def cells(page, *first):
    """The cells of the rows that begin with `first`."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    return [row for row in rows if row[: len(first)] == list(first)]


def test_a_test_counts_if_it_is_ours_and_the_wheel_passes_it(suite):
    page, said = suite(fast=False)
    assert "mxnet 1.9.1" in page
    assert cells(page, "1.9.1", "6") == [["1.9.1", "6", "5", "2", "40.0%"]]
    assert [row[2:4] for row in cells(page, "1.9.1", "test_attr.py")] == [
        ["`test_only_the_wheel_passes`", "failed"],
        ["`test_the_process_ends`", "failed"],
        ["`test_out_of_time`", "late"],
    ]
    assert "test_only_the_wheel_passes: failed test_attr.py:17 AssertionError" in said
    assert "process ended with 3" in said
    page, _ = suite(fast=True)  # only what ran out of time runs again
    assert cells(page, "1.9.1", "6") == [["1.9.1", "6", "5", "3", "60.0%"]]


@pytest.fixture
def table(monkeypatch):
    """The module that makes the page."""
    for folder in ("scripts", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("mxnet_suites.table")


def test_a_file_that_has_run_on_one_side_is_named_and_not_counted(table):
    passed = {"test_a": {"outcome": "passed"}}
    page = table.page(
        {"1.0.0": [table.File("test_io", passed, passed), table.File("test_viz", passed, {})]}, {}
    )
    assert "in no number here: test_viz.py of 1.0.0." in page
    assert cells(page, "1.0.0") == [["1.0.0", "1", "1", "1", "100.0%"]]


def test_the_guide_names_what_fails_and_nothing_else(table):
    page = max((ROOT / "benchmarks/results").glob("*-mxnet-suites.md")).read_text()
    rows = [row for version in ("1.9.1", "1.0.0") for row in cells(page, version) if row[1].endswith(".py")]
    guide = (ROOT / "docs/guide.md").read_text()
    assert {row[2].strip("`") for row in rows} == set(table.reasons(guide))
