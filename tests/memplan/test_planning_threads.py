"""Planning from several threads at once, and in a child that was forked while another thread planned."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.cached import cached_property, Remembered
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import plan_memory, Problem, Template
from mxlite.memplan.remat import search
from tests.memplan.problems import busy_problem, chain, residual
from tests.networks.small_networks import mlp


def at_once(*calls):
    """What each of `calls` returns, all begun together, a thread each; raises what one of them raised."""
    results, errors = [None] * len(calls), []
    ready = threading.Barrier(len(calls))

    def run(n, call):
        try:
            ready.wait()
            results[n] = call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture
def short_turns():
    """Threads take turns after a few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def forgotten(monkeypatch):
    """Nothing is remembered, and nothing kept on disk."""
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "0")
    monkeypatch.setattr(search, "_plans", Remembered(search.REMEMBERED))
    monkeypatch.setattr(search, "_frontiers", Remembered(search.FRONTIERS))


# -- what is remembered ----------------------------------------------------------------------------------


def test_the_last_values_are_remembered_and_the_oldest_go_first():
    held, made = Remembered(2), []
    for key in ("a", "b", "a", "c", "b", "a"):
        assert held.of(key, lambda key=key: made.append(key) or key * 2) == key * 2
    assert made == ["a", "b", "c", "a"], "what is asked for again does not become newer"
    assert len(held) == 2 and held.get("c") == "cc" and held.get("b") is None
    held.put("c", "new")
    held.put("d", None)
    assert held.get("c") == "new" and held.get("a") is None
    assert held.of("d", lambda: "again") is None, "None is a value"
    held.clear()
    assert len(held) == 0


class Meddling:
    """A key. While it is compared, as a thread may be stopped anywhere, others ask for what is not there."""

    def __init__(self, name, held):
        self.name, self.held = name, held

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        held, self.held = self.held, None
        for n in range(held.size if held is not None else 0):
            held.of(f"another {n}", lambda: "other")
        return isinstance(other, Meddling) and self.name == other.name


def test_a_thread_gets_its_value_though_others_push_it_out_meanwhile():
    held = Remembered(3)
    held.of(Meddling("a", held), lambda: "first")
    assert held.of(Meddling("a", None), lambda: "again") == "first", "it was there when it was asked for"
    assert held.of(Meddling("a", None), lambda: "again") == "again", "and now it is not"
    assert len(held) == 3


def test_many_threads_remember_and_forget_at_once(short_turns):
    held = Remembered(3)

    def ask(seed):
        for n in np.random.default_rng(seed).integers(0, 6, 6000).tolist():
            assert held.of(n, lambda n=n: -n) == -n

    at_once(*(lambda seed=seed: ask(seed) for seed in range(4)))
    assert len(held) == 3


def test_plans_of_many_threads_are_those_of_what_each_asked(monkeypatch, short_turns, forgotten):
    """Of more problems and budgets than are remembered, so that somebody always makes room."""
    problems = [replace(chain(2), fixed_bytes={"arguments": n}) for n in range(4)]
    made = {p.digest: plan_memory(p) for p in problems}
    monkeypatch.setattr(search, "_search", lambda p, budget, s: replace(made[p.digest], budget_bytes=budget))
    monkeypatch.setattr(search, "frontier", lambda p, s: search.Frontier(p, s, ()))

    def ask(seed):
        rng = np.random.default_rng(seed)
        for n in range(1500):
            problem, budget = problems[int(rng.integers(4))], int(rng.integers(5))
            plan = search._within(problem, budget, "sharing")
            assert (plan.problem.fixed_total, plan.budget_bytes) == (problem.fixed_total, budget)
            strategy = "abc"[n % 3]
            found = search.frontier_of(problem, strategy)
            assert found.problem.digest == problem.digest and found.strategy == strategy

    at_once(*(lambda seed=seed: ask(seed) for seed in range(4)))


def test_a_template_serves_many_threads(short_turns, forgotten):
    """More choices than it remembers, each asked for by several threads at once."""
    template, other = Template(plan_memory(residual(3, 1))), residual(3, 1, 1500)
    rows = [tuple(n >> t & 1 for t in range(other.num_forward)) for n in range(40)]
    alone = {row: Template(template.first)._with_choice(other, row, "m").peak_bytes for row in rows}

    def ask(seed):
        for n in np.random.default_rng(seed).integers(0, len(rows), 150).tolist():
            assert template._with_choice(other, rows[n], "m").peak_bytes == alone[rows[n]]

    at_once(*(lambda seed=seed: ask(seed) for seed in range(3)))


def test_a_frontier_gives_each_thread_the_point_it_asks_for(forgotten):
    """Another thread finds a point of fewer bytes between one question and the next."""
    found = search.frontier_of(residual(3, 1))
    first, other = found.plan(0), found.plan(1)
    assert first.schedule.copy != other.schedule.copy

    class Least(tuple):
        def __getitem__(self, at):
            found._least = 1, other
            return super().__getitem__(at)

    found._least = Least((0, first))
    assert found.plan(0).schedule.copy == first.schedule.copy


# -- plans of several threads are those of one -----------------------------------------------------------


def test_threads_that_plan_at_once_get_the_plans_that_they_get_alone(short_turns, forgotten):
    """The same problem within several budgets, and others beside it."""
    problems = [residual(4, 1), busy_problem(3, 6), residual(4, 1)]

    def plans(problem):
        keep_all = plan_memory(problem)
        least = search.frontier_of(problem).least().peak_bytes
        budgets = sorted({least, (least + keep_all.peak_bytes) // 2, keep_all.peak_bytes})
        return [plan_memory(problem, b).to_json() for b in (None, *budgets)]

    alone = [plans(p) for p in problems]
    search._plans.clear()
    search._frontiers.clear()
    assert at_once(*(lambda p=p: plans(p) for p in problems)) == alone


def test_threads_that_bind_at_once_get_the_plans_that_they_get_alone(short_turns, forgotten):
    """Different networks and the same one twice, within budgets, trained for a step."""

    def bound(width, share):
        net = mlp(hidden=width)
        shapes = dict(data=(32, 16), softmax_label=(32,), optimizer=mx.optimizer.SGD(momentum=0.9))
        full = net.memory_plan(mx.cpu(), **shapes)
        budget = full.lower_bound_bytes + int(share * (full.peak_bytes - full.lower_bound_bytes))
        try:
            exe = net.simple_bind(mx.cpu(), memory_budget=budget, **shapes)
        except mx.MemoryBudgetError as error:
            exe = net.simple_bind(mx.cpu(), memory_budget=error.least_feasible_bytes, **shapes)
        exe.step(np.tile([0.1, 1e-3], (len(exe.updated), 1)))
        mx.nd.waitall()
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        return exe.memory_plan.to_json()

    asked = [(24, 0.3), (40, 0.6), (24, 0.3), (24, 0.8)]
    alone = [bound(*a) for a in asked]
    search._plans.clear()
    search._frontiers.clear()
    assert at_once(*(lambda a=a: bound(*a) for a in asked)) == alone


# -- attributes that are computed once -------------------------------------------------------------------


class Slow:
    """Whose `found` takes until `go`."""

    def __init__(self, go=None):
        self.go, self.inside = go, threading.Event()

    @cached_property
    def found(self):
        """What is found."""
        self.inside.set()
        if self.go is not None:
            assert self.go.wait(20)
        return [self]


def test_an_attribute_is_computed_once_and_is_the_same_for_all_who_ask():
    one = Slow()
    assert one.found is one.found and one.found == [one]
    assert Slow.found.__doc__ == "What is found." and "found" in vars(one)
    gate = threading.Event()
    two = Slow(gate)
    threading.Timer(0.05, gate.set).start()
    first, second = at_once(lambda: two.found, lambda: two.found)
    assert first is second is two.found, "both computed it, and got the same"


def test_nobody_waits_for_the_attribute_of_another_object():
    gate = threading.Event()
    slow = Slow(gate)
    thread = threading.Thread(target=lambda: slow.found)
    thread.start()
    assert slow.inside.wait(20)
    quick = threading.Thread(target=lambda: Slow().found, daemon=True)
    quick.start()
    quick.join(5)
    waited = quick.is_alive()
    gate.set()
    thread.join()
    assert not waited


def forked(run):
    """Whether a forked child gets through `run()` in some seconds."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_was_forked_while_a_thread_planned_plans(monkeypatch, forgotten):
    """The thread is inside of an attribute that is computed once, of another object."""
    inside, go = threading.Event(), threading.Event()
    slowly = Problem.producer.compute

    def producer(problem):
        if threading.current_thread() is thread:
            inside.set()
            go.wait(20)
        return slowly(problem)

    monkeypatch.setattr(Problem.producer, "compute", producer)
    thread = threading.Thread(target=lambda: plan_memory(residual(3, 1)))
    thread.start()
    assert inside.wait(20)
    try:
        assert forked(lambda: plan_memory(residual(3, 1), 10**9).predecessors)
    finally:
        go.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_was_forked_while_a_thread_made_the_next_step_makes_it():
    """The thread, which the child does not have, is inside of the generator of the steps that both share."""
    inside, go = threading.Event(), threading.Event()
    problems = [residual(2, 1), residual(3, 1), residual(4, 1)]

    def within():
        yield problems[0]
        if threading.current_thread() is thread:
            inside.set()
            go.wait(20)
        yield from problems[1:]

    steps = LazySteps(lambda: problems[0], within)
    assert steps.first is problems[0]
    thread = threading.Thread(target=lambda: list(steps))
    thread.start()
    assert inside.wait(20)

    def all_there():
        assert [p.digest for p in steps] == [p.digest for p in problems]

    try:
        assert forked(all_there)
    finally:
        go.set()
        thread.join()
    all_there()


def test_steps_whose_making_failed_for_one_are_made_for_the_next():
    problems, fails = [residual(2, 1), residual(3, 1)], [KeyboardInterrupt]

    def within():
        yield problems[0]
        if fails:
            raise fails.pop()
        yield problems[1]

    steps = LazySteps(lambda: problems[0], within)
    with pytest.raises(KeyboardInterrupt):
        list(steps)
    assert list(steps) == problems, "and not the first alone, as if there were no other"


def test_no_class_takes_attributes_with_a_lock_for_all_its_objects():
    """Those of `functools`, in Python 3.11."""
    taken = re.compile(r"^from functools import .*\bcached_property|@functools.cached_property", re.M)
    files = Path(mx.__file__).parent.rglob("*.py")
    assert not [file.name for file in files if taken.search(file.read_text(encoding="utf-8"))]
