"""benchmarks/gpu_planned.py: what it says of PyTorch, counted by hand, and its table."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mxlite.memplan import Problem, Task, Value
from tests.memplan.exact_schedule import brute_force
from tests.memplan.problems import random_problem

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    """The benchmarks' packages can be imported; the tests have a module of the name of one of them."""
    pytest.importorskip("torch")
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module
    for name in [n for n in sys.modules if n.split(".")[0] == "networks"]:
        del sys.modules[name]


def rounded(*numbers, itemsize=4):
    return sum(-(-n * itemsize // 512) * 512 for n in numbers)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pytorchs_peak_is_what_is_alive_at_the_fullest_moment(benchmarks):
    """Of a layer with many outputs: their scores, what the logarithm made, and two gradients of that size."""
    suite, torch_peak = benchmarks("networks.suite"), benchmarks("gpu_columns.torch_peak")
    wide = 5000
    net = replace(
        suite.by_name(["mlp"])[0], data=(64, 16), labels=(64,), twin=("MLP", dict(widths=(16, wide)))
    )
    scores, weights = rounded(64 * wide), rounded(16 * wide, wide)
    fixed = 2 * weights + rounded(64 * 16) + rounded(64, itemsize=8)
    found = torch_peak.peak(net)
    assert 0 <= found - (fixed + 3 * scores) <= 4096  # the loss and its like, and nothing else
    narrow = torch_peak.peak(net, autocast=True)
    assert narrow > found  # copies of weights and scores in 16 bits, and the loss in float32 all the same


def test_a_quick_run_prints_each_step_and_plans_what_is_timed(benchmarks, monkeypatch, capsys):
    planned, nets = benchmarks("gpu_planned"), benchmarks("gpu_columns.nets")
    monkeypatch.setattr(sys, "argv", ["gpu_planned.py", "--quick"])
    planned.main()
    text = capsys.readouterr().out
    for net in nets.small():
        for precision in ("float32", "bfloat16"):
            assert f"| {net.title}, {precision}" in text
    assert {n.name for n in nets.nets()} >= {"resnet50", "resnet152", "resnet110", "lstm", "decoder"}


@pytest.mark.parametrize("seed", [0, 1, 3, 6])
def test_the_bound_is_below_all_that_can_be_done(benchmarks, seed):
    """Every order of a tiny step, tried out."""
    pytest.importorskip("ortools")
    least = benchmarks("planning.at_least").least_extra_time
    whole = random_problem(seed, 5 if seed == 1 else 4)
    tasks = tuple(t for t in whole.tasks if not t.update)
    problem = Problem(tasks, whole.values, whole.num_forward, {"arguments": 1000})
    for nbytes, seconds in brute_force(problem):
        assert least(problem, 1000 + nbytes) <= seconds / problem.step_seconds + 1e-9


def test_the_bound_is_what_cannot_be_held(benchmarks):
    """The dearest result for its bytes is held, and what the others are made of runs again with them."""
    pytest.importorskip("ortools")
    least = benchmarks("planning.at_least").least_extra_time
    values = (Value("x", 8, fixed=True), *(Value(n, b) for n, b in zip("abcd", (100, 200, 300, 400))))
    forward = [
        Task("a", "f", (0,), (1,), seconds=1.0),
        Task("b", "f", (0,), (2,), seconds=2.0),
        Task("c", "f", (0,), (3,), seconds=6.0),
        Task("d", "f", (0,), (4,), seconds=16.0, recomputable=False),
    ]
    backward = [Task("g", "f", (v,), (), seconds=1.0) for v in (1, 2, 3)]
    problem = Problem((*forward, *backward), values, 4, {"inputs": 8})
    assert least(problem, 8 + 600) == pytest.approx(0)
    assert least(problem, 8 + 300) == pytest.approx(3 / 28)
    assert least(problem, 8 + 400) == pytest.approx(2 / 28)
    again = Task("b", "f", (4,), (2,), seconds=2.0)  # of what may not run again
    one = Problem((forward[0], forward[3], again, *backward[:2]), values, 3, {"inputs": 8})
    assert least(one, 8 + 300) == pytest.approx(0) and least(one, 8 + 99) == float("inf")
