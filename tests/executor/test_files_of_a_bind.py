"""How much of the code a bind runs through: what a reader of that path has to know."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST, MOST_OF_ALL = 109, 147
"""Files of the second bind of a process, and of the first one, which also starts the engine, finds oneDNN,
loads machine code, and here looks for a schedule that recomputes."""

LOOK = """
import os, sys, threading
import mxlite as mx

root, seen = os.path.dirname(mx.__file__), set()

def is_import(frame):
    while frame and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root)):
        frame = frame.f_back
    return frame is not None

def look(frame, event, arg):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and not is_import(frame):
        seen.add(os.path.relpath(code.co_filename, root))

def files_of(bind):
    threading.setprofile(look)
    sys.setprofile(look)
    bind()
    sys.setprofile(None)
    print("\\n".join(sorted(seen)))
"""

SECOND = """
net = mx.models.get("mlp")
peak = net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), data=(32, 784)).peak_bytes
net.simple_bind(mx.cpu(), data=(8, 784))  # what is imported and compiled at first does not count
files_of(lambda: net.simple_bind(mx.cpu(), memory_budget=int(0.97 * peak), data=(32, 784)))
"""

FIRST = """
net = mx.sym.Variable("data")
for i in range(8):
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=64), act_type=("tanh", "relu")[i % 2])
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10), name="softmax")
files_of(lambda: net.simple_bind(mx.cpu(), memory_budget=1_400_000, data=(512, 64)))
"""


@pytest.mark.parametrize("program, most", [(SECOND, MOST), (FIRST, MOST_OF_ALL)], ids=["second", "first"])
def test_a_bind_within_a_budget_runs_few_files(program, most):
    made = subprocess.run([sys.executable, "-c", LOOK + program], capture_output=True, text=True, check=True)
    files = made.stdout.split()
    assert "executor/bind.py" in files and "memplan/problem.py" in files
    assert len(files) <= most, made.stdout


def test_planning_loads_no_masked_arrays():
    """`np.unique` and what is built on it import numpy.ma, which takes a tenth of a first bind's time."""
    program = """
import sys
import mxlite as mx
net = mx.sym.Variable("data")
for i in range(6):
    net = mx.sym.tanh(mx.sym.FullyConnected(net, num_hidden=32))
peak = net.memory_plan(mx.cpu(), data=(512, 32)).peak_bytes
plan = net.simple_bind(mx.cpu(), memory_budget=int(0.9 * peak), data=(512, 32)).memory_plan
print(plan.extra_time > 0, "numpy.ma" in sys.modules)
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout == "True False\n"
