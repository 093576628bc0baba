"""scripts/device_check.py and benchmarks/gpu.py run from end to end on the emulated GPU."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu import opened
from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators.emulated_device import compiler

ROOT = Path(__file__).resolve().parents[2]
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


def test_of_a_long_finding_the_table_shows_what_was_wrong(sections, tmp_path):
    checks = importlib.import_module("device_sections.checks")
    result = importlib.import_module("device_sections.result")
    found = checks.Checks(tmp_path / "rows", tmp_path, True, True, 30.0, 0, 1)
    with found.check("c") as seen:
        seen["says"] = "word " * 1000
        raise ValueError("misaligned")
    made = result.Result(tmp_path, True, {})
    made.begin(sections.SECTIONS[0])
    made.add(rows_of(tmp_path / "rows")[0])
    made.write()
    (line,) = (x for x in (tmp_path / "device_check.md").read_text().splitlines() if x.startswith("| c |"))
    assert "ValueError: misaligned" in line and "word word" in line


@pytest.mark.parametrize(
    "name", ["programs", "ways", "generated", "memory", "budgets", "races", "exchange", "ranks"]
)
def test_a_section_finds_nothing_wrong(sections, name, tmp_path):
    rows = run(sections, name, tmp_path)
    assert rows and {r["verdict"] for r in rows} <= {"PASS", "SKIP"}, rows
    assert ("SKIP" in {r["verdict"] for r in rows}) == (name == "exchange")
    assert not opened()


def test_networks_of_a_real_gpu_can_be_planned(sections):
    nets = importlib.import_module("device_sections.nets")
    found = nets.networks(argparse.Namespace(small=False))
    assert list(found) == ["mlp", "residual", "resnet50", "transformer"]
    for net, shapes in found.values():
        arguments, outputs, _ = net.infer_shape(**shapes)
        assert outputs and all(arguments) and set(shapes) <= set(net.list_arguments())


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


WHOLE = ("bitwise_", "left_shift", "right_shift")


def test_rows_of_whole_numbers_and_of_nothing_but_roundings_are_no_failures(sections, tmp_path, monkeypatch):
    """Operators that take no float32 are not run in it, and what is 0 but for roundings is held against 1."""
    kernels = importlib.import_module("device_sections.kernels")
    few = {n: c for n, c in kernels.CASES.items() if n.startswith(WHOLE)}
    few |= {n: kernels.CASES[n] for n in kernels.NOTHING_BUT_ROUNDINGS}
    monkeypatch.setattr(kernels, "CASES", few)
    monkeypatch.setattr(kernels, "FEW", len(few))
    (row,) = run(sections, "kernels", tmp_path)
    assert row["verdict"] == "PASS" and row["found"]["rows passed"] == len(few) > 8, row


def test_behind_a_kernel_that_faults_a_new_process_goes_on(sections, tmp_path, monkeypatch):
    kernels = importlib.import_module("device_sections.kernels")
    checks = importlib.import_module("device_sections.checks")
    few = {n: c for n, c in kernels.CASES.items() if n in ("exp", "relu", "sqrt")}
    monkeypatch.setattr(kernels, "CASES", few)
    begun = []
    monkeypatch.setattr(checks.Checks, "begin_again", lambda self, after: begun.append(after))

    def faults(case, remote, least):
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


def test_behind_a_way_that_faults_a_new_process_goes_on(sections, tmp_path, monkeypatch):
    """Each case is looked at once, by one process or the next."""
    ways = importlib.import_module("device_sections.ways")
    checks = importlib.import_module("device_sections.checks")
    for name in ("convolution", "multiplication"):
        monkeypatch.setattr(ways, name, lambda *_: None)
    whole = [r["check"] for r in run(sections, "ways", tmp_path)]
    (tmp_path / "rows").unlink()
    begun = []

    class Over(Exception):
        """This process is another one from here on."""

    def begin_again(self, after):
        begun.append(after)
        raise Over

    def faults(device, kind, *rest):
        if kind == ways.DATA and not begun:
            device.fault = DriverError("an illegal memory access", is_lasting=True)
            raise device.fault

    monkeypatch.setattr(checks.Checks, "begin_again", begin_again)
    monkeypatch.setattr(ways, "convolution", faults)
    with pytest.raises(Over):
        run(sections, "ways", tmp_path)
    rows = rows_of(tmp_path / "rows")
    assert [r["verdict"] for r in rows] == ["PASS", "FAIL"] and begun == [rows[1]["check"]]
    found = checks.Checks(tmp_path / "rows", tmp_path, True, True, 30.0, 0, 1, begun[0])
    with found.device():
        ways.run(found)
    rows = rows_of(tmp_path / "rows")
    assert (
        len(whole) > 4
        and [r["check"] for r in rows] == whole
        and {r["verdict"] for r in rows[2:]} == {"PASS"}
    )


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


PROGRAM = """
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
rows, name = (sys.argv[sys.argv.index(a) + 1] for a in ("--rows", "--section"))
with open(rows, "w") as file:
    for x in range(3):
        file.write(json.dumps({"check": str(x), "verdict": "PASS", "found": {}, "seconds": 0}) + chr(10))
    if name == "babbles":
        file.write("{" + chr(10) + '{"check": 1}' + chr(10) + "[]" + chr(10) + '{"check": "cut')
if name == "hangs":
    def a_kernel_that_never_ends():
        print("last words", flush=True)
        os.fork() or time.sleep(100)
        time.sleep(100)
    a_kernel_that_never_ends()
if name == "raises": raise ValueError("in the section")
if name == "exits": sys.exit("enough")
if name == "dies": os.kill(os.getpid(), signal.SIGKILL)
if name == "forgets": os.unlink(rows)
"""


def test_whatever_goes_wrong_json_and_table_are_whole_and_the_time_is_kept(sections, tmp_path, monkeypatch):
    """Sections that raise, exit, die, hang or babble, one that cannot be started, errors of the script."""
    device_check = importlib.import_module("device_check")
    part = importlib.import_module("device_sections.part")
    program = tmp_path / "child.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(part, "PROGRAM", program)
    start, real = time.monotonic(), part.Part.__init__

    def cannot(self, section, *more):
        if section.name == "unstartable":
            raise OSError("no process can be made")
        real(self, section, *more)

    monkeypatch.setattr(part.Part, "__init__", cannot)
    names = ["raises", "exits", "hangs", "babbles", "unstartable", "dies", "forgets", "good"]
    made = [sections.Section(n, n, "about", 2 if n == "hangs" else 60, 1, 2) for n in names]
    args = argparse.Namespace(out=tmp_path, emulated=False, small=True, minutes=10.0)
    monkeypatch.setattr(device_check, "machine", lambda: {"machine": "m"})
    assert device_check.check(made, args) == 1
    assert time.monotonic() - start < 90  # who hangs would take 100 s
    found = json.loads((tmp_path / "device_check.json").read_text())
    rows = {s["section"]: s["rows"] for s in found["sections"]}
    assert list(rows) == names
    failed = {n: [r["found"] for r in rows[n] if r["verdict"] == "FAIL"] for n in names}
    assert [len(failed[n]) for n in names] == [2, 2, 2, 6, 1, 2, 0, 0], failed
    assert "ended with 1: ValueError: in the section" in failed["raises"][0]
    assert "enough" in failed["exits"][0] and "ended with -9" in failed["dies"][0]
    assert "stopped after 2 s: last words" in failed["hangs"][0]
    assert "a_kernel_that_never_ends" in failed["hangs"][0]  # where it was
    assert "no process can be made" in failed["unstartable"][0]
    assert all(len(rows[n]) == 6 + len(failed[n]) for n in names if n not in ("unstartable", "forgets"))
    table = (tmp_path / "device_check.md").read_text()
    assert all(f"## {n} (" in table for n in names)
    # Who carries the results home may take few files, and none out of folders.
    left = {p.name for p in tmp_path.iterdir()} - {program.name}
    assert left == {"device_check.json", "device_check.md", "device_check.log"}
    log = (tmp_path / "device_check.log").read_text()
    assert "==== hangs-0\nlast words" in log and "in the section" in log


def test_the_benchmark_has_time_whatever_sections_before_it_take(sections, tmp_path, monkeypatch):
    device_check = importlib.import_module("device_check")
    monkeypatch.setattr(device_check, "machine", lambda: {})
    clock = [0.0]
    monkeypatch.setattr(device_check.time, "monotonic", lambda: clock[0])
    given = {}

    def rows_of(section, limit, args):
        given[section.name] = limit
        clock[0] += limit  # to the last second
        return iter(())

    monkeypatch.setattr(device_check, "rows_of", rows_of)
    args = argparse.Namespace(out=tmp_path, emulated=False, small=False, minutes=device_check.MINUTES)
    device_check.check(list(sections.SECTIONS), args)
    assert given["benchmark"] > 140 and given["programs"] == 100
    assert clock[0] <= device_check.MINUTES * 60 + 1


def test_who_is_stopped_keeps_what_he_has(sections, tmp_path, monkeypatch):
    device_check = importlib.import_module("device_check")
    monkeypatch.setattr(device_check, "machine", lambda: {})

    def rows_of(section, limit, args):
        yield {"check": "first", "verdict": "PASS", "found": "x", "seconds": 0.0}
        device_check._stopped(15, None)

    monkeypatch.setattr(device_check, "rows_of", rows_of)
    args = argparse.Namespace(out=tmp_path, emulated=True, small=True, minutes=1.0)
    made = [sections.Section(n, n, "about", 5) for n in ("a", "b")]
    assert device_check.check(made, args) == 1
    (only,) = json.loads((tmp_path / "device_check.json").read_text())["sections"]
    assert [r["verdict"] for r in only["rows"]] == ["PASS", "FAIL"] and "15" in only["rows"][1]["found"]


def test_a_disk_that_is_full_stops_nothing(sections, tmp_path, monkeypatch, capsys):
    result = importlib.import_module("device_sections.result")
    monkeypatch.setattr(result.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("No space left")))
    made = result.Result(tmp_path, True, {})
    made.begin(sections.SECTIONS[0])
    made.add({"check": "c", "verdict": "PASS", "found": "x", "seconds": 0.0})
    made.write()
    assert "PASS  about: c: x" in (out := capsys.readouterr().out) and "No space left" in out


def test_a_program_that_does_not_end_is_left_behind(sections, tmp_path, monkeypatch):
    """Nor does what it has started, as long as we wait: both end when a file is gone."""
    asking = importlib.import_module("device_sections.asking")
    running, stay = tmp_path / "running", tmp_path / "stay"
    stay.touch()
    wait = f"import os, time\nwhile os.path.exists({str(stay)!r}): time.sleep(0.05)"
    code = (
        f"import pathlib, subprocess, sys; subprocess.Popen([sys.executable, '-c', {wait!r}])\n"
        f"print('said', flush=True); pathlib.Path({str(running)!r}).touch()\n{wait}"
    )

    class Begun(subprocess.Popen):
        """Its time begins when it runs, however busy the machine is."""

        def communicate(self, *args, **how):
            while not running.exists():
                time.sleep(0.01)
            return super().communicate(*args, **how)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(asking, "GOING", 0.3)
            patch.setattr(asking.subprocess, "Popen", Begun)
            found = asking.ask([sys.executable, "-c", code], 0.3)
    finally:
        stay.unlink()
    assert found.code is None and "said" in found.out and "did not end in time" in found.end
    assert asking.ask([sys.executable, "-c", "print(7)"], 30) == asking.Answer(0, "7\n", "")


def test_the_references_of_the_ways_are_the_cpus(sections):
    """Every direction of each convolution that a GPU is asked for, smaller."""
    ways = importlib.import_module("device_sections.ways")
    rng = np.random.default_rng(0)
    for n, c, size, f, kernel, stride, pad, dilate, groups in ways.CONVOLUTIONS.values():
        few = max(1, groups // 8)
        c, f, groups = c // 8 or c, f // 8, max(1, groups // few // 2)
        c, f = -(-c // groups) * groups, -(-f // groups) * groups
        size = [min(s, 13) for s in size]
        g = ways.geometry("float64", n, c, size, f, kernel, stride, pad, dilate, groups)
        data, weight = rng.standard_normal((n, c, *size)), rng.standard_normal((f, c // groups, *kernel))
        d_out = rng.standard_normal((n, f, *g.out))
        x, w = mx.nd.array(data, dtype="float64"), mx.nd.array(weight, dtype="float64")
        x.attach_grad(), w.attach_grad()
        rank = len(kernel)
        with mx.autograd.record():
            out = mx.nd.Convolution(
                x, w, kernel=kernel, num_filter=f, stride=(stride,) * rank, pad=(pad,) * rank,
                dilate=(dilate,) * rank, num_group=groups, no_bias=True,
            )  # fmt: skip
        out.backward(mx.nd.array(d_out, dtype="float64"))
        for kind, a, b, want in (
            (ways.OUT, data, weight, out),
            (ways.DATA, d_out, weight, x.grad),
            (ways.WEIGHT, data, d_out, w.grad),
        ):
            np.testing.assert_allclose(ways.reference(kind, g, a, b), want.asnumpy(), rtol=1e-9, atol=1e-9)


def test_a_way_that_is_wrong_or_fails_is_named_and_hides_no_other(sections):
    ways = importlib.import_module("device_sections.ways")
    found = {}
    each = ways.Each("float32", found)
    with each.way("fails"):
        raise ValueError("no")
    with each.way("wrong"):
        each.compare("wrong", np.array([1.0, 2.0]), np.array([1.0, 2.1]))
    with each.way("right"):
        each.compare("right", np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    with pytest.raises(AssertionError, match="failed: fails, wrong"):
        each.end()
    assert found["fails"] == "ValueError: no" and "error" in found["wrong"] and found["right"] == "0.0e+00"


def test_the_command_runs_its_sections_in_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "device_check.py"), "--emulated", "--out", str(tmp_path), "--only",
         "faults"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (section,) = json.loads((tmp_path / "device_check.json").read_text())["sections"]
    assert len(section["rows"]) == 5 and "illegal" in section["rows"][0]["found"]["it said"]


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


def test_where_nothing_can_be_kept_its_processes_share_a_folder(sections, tmp_path, monkeypatch, capsys):
    script = importlib.import_module("device_check")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "cache"))
    assert script.no_cache() is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "is no folder" in script.no_cache()
    monkeypatch.setenv("MXLITE_CACHE_DIR", "off")
    assert "no cache folder" in script.no_cache()
    seen = []
    monkeypatch.setattr(script, "no_gpu", lambda: None)
    monkeypatch.setattr(script, "check", lambda *_: seen.append(os.environ["MXLITE_CACHE_DIR"]) or 0)
    monkeypatch.setattr(sys, "argv", ["device_check.py", "--out", str(tmp_path)])
    assert script.main() == 0 and Path(seen[0]).name == "cache" and not Path(seen[0]).exists()
    assert "kept for this run alone" in capsys.readouterr().out


def test_wheels_that_come_along_are_there_for_its_processes(sections, tmp_path, monkeypatch, capsys):
    """One that is broken is named, and hides no other."""
    script, wheels, site = importlib.import_module("device_check"), tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    site.mkdir()
    (wheels / "broken-1.0-py3-none-any.whl").write_bytes(b"PK no archive")
    with zipfile.ZipFile(wheels / "brought-1.0-py3-none-any.whl", "w") as file:
        file.writestr("brought/__init__.py", "there = 7\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script.bring(wheels, site)
    said = capsys.readouterr().err
    assert "broken-1.0-py3-none-any.whl cannot be unpacked" in said
    assert "brought along: brought-1.0-py3-none-any.whl" in said
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(site), str(tmp_path)])
    command = [sys.executable, "-c", "import brought; print(brought.there)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "7\n"


def test_the_largest_batch_is_found_to_a_sixteenth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bisected = importlib.import_module("gpu_columns.search").bisected
    for largest in (0, 1, 2, 3, 17, 100, 1000, 5000):
        found = bisected(lambda n: n <= largest, 4096)  # noqa: B023
        assert min(largest, 4096) * 15 / 16 - 1 <= found <= min(largest, 4096)
