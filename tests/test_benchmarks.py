"""The benchmark of training steps runs from end to end, on a small network, and finds what is wrong.

Its modules live in a folder of their own and are run as a user runs them, in another process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"


def run(*arguments, folder):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, BENCHMARKS))),
        "MXLITE_MXNET_PYTHON": "",
    }
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def section(report, title):
    """The rows of the table under a heading, cells stripped, without the rule."""
    body = re.split(r"^#+ ", report.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in body.splitlines() if "|" in line]
    return [rows[0], *rows[2:]]


def test_a_step_of_lenet_is_measured(tmp_path):
    quick = ("--nets", "lenet", "--rounds", 2, "--seconds", 0.001, "--threads", 1)
    out = run(
        BENCHMARKS / "cpu.py", *quick, "--peers", "mxlite-bf16,numpy", "--output", tmp_path, folder=tmp_path
    )
    (written,) = tmp_path.glob("*-cpu.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    assert str(tmp_path) not in out and str(ROOT) not in out
    assert float(section(out, "float32")[1][1].split()[0]) > 0
    assert float(section(out, "bfloat16")[1][1].split()[0]) > 0
    assert float(section(out, "Without oneDNN and generated code")[1][1]) > 0
    losses = {row[1]: row for row in section(out, "Losses")[1:]}
    assert float(losses["numpy only"][3]) < 1e-4 and float(losses["mxlite bf16"][3]) < 5e-2
    head, row = section(out, "Memory, float32")
    assert 0 < float(row[head.index("planned")]) == float(row[head.index("measured")])
    profile = section(out, "LeNet B64, mxlite")
    assert any("onvolution" in row[0] for row in profile)
    assert 99 < sum(float(row[3].split()[0]) for row in profile[1:]) < 101


@pytest.mark.torch
def test_pytorch_has_the_same_losses_and_its_peak_is_known(tmp_path):
    pytest.importorskip("torch")
    quick = ("--nets", "lenet", "--rounds", 1, "--seconds", 0.001, "--threads", 1, "--no-profile")
    out = run(BENCHMARKS / "cpu.py", *quick, "--peers", "eager", folder=tmp_path)
    losses = {row[1]: row for row in section(out, "Losses")[1:]}
    assert float(losses["mxlite"][3]) < 1e-5
    parameters = 431_080 * 4
    head, row = section(out, "Memory, float32")
    eager = float(row[head.index("PyTorch eager")]) * 2**20
    assert 3 * parameters < eager < 20 * parameters  # weights, gradients, momentum; then activations
    assert re.search(r"\d \(\d", section(out, "float32")[1][3])


WRONG = """
from harness import Spread
from networks.suite import by_name
from peers import tables
from peers.column import chosen
from peers.contest import compare, Entry
from peers.targets import targets

ours, eager = chosen(["eager"])
entries = {"mxlite": Entry(ours, losses=[2.0, %s]), "eager": Entry(eager, losses=[2.0, 1.5])}
compare(entries)
print(entries["mxlite"].note or "right", entries["eager"].note or "right", sep="\\n")
net = by_name(["lenet"])[0]
if not entries["mxlite"].note:
    entries["mxlite"].seconds = Spread((0.5, 0.25, 1.0))
entries["eager"].seconds = Spread((1.0, 1.0, 1.0))
print(tables.times([(net, entries)], "fp32"))
print([t.row() for t in targets([(net, entries)], None, None)][0])
"""


@pytest.mark.parametrize("last", ["1.5003", "float('nan')"])
def test_losses_that_differ_are_reported_and_not_timed(last, tmp_path):
    ours, eager, table = run("-c", WRONG % last, folder=tmp_path).split("\n", 2)
    assert ours.startswith("wrong: losses 2 ") and eager == "right"
    assert re.search(r"\| +wrong \|", table) and "not measured" in table


def test_equal_losses_are_timed_and_the_ratio_is_taken_round_by_round(tmp_path):
    ours, _, table = run("-c", WRONG % "1.5001", folder=tmp_path).split("\n", 2)
    assert ours == "right"
    assert "2.00 (1.00-4.00)" in table and "'2.00', 'yes'" in table


LATE = """
import sys, time
sys.path.insert(0, {folder!r})
from harness.worker import serve
serve(lambda do, seconds: time.sleep(seconds))
"""
ASKS = """
import sys
from harness import Worker
with Worker(sys.executable, sys.argv[1]) as worker:
    print(worker.ask(60, do="wait", seconds=0))
    try:
        worker.ask(0.5, do="wait", seconds=60)
    except RuntimeError as error:
        print(error)
"""


def test_a_process_that_takes_too_long_is_ended(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE.format(folder=str(BENCHMARKS)), encoding="utf-8")
    assert run("-c", ASKS, script, folder=tmp_path) == "None\nIt took longer than 0.5 s.\n"
