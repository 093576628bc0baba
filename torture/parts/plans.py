"""Plans of random problems and networks: verified, run in poisoned memory in many orders, reparsed

Problems have several results per task, in-place tasks, workspace, copies to the host, recomputation; budgets
lie between the minimum and the maximum. Each plan is executed with hashing kernels (`torture/bytes.py`), its
text is read back, mutants of it are rejected by the checker or run correctly, and no budget is below the
proven bound. Every tenth case is a network: bound within a budget with guards around all arrays and free
memory set to NaN, by the threaded engine, it gives the same bits as without a budget.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np

import mxlite as mx
from mxlite.backends.checks import guard
from mxlite.core.errors import MemoryBudgetError, PlanError
from mxlite.memplan import check, HostLink, make_plan, MemoryPlan, OFFLOADED, plan_memory, Problem
from tests.memplan.plan_mutants import Broken, Machine, mutants, order_of
from tests.memplan.problems import random_problem, residual, several_results
from torture.allowance import Allowance, Outcome
from torture.bytes import run as run_bytes, Wrong

CASES = 10_000
SMALL = 20


def run(allowance: Allowance) -> Outcome:
    failures: list[str] = []
    seen: Counter[str] = Counter()
    for seed in allowance:
        try:
            (network if seed % 10 == 9 else problem)(seed, seen)
        except (AssertionError, PlanError, Wrong, Broken, mx.MXLiteError, np.linalg.LinAlgError) as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}")
    return Outcome(allowance.done, failures, ", ".join(f"{n} {what}" for what, n in seen.most_common()))


# -- problems --------------------------------------------------------------------------------------------


def drawn(seed: int, rng: random.Random) -> Problem:
    """A random problem of one of four kinds, some with a link to host memory."""
    kind = rng.randrange(4)
    if kind == 0:
        found = several_results(seed)
    elif kind == 1:
        found = residual(1 + seed % 3, 1 + seed % 2, rng.choice([600, 1000, 4096]), update=rng.random() < 0.5)
    else:
        found = random_problem(seed, 3 + seed % 9)
    if rng.random() < 0.25:
        tasks = (
            replace(t, always=tuple(v for v in t.outputs if v >= 0 and rng.random() < 0.3))
            for t in found.tasks
        )
        found = replace(found, tasks=tuple(tasks))
    return replace(found, host=HostLink() if rng.random() < 0.2 else None)


def plans_of(found: Problem, rng: random.Random) -> list[MemoryPlan]:
    """Plans without a budget, within some, and with random choices that no search would make."""
    keep_all = plan_memory(found)
    least = keep_all
    if rng.random() < 0.3:
        try:
            plan_memory(found, found.fixed_total)
        except MemoryBudgetError as error:
            least = plan_memory(found, error.least_feasible_bytes)
            assert least.peak_bytes == error.least_feasible_bytes >= error.lower_bound_bytes
    between = rng.randint(least.peak_bytes, keep_all.peak_bytes)
    counts = [rng.choice((0, 0, 1, 2, OFFLOADED if found.host else 1)) for _ in range(found.num_forward)]
    return [keep_all, least, plan_memory(found, between), make_plan(found, counts)]


def problem(seed: int, seen: Counter[str]) -> None:
    rng = random.Random(seed)
    found = drawn(seed, rng)
    for plan in plans_of(found, rng):
        before = plan.predecessors
        check(plan)
        check(plan, before)
        assert plan.peak_bytes >= plan.lower_bound_bytes, "below the proven bound"
        assert plan.budget_bytes is None or plan.peak_bytes <= plan.budget_bytes
        assert MemoryPlan.from_json(plan.to_json()) == plan, "another plan out of its text"
        for order in (range(len(before)), order_of(before, rng), order_of(before, rng)):
            run_bytes(plan, order)
            seen["orders run"] += 1
        seen["recomputing"] += plan.recomputed > 0
        seen["with copies"] += plan.offloaded > 0
    # A plan may have no buffer at all: then there is nothing to mutate.
    for name, mutant, given in mutants(plan, rng) if plan.offsets else ():
        waits = plan.predecessors if given is None else given
        steps = range(len(mutant.schedule.task))
        try:
            check(mutant, None if given == "as listed" else waits)
        except PlanError:
            seen["mutants refused"] += 1
            continue
        for order in [steps] if given == "as listed" else [steps, order_of(waits, rng)]:
            try:
                Machine(mutant).play(order)
            except Broken as error:
                raise Broken(f"the judge let pass: {name}: {error}") from None
        seen["harmless mutants"] += 1


# -- networks --------------------------------------------------------------------------------------------


def net_of(rng: random.Random) -> mx.sym.Symbol:
    """A small network with branches, nodes with several results, and a loss."""
    width = rng.choice([4, 6, 8])
    ends = [mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width, name="first")]
    for n in range(rng.randint(3, 9)):
        x, kind = rng.choice(ends[-3:]), rng.randrange(8)
        if kind == 0:
            y = mx.sym.FullyConnected(x, num_hidden=width, name=f"fc{n}")
        elif kind == 1:
            y = mx.sym.Activation(x, act_type=rng.choice(["relu", "tanh", "sigmoid"]))
        elif kind == 2:
            y = x + rng.choice(ends)
        elif kind == 3:
            y = mx.sym.LayerNorm(x, name=f"norm{n}")
        elif kind == 4:
            a, b = mx.sym.SliceChannel(x, num_outputs=2)
            y = mx.sym.Concat(b, mx.sym.tanh(a), dim=1)
        elif kind == 5:
            y = mx.sym.Dropout(x, p=0.3)
        elif kind == 6:
            y = mx.sym.exp(0.1 * x) * rng.choice(ends)
        else:
            y = mx.sym.BatchNorm(x, name=f"batch{n}", fix_gamma=False)
        ends.append(y)
    last = ends[-1] + ends[rng.randrange(len(ends))]
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(last, num_hidden=3, name="last"), name="softmax")


def network(seed: int, seen: Counter[str]) -> None:
    rng = random.Random(seed)
    net, batch = net_of(rng), rng.choice([1, 2, 7, 32])
    shapes = {"data": (batch, rng.choice([3, 16])), "softmax_label": (batch,)}
    train = dict(optimizer=mx.optimizer.SGD(momentum=0.9)) if rng.random() < 0.5 else {}
    full = net.memory_plan(mx.cpu(), **shapes, **train)
    try:
        least = net.memory_plan(mx.cpu(), memory_budget=1, **shapes, **train).peak_bytes
    except MemoryBudgetError as error:
        least = error.least_feasible_bytes
    budget = rng.randint(least, max(least, full.peak_bytes))
    wanted = bits(net, seed, None, False, shapes, train)
    assert bits(net, seed, budget, True, shapes, train) == wanted, f"other bits within {budget} bytes"
    seen["networks"] += 1


def bits(net, seed, budget, guarded, shapes, train):
    """Results of two steps and a forward pass, and the contents of all arrays afterwards."""
    was, guard.on = guard.on, guarded
    try:
        mx.random.seed(seed)
        with mx.engine.use_engine("threaded" if guarded else "naive"):
            exe = net.simple_bind(mx.cpu(), memory_budget=budget, **shapes, **train)
            check(exe.memory_plan, exe.memory_plan.predecessors)
            rng = np.random.default_rng(seed)
            for name, a in (*exe.arg_dict.items(), *exe.aux_dict.items()):
                x = rng.integers(0, 3, a.shape) if name == "softmax_label" else rng.random(a.shape) - 0.3
                a[:] = x.astype("float32") + (name.endswith("var") * 1.0)
            for _ in range(2):
                if train:
                    exe.step(np.tile([0.1, 1e-3], (len(exe.updated), 1)))
                else:
                    exe.forward(is_train=True)
                    exe.backward()
            found = [a.asnumpy().tobytes() for a in exe.outputs]
            exe.forward()
            arrays = (
                *exe.outputs,
                *exe.arg_arrays,
                *exe.aux_arrays,
                *(g for g in exe.grad_arrays if g is not None),
            )
            found += [a.asnumpy().tobytes() for a in arrays]
            assert exe.measured_bytes == exe.memory_plan.peak_bytes, "measured is not planned"
            assert budget is None or exe.measured_bytes <= budget
        return found
    finally:
        guard.on = was
