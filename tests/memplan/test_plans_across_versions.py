"""Plans do not depend on how a version of Python adds floats: `sum` compensates since 3.12."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import builtins, json, sys
plain, floats = builtins.sum, set()

def compensated(items, start=0):
    "As `sum` of Python 3.12: Neumaier's, as soon as a float comes."
    items, total = list(items), start
    if not any(type(x) is float for x in (start, *items)):
        return plain(items, start)
    caller = sys._getframe(1)
    while caller.f_code.co_name.startswith("<"):
        caller = caller.f_back
    floats.add(f"{caller.f_globals.get('__name__')} line {caller.f_lineno}")
    if not WITH:
        return plain(items, start)
    total, lost = float(start), 0.0
    for x in items:
        after = total + x
        lost += (total - after) + x if abs(total) >= abs(x) else (x - after) + total
        total = after
    return total + lost

WITH = sys.argv[1] == "compensated"
builtins.sum = compensated

from dataclasses import replace
import numpy as np
import mxlite as mx
from mxlite.memplan import HostLink, MemoryPlan, make_plan, plan_memory
from mxlite.memplan.remat import search
from tests.memplan.problems import random_problem, residual
from tests.networks.small_networks import mlp

def thirds(problem, **more):
    "Times that no float has exactly."
    tasks = tuple(replace(t, seconds=0.1 + (7 * n % 11) / 3, warm=0.1 + n % 5 / 7, cold=1.3 + n % 5 / 7)
                  for n, t in enumerate(problem.tasks))
    return replace(problem, tasks=tasks, **more)

plans = []
for problem in (thirds(residual(5, 1)), thirds(random_problem(1, 8)), thirds(residual(4, 2, update=True)),
                thirds(residual(4, 1), host=HostLink(3e3, 7e3)),
                thirds(residual(4, 1), cache_bytes=3000, others_bytes_per_s=10.0)):
    keep_all = plan_memory(problem)
    least = search.frontier_of(problem).least().peak_bytes
    between = keep_all.peak_bytes - least
    for budget in (None, least, least + between // 3, least + 3 * between // 4):
        plan = plan_memory(problem, budget)
        plan.predicted_seconds, plan.predicted_extra_time
        plans.append(plan)
x, net = mx.sym.Variable("data"), mlp()
outs, _ = mx.sym.contrib.foreach(lambda d, s: (mx.sym.tanh(d + s), d), x, mx.sym.Variable("s"))
for symbol, shapes in ((net, dict(data=(64, 30), softmax_label=(64,))), (outs, dict(data=(5, 3), s=(3,)))):
    plans += [symbol.memory_plan(mx.cpu(), memory_budget=b, **shapes) for b in (None, "1GiB")]
plans += [make_plan(p.problem) for p in plans[:8]]
texts = [p.to_json() for p in plans]
assert [MemoryPlan.from_json(t) for t in texts] == plans
if len(sys.argv) > 2:
    with open(sys.argv[2]) as file:
        assert [MemoryPlan.from_json(t) for t in json.load(file)] == plans
print(json.dumps([texts, [p.predicted_seconds for p in plans], sorted(floats)]))
"""


def planned(how, *files):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MXLITE_PLAN_CACHE": "0"}
    command = [sys.executable, "-c", PROGRAM, how, *map(str, files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_plans_and_their_files_are_the_same_where_sums_are_rounded_otherwise(tmp_path):
    """Bit for bit; and a file of one is read where the other runs."""
    texts, seconds, floats = planned("plain")
    assert len(texts) > 25
    assert not [line for line in floats if "memplan" in line], "no float goes through sum() in the planner"
    (tmp_path / "plans").write_text(json.dumps(texts))
    others, other_seconds, _ = planned("compensated", tmp_path / "plans")
    digests = [[hashlib.sha256(t.encode()).hexdigest() for t in row] for row in (texts, others)]
    assert digests[0] == digests[1]
    assert seconds == other_seconds
