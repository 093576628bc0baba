"""The benchmark of networks of many kinds: both frameworks compute the same, and what does not is found.

Its modules live in benchmarks/ and are run in another process, as a user runs them. All networks are checked
by `python benchmarks/generality.py --quick`; here are some, with layers that the others lack.
"""

from __future__ import annotations

import pytest

from tests.benchmarks.test_benchmarks import BENCHMARKS, run, section

pytestmark = pytest.mark.torch
SOME = "dcgan,diffusion_unet,dlrm,gcn,gru_seq2seq,llama,swin,wavenet"


@pytest.fixture(autouse=True)
def torch():
    pytest.importorskip("torch")


def test_both_frameworks_compute_the_same(tmp_path):
    out = run(BENCHMARKS / "generality.py", "--quick", "--nets", SOME, "--threads", 1, folder=tmp_path)
    head, *rows = section(out, "Agreement")
    assert len(rows) == 2 * len(SOME.split(",")) and {row[head.index("result")] for row in rows} == {"right"}
    training = rows[::2]
    assert all(int(row[head.index("number")]) >= 4 for row in training)
    assert all(float(row[head.index("gradients")]) <= float(row[head.index("bound")]) for row in training)
    head, *rows = section(out, "Ratios")
    assert [row[0].split(":")[0] for row in rows[:-2]] == SOME.split(",")
    assert [row[0] for row in rows[-2:]] == ["**geometric mean**", "**worst**"]


def test_extra_time_within_budgets_has_a_page_of_its_own(tmp_path):
    arguments = ("--quick", "--budgets", "--nets", "lstm_tagger", "--write", "--output", tmp_path)
    out = run(BENCHMARKS / "generality.py", *arguments, folder=tmp_path)
    (page,) = tmp_path.glob("*-budgets.md")
    head, *rows = section(page.read_text(encoding="utf-8"), "lstm_tagger")
    assert len(rows) >= 1 and out.endswith(page.read_text(encoding="utf-8") + "\n")
    for row in rows:
        predicted, measured, points = (
            float(row[head.index(n)]) for n in ("predicted, %", "measured, %", "points")
        )
        assert points == pytest.approx(predicted - measured, abs=0.11)


WRONG = """
import sys
from dataclasses import replace
import generality
import mxlite as mx

right = generality.general.network("gcn")

def symbol(**sizes):
    scores = right.symbol(**sizes)
    return scores * 1.01 - mx.sym.BlockGrad(scores * 0.01)

generality.general.network = lambda name: replace(right, symbol=symbol)
sys.argv = ["generality.py", "--quick", "--nets", "gcn", "--threads", "1"]
assert generality.main() == 1
"""


def test_what_differs_is_wrong_and_the_exit_status_is_1(tmp_path):
    """Here all gradients are larger by a hundredth, and the scores are right."""
    out = run("-c", WRONG, folder=tmp_path)
    assert section(out, "Ratios")[1][1:] == ["WRONG", "-", "WRONG"]
    head, *rows = section(out, "Agreement")
    assert [row[head.index("result")] for row in rows] == ["WRONG", "right"]
    assert "mxlite: wrong: the gradient of " in out


DIFFERENCES = """
import numpy as np
from peers.agreement import differences, projections

print(projections(np.array([[2.0]])), projections(np.array([3.0, -1.0, 0.0, 3.0])))
one = np.ones((2, 3))
exact = {"output": one, "gradient of a": 1e4 * one, "gradient of b": one, "gradient of c": 1e-3 * one}
others = {"gradient of a": 1.01e4 * one, "gradient of b": one + np.nan, "gradient of c": 0 * one}
for name, difference in differences({"output": one.T, **others}, exact).items():
    print(name, difference)
"""


def test_differences_are_relative_but_for_gradients_of_nearly_zero(tmp_path):
    projected, *lines = run("-c", DIFFERENCES, folder=tmp_path).splitlines()
    assert projected == "[2.0, 2.0, 2.0] [3.0, 1.0, 0.0]"  # of one score, too
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
    assert found.pop("gradient of a") == pytest.approx(0.01)
    assert found.pop("gradient of c") == pytest.approx(1e-4, rel=1e-3)  # of a thousandth of all
    assert found == {"output": float("inf"), "gradient of b": float("inf")}


def test_a_network_is_timed_beside_pytorch(tmp_path):
    short = ("--nets", "gcn", "--rounds", 2, "--seconds", 0.001, "--threads", 1, "--peers", "eager")
    out = run(BENCHMARKS / "generality.py", *short, "--write", "--output", tmp_path, folder=tmp_path)
    (written,) = tmp_path.glob("*-generality.md")
    assert written.read_text(encoding="utf-8").strip() == out.strip()
    head, row, mean, worst = section(out, "Ratios")
    assert all(float(cell) > 0 for cell in row[1:]) and mean[1:] == worst[1:] == row[1:]
    head, row = section(out, "Training: MiB")
    assert 0 < float(row[head.index("planned")]) == float(row[head.index("measured")])
    assert float(section(out, "Inference")[1][1].split()[0]) > 0


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(AssertionError, match="There is no network 'nobody'; there are autoencoder, bert, "):
        run(BENCHMARKS / "generality.py", "--nets", "nobody", folder=tmp_path)
