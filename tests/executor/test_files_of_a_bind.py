"""How much of the code a bind runs through: what a reader of that path has to know."""

from __future__ import annotations

import subprocess
import sys

MOST = 110

PROGRAM = """
import os, sys, threading
import mxlite as mx

root, seen = os.path.dirname(mx.__file__), set()
net = mx.models.get("mlp")
peak = net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), data=(32, 784)).peak_bytes
net.simple_bind(mx.cpu(), data=(8, 784))  # what is imported and compiled at first does not count

def look(frame, event, arg):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
        seen.add(os.path.relpath(code.co_filename, root))

threading.setprofile(look)
sys.setprofile(look)
net.simple_bind(mx.cpu(), memory_budget=int(0.97 * peak), data=(32, 784))
sys.setprofile(None)
print("\\n".join(sorted(seen)))
"""


def test_a_bind_within_a_budget_runs_few_files():
    made = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    files = made.stdout.split()
    assert "executor/bind.py" in files and "memplan/problem.py" in files
    assert len(files) <= MOST, made.stdout
