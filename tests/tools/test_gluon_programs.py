"""scripts/gluon_programs.py, on a small checkout; mxlite stands for the wheel, too."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import mxnet as mx
from mxnet import autograd, gluon

x = mx.nd.random.normal(shape=(4, 3))
net = gluon.nn.Dense(2)
net.initialize(mx.init.Xavier())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": float(sys.argv[1])})
for _ in range(int(sys.argv[2])):
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trainer.step(1)
"""
PAGE = """
```{.python .input}
from mxnet import nd, autograd
x = nd.array([1, 2])
x.attach_grad()
!pip install nothing
x
```
and then
```python
with autograd.record():
    y = x * x
y.backward()
x.grad
```
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("gluon_programs")


@pytest.fixture
def both(script, tmp_path):
    """Runs of a program on both sides; the first one keeps its random numbers, the second gets them."""
    importlib.import_module("mxlite.core.alias").write(tmp_path / "alias")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "page.md").write_text(PAGE)
    path = [tmp_path / "alias", ROOT]

    def run(program):
        sides = (script.Side(name, sys.executable, path, 60) for name in ("wheel", "mxlite"))
        return [script.run(program, tmp_path, side, tmp_path / "scratch") for side in sides]

    return run


def test_both_sides_start_from_the_same_numbers(script, both):
    wheel, ours = both(script.Program("program.py", "0.1 3"))
    assert (wheel.error, ours.error, len(ours.losses)) == ("", "", 3)
    assert script.difference(wheel, ours) == 0


def test_a_program_stops_after_the_steps_that_are_asked_for(script, both):
    wheel, ours = both(script.Program("program.py", "0.1 99", steps=2))
    assert (ours.error, len(wheel.losses), len(ours.losses)) == ("", 2, 2)


def test_the_last_line_of_an_error_is_kept(script, both):
    wheel, _ = both(script.Program("program.py", "fast 3"))
    assert wheel.error == "ValueError: could not convert string to float: 'fast'"


def test_cells_of_a_page_give_their_arrays_and_losses(script, both):
    _, ours = both(script.Program("page.md"))
    assert (ours.error, ours.losses) == ("", [1.5, 2.5, 3.0])


def test_losses_are_compared_relative_to_the_largest(script):
    assert script.difference(script.Run([1, 200], ""), script.Run([1, 201], "")) == pytest.approx(0.005)
    assert script.difference(script.Run([1], ""), script.Run([], "")) == float("inf")
    assert json.dumps(script.difference(script.Run([], ""), script.Run([], ""))) == "0.0"
