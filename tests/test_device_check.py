"""scripts/device_check.py and benchmarks/gpu.py run from end to end on the emulated GPU."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_device import compiler

from mxlite.backends.gpu import opened
from mxlite.backends.gpu.driver import DriverError

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture
def sections(monkeypatch):
    """The package of the sections."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import device_sections

    return device_sections


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(sections, name, folder):
    """The rows of one section, in this process."""
    checks = importlib.import_module("device_sections.checks")
    section = next(s for s in sections.SECTIONS if s.name == name)
    module = importlib.import_module(f"device_sections.{section.module}")
    found = checks.Checks(folder / "rows", folder, True, True, 30.0, 0, 1)
    with found.device():
        module.run(found)
    return rows_of(folder / "rows")


@pytest.mark.parametrize("name", ["programs", "memory", "budgets", "races", "exchange"])
def test_a_section_finds_nothing_wrong(sections, name, tmp_path):
    rows = run(sections, name, tmp_path)
    assert rows and {r["verdict"] for r in rows} <= {"PASS", "SKIP"}, rows
    assert ("SKIP" in {r["verdict"] for r in rows}) == (name == "exchange")
    assert not opened()


def test_a_kernel_that_is_wrong_is_found(sections, tmp_path, monkeypatch):
    """The rules and numbers of the table's rows; then with a kernel whose first number is a little off."""
    kernels = importlib.import_module("device_sections.kernels")
    monkeypatch.setattr(kernels, "CASES", {n: c for n, c in kernels.CASES.items() if n in ("exp", "relu")})
    rows = run(sections, "kernels", tmp_path)
    assert [r["verdict"] for r in rows] == ["PASS"] and rows[0]["found"]["rows passed"] == 2
    (tmp_path / "rows").unlink()
    real = kernels.Remote._call

    def wrong(self, kernel, a, inputs, outputs):
        real(self, kernel, a, inputs, outputs)
        for x in outputs.values():
            if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size:
                x.reshape(-1)[0] += 1e-3

    monkeypatch.setattr(kernels.Remote, "_call", wrong)
    rows = run(sections, "kernels", tmp_path)
    assert [r["verdict"] for r in rows] == ["FAIL"] * 3 and rows[2]["found"]["failed"] == 2


def test_behind_a_kernel_that_faults_a_new_process_goes_on(sections, tmp_path, monkeypatch):
    kernels = importlib.import_module("device_sections.kernels")
    checks = importlib.import_module("device_sections.checks")
    few = {n: c for n, c in kernels.CASES.items() if n in ("exp", "relu", "sqrt")}
    monkeypatch.setattr(kernels, "CASES", few)
    begun = []
    monkeypatch.setattr(checks.Checks, "begin_again", lambda self, after: begun.append(after))

    def faults(case, remote):
        remote.there.device.fault = DriverError("an illegal memory access", is_lasting=True)
        raise remote.there.device.fault

    monkeypatch.setattr(kernels, "row", faults)
    rows = run(sections, "kernels", tmp_path)
    assert [r["verdict"] for r in rows] == ["FAIL", "FAIL"] and begun == [rows[0]["check"]]
    assert rows[1]["found"]["not reached"] == 2
    found = checks.Checks(tmp_path / "more", tmp_path, True, True, 30.0, 0, 1, begun[0])
    with found.device():
        kernels.run(found)
    rows = rows_of(tmp_path / "more")
    assert rows[1]["found"]["of"] == 2 and rows[0]["check"] != begun[0]


def test_a_section_that_hangs_or_crashes_costs_itself_alone(sections, tmp_path, monkeypatch):
    device_check = importlib.import_module("device_check")
    part = importlib.import_module("device_sections.part")

    program = tmp_path / "child.py"
    program.write_text(
        "import json, os, sys, time\n"
        "at = sys.argv.index('--section'); rows = sys.argv[sys.argv.index('--rows') + 1]\n"
        "row = {'check': 'first', 'verdict': 'PASS', 'found': 'a|b', 'seconds': 0}\n"
        "open(rows, 'w').write(json.dumps(row) + chr(10))\n"
        "name = sys.argv[at + 1]\n"
        "if name == 'hangs': time.sleep(100)\n"
        "if name == 'crashes': os.abort()\n"
    )
    monkeypatch.setattr(part, "PROGRAM", program)
    made = [sections.Section(n, n, "about", s, 1) for n, s in (("hangs", 2), ("crashes", 30), ("good", 30))]
    args = argparse.Namespace(out=tmp_path, emulated=True, small=True, minutes=5.0)
    assert device_check.check(made, args) == 1
    found = json.loads((tmp_path / "device_check.json").read_text())
    assert [[r["verdict"] for r in s["rows"]] for s in found["sections"]] == [
        ["PASS", "FAIL"],
        ["PASS", "FAIL"],
        ["PASS"],
    ]
    assert "ended with stopped after 2 s" in found["sections"][0]["rows"][1]["found"]
    table = (tmp_path / "device_check.md").read_text()
    assert "| first | PASS | a/b |" in table
    args.minutes = 0.05
    assert device_check.check([sections.Section("late", "late", "about", 30, least=20)], args) == 0
    assert "20 needed" in (tmp_path / "device_check.md").read_text()


def test_the_command_runs_its_sections_in_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "device_check.py"), "--emulated", "--out", str(tmp_path), "--only",
         "faults"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (section,) = json.loads((tmp_path / "device_check.json").read_text())["sections"]
    assert len(section["rows"]) == 4 and "illegal" in section["rows"][0]["found"]["it said"]


def test_the_benchmark_measures_a_small_network(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--emulated", "--nets", "mlp"]
    command += ["--columns", "mxlite-fp32,jit-fp32", "--seconds", "0.001", "--output", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.glob("*-gpu.md")
    text = written.read_text()
    assert text.strip() == done.stdout.strip()
    assert "Nothing here says anything of a GPU" in text
    assert text.count("| MLP 12-16-10 B8") >= 3
    absent = "| MLP 12-16-10 B8 | JAX jit, fp32 | JAX is not installed |"
    assert (absent in text) == (importlib.util.find_spec("jax") is None), text


def test_without_a_gpu_it_says_why(sections, capsys, monkeypatch, tmp_path):
    device_check = importlib.import_module("device_check")
    monkeypatch.setattr(device_check, "no_gpu", lambda: "there is no driver.")
    monkeypatch.setattr(sys, "argv", ["device_check.py", "--out", str(tmp_path)])
    assert device_check.main() == 2
    assert capsys.readouterr().err == "No GPU can be used: there is no driver.\n" and not list(
        tmp_path.iterdir()
    )


def test_the_largest_batch_is_found_to_a_sixteenth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bisected = importlib.import_module("gpu_columns.search").bisected
    for largest in (0, 1, 2, 3, 17, 100, 1000, 5000):
        found = bisected(lambda n: n <= largest, 4096)  # noqa: B023
        assert min(largest, 4096) * 15 / 16 - 1 <= found <= min(largest, 4096)
