"""The benchmark of single operators runs from end to end, and finds results that differ.

Its modules live in benchmarks/ and are run in another process, as a user runs them.
"""

from __future__ import annotations

import pytest

from tests.benchmarks.test_benchmarks import BENCHMARKS, run, section

NOTES = """
import numpy as np
from harness import Spread
from kernels import Measured, note, report
from peers.kernel_peer import digest
from peers.operators import ROWS

def found(*arrays, is_view=False):
    return {"digests": [digest(x) for x in arrays], "is_view": is_view}

x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
print(note(found(x), found(x * (1 + 1e-5))) or "right")
print(note(found(x), found(x, is_view=True)))
for other in (x * 1.01, x[::-1], x + np.nan):
    print(note(found(x), found(other)))
print(note(found(x + np.nan), found(x)))
print(note(found(x, x), found(x)))
one, two, four = (Spread((t, t)) for t in (1.0, 2.0, 4.0))
row = ROWS[0]
print(report([
    Measured(row, "forward", "fast", one, four),
    Measured(row, "forward", "slow", two, one),
    Measured(row, "gradient", "other", note="wrong: product 1"),
]))
"""


def test_results_that_differ_are_not_timed(tmp_path):
    """Also those that have the same elements in other places, and those that are no numbers."""
    out = run("-c", NOTES, folder=tmp_path)
    right, view, *wrong = out.splitlines()[:7]
    assert (right, view) == ("right", "view")
    assert all(line.startswith("wrong: ") for line in wrong), wrong
    assert [row[3:6] for row in section(out, "Calls")[1:]] == [
        ["1.00 (1.00-1.00)", "4.00 (4.00-4.00)", "4.00 (4.00-4.00)"],
        ["2.00 (2.00-2.00)", "1.00 (1.00-1.00)", "0.50 (0.50-0.50)"],
    ]
    targets = {row[0]: row[2:] for row in section(out, "Targets")[1:]}
    assert targets["geometric mean"] == ["1.41", "yes"]
    assert targets["slowest"] == ["0.50", "NO"] and targets["wrong results"] == ["1", "NO"]


@pytest.mark.torch
def test_single_operators_are_measured_beside_pytorch(tmp_path):
    pytest.importorskip("torch")
    short = ("--only", "sum,SoftmaxOutput", "--rounds", 2, "--seconds", 0.001, "--threads", 1)
    out = run(BENCHMARKS / "kernels.py", *short, "--output", tmp_path, folder=tmp_path)
    (written,) = tmp_path.glob("*-kernels.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    head, *rows = section(out, "Calls")
    times = [[float(row[head.index(n)].split()[0]) for n in ("mxlite", "PyTorch", "ratio")] for row in rows]
    assert len(rows) == 2 * 4 + 2 * 2 and all(min(t) > 0 for t in times)  # the gradient of a sum is a view
    assert {row[2] for row in rows if row[0] == "sum"} == {"forward"}
    assert {row[2] for row in rows if row[0] == "SoftmaxOutput"} == {"forward", "gradient"}
    targets = {row[0]: row[1:] for row in section(out, "Targets")[1:]}
    ratios = [t[2] for t in times]
    mean, least = (float(targets[n][1]) for n in ("geometric mean", "slowest"))
    assert least == min(ratios) <= mean <= max(ratios)
    assert targets["wrong results"][1:] == ["0", "yes"] and out.count("- sum") == 8


@pytest.mark.torch
def test_chains_are_one_call_each_and_measured_beside_pytorch(tmp_path):
    pytest.importorskip("torch")
    short = ("--only", "softmax", "--peers", "eager", "--rounds", 2, "--seconds", 0.001, "--threads", 1)
    out = run(BENCHMARKS / "chains.py", *short, "--output", tmp_path, folder=tmp_path)
    (written,) = tmp_path.glob("*-chains.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    targets = {row[0]: row[2:] for row in section(out, "Targets")[1:]}
    assert targets["chains of several calls, forward"] == ["0", "yes"]
    assert targets["wrong results"] == ["0", "yes"]


@pytest.mark.torch
@pytest.mark.parametrize("word, table", [("8x4096", "Products"), ("C11", "Convolutions")])
def test_products_and_convolutions_beside_onednn_and_pytorch(tmp_path, word, table):
    pytest.importorskip("torch")
    short = ("--only", word, "--rounds", 1, "--seconds", 0.001, "--threads", 1, "--schedules", 1)
    out = run(BENCHMARKS / "products.py", *short, "--output", tmp_path, folder=tmp_path)
    assert len(list(tmp_path.glob("*-products.md"))) == 1
    head, row = section(out, table)
    speeds = [float(x.split()[0]) for x in row[2 : head.index("torch") + 1]]
    assert len(speeds) >= 3 and all(s > 0 for s in speeds) and "wrong" not in row
    targets = {r[0]: r[2:] for r in section(out, "Targets")[1:]}
    assert targets["wrong results"] == ["0", "yes"]


@pytest.mark.torch
def test_steps_of_gluon_are_those_of_pytorch_and_measured_beside_it(tmp_path):
    pytest.importorskip("torch")
    short = ("--rounds", 1, "--seconds", 0.001, "--threads", 1)
    out = run(BENCHMARKS / "gluon_steps.py", *short, "--output", tmp_path, folder=tmp_path)
    (written,) = tmp_path.glob("*-gluon-steps.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    assert "other losses" not in out and out.count("geometric mean") == 3
    assert out.count(" 0 and ") == 4  # KiB of gradients that a whole step keeps


@pytest.mark.torch
def test_recursive_networks_have_the_losses_of_pytorch_and_are_measured_beside_it(tmp_path):
    pytest.importorskip("torch")
    short = ("--nets", "tree", "--batches", 3, "--rounds", 1, "--seconds", 0.001)
    out = run(BENCHMARKS / "dynamic.py", *short, "--output", tmp_path, folder=tmp_path)
    (written,) = tmp_path.glob("*-dynamic.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    head, row = section(out, "Speeds")
    assert float(row[head.index("mxlite")].split()[0]) > 0
    planned, measured = row[head.index("bytes")].split(" / ")
    assert planned == measured and row[head.index("reads")] == "1.00"
