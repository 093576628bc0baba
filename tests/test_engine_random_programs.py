"""Whatever is pushed, `threaded` gives what `naive` gives.

A program is a list of steps: pushes with random reads, writes, exceptions, sleeps, priorities and kinds,
waits between them, and stretches that run in bulk. Every closure mixes what it reads into what it writes, so
any wrong order changes a number; and it checks, while it runs, that nobody is at its Vars who must not be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, HealthCheck, settings, strategies as st
from watchdog import in_time

from mxlite.core.errors import OperatorError
from mxlite.engine import Engine, NaiveEngine, ThreadedEngine, Var

VARS = 8
KINDS = ("compute", "compute", "compute", "copy", "io")


@dataclass(frozen=True)
class Step:
    action: str = "push"  # or: wait_for, wait_to_write, wait_all
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    fails: bool = False
    sleep_us: int = 0
    priority: int = 0
    kind: str = "compute"
    bulk: int = 0  # consecutive steps of equal bulk > 0 run in one `engine.bulk`


class Guard:
    """Who is at which Var right now; any clash is remembered."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.readers = [0] * VARS
        self.writers = [0] * VARS
        self.clashes: list[str] = []

    def enter(self, me: int, reads: set[int], writes: set[int]) -> None:
        with self.lock:
            for v in writes:
                if self.readers[v] or self.writers[v]:
                    self.clashes.append(f"step {me} writes Var {v}, which is in use")
                self.writers[v] += 1
            for v in reads:
                if self.writers[v]:
                    self.clashes.append(f"step {me} reads Var {v}, which is being written")
                self.readers[v] += 1

    def leave(self, reads: set[int], writes: set[int]) -> None:
        with self.lock:
            for v in writes:
                self.writers[v] -= 1
            for v in reads:
                self.readers[v] -= 1


def outcome(call: Callable[[], None]) -> list[Any]:
    try:
        call()
    except OperatorError as error:
        return [
            str(error),
            error.operation,
            error.where,
            repr(error.__cause__),
            getattr(error, "__notes__", []),
        ]
    return []


def run(program: list[Step], engine: Engine) -> dict[str, Any]:
    vars = [Var(f"v{i}") for i in range(VARS)]
    state = list(range(VARS))
    guard = Guard()
    waits: list[Any] = []

    def closure(me: int, step: Step) -> Callable[[], None]:
        writes = set(step.writes)
        reads = set(step.reads) - writes

        def mix() -> None:
            guard.enter(me, reads, writes)
            try:
                if step.sleep_us:
                    time.sleep(step.sleep_us * 1e-6)
                value = me
                for v in step.reads:
                    value = (value * 1000003 ^ state[v]) & 0xFFFFFFFFFFFF
                if step.fails:
                    raise ValueError(f"step {me} with {value}")
                for v in step.writes:
                    state[v] = (state[v] * 31 + value) & 0xFFFFFFFFFFFF
            finally:
                guard.leave(reads, writes)

        return mix

    def perform(me: int, step: Step) -> None:
        if step.action == "push":
            engine.push(
                closure(me, step),
                [vars[v] for v in step.reads],
                [vars[v] for v in step.writes],
                name=f"step{me}",
                priority=step.priority,
                kind=step.kind,
            )
        elif step.action == "wait_all":
            waits.append((me, outcome(engine.wait_all), list(state)))
        else:
            wait = getattr(engine, step.action)
            waits.append(
                (me, outcome(lambda: wait(*(vars[v] for v in step.reads))), [state[v] for v in step.reads])
            )

    before = engine.stats()
    for bulk, steps in groupby(enumerate(program), key=lambda item: item[1].bulk):
        with ExitStack() as stack:
            if bulk:
                stack.enter_context(engine.bulk(bulk))
            for me, step in steps:
                perform(me, step)
    waits.append(("each", [outcome(lambda v=v: engine.wait_for(v)) for v in vars]))
    waits.append(("all", outcome(engine.wait_all)))
    assert guard.clashes == []
    assert outcome(engine.wait_all) == []
    for var in vars:
        assert var.writer is None and not var.readers
    after = engine.stats()
    return {
        "state": state,
        "versions": [var.version for var in vars],
        "waits": waits,
        "counts": {key: after[key] - before[key] for key in after},
    }


@pytest.fixture(scope="module")
def engines() -> Any:
    made = [ThreadedEngine(workers=1), ThreadedEngine(workers=2), ThreadedEngine(workers=4, max_pending=5)]
    yield made
    for engine in made:
        engine.stop()


some_vars = st.lists(st.integers(0, VARS - 1), max_size=3).map(tuple)
pushes = st.builds(
    Step,
    reads=some_vars,
    writes=st.lists(st.integers(0, VARS - 1), max_size=2).map(tuple),
    fails=st.sampled_from([False] * 9 + [True]),
    sleep_us=st.sampled_from([0, 0, 0, 1, 30]),
    priority=st.integers(0, 2),
    kind=st.sampled_from(KINDS),
    bulk=st.sampled_from([0, 0, 1, 4, 16]),
)
waits = st.builds(
    Step,
    action=st.sampled_from(["wait_for", "wait_to_write", "wait_all"]),
    reads=some_vars,
    bulk=st.sampled_from([0, 4]),
)
programs = st.lists(st.one_of(pushes, pushes, pushes, pushes, pushes, waits), max_size=60)


@in_time(120)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(program=programs)
def test_threaded_gives_what_naive_gives(engines: list[ThreadedEngine], program: list[Step]) -> None:
    expected = run(program, NaiveEngine())
    for engine in engines:
        assert run(program, engine) == expected


def seeded_program(seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 40))
    used = int(rng.integers(1, VARS + 1))  # few Vars: long chains; many: much in parallel
    failing = float(rng.choice([0.0, 0.05, 0.3]))
    sleeping = float(rng.choice([0.0, 0.0, 0.1]))
    bulk, program = 0, []
    for _ in range(length):
        if rng.random() < 0.15:
            bulk = int(rng.choice([0, 0, 1, 3, 50]))
        reads = tuple(int(v) for v in rng.integers(0, used, rng.integers(0, 4)))
        if rng.random() < 0.08:
            action = ("wait_for", "wait_to_write", "wait_all")[int(rng.integers(3))]
            program.append(Step(action, reads, bulk=bulk))
        else:
            program.append(
                Step(
                    reads=reads,
                    writes=tuple(int(v) for v in rng.integers(0, used, rng.integers(0, 3))),
                    fails=bool(rng.random() < failing),
                    sleep_us=int(rng.random() < sleeping),
                    priority=int(rng.integers(-1, 2)),
                    kind=KINDS[int(rng.integers(len(KINDS)))],
                    bulk=bulk,
                )
            )
    return program


@in_time(240)
@pytest.mark.parametrize("block", range(4))
def test_thousands_of_seeded_programs_agree(engines: list[ThreadedEngine], block: int) -> None:
    for seed in range(block * 750, (block + 1) * 750):
        program = seeded_program(seed)
        engine = engines[seed % len(engines)]
        assert run(program, engine) == run(program, NaiveEngine()), f"seed {seed}"


@in_time(60)
def test_several_threads_run_programs_on_one_engine(engines: list[ThreadedEngine]) -> None:
    """Each thread has Vars of its own, so each must get its own oracle's result. Failures surface at waits on
    the Vars only, since `wait_all` would raise the neighbours' failures too."""
    wrong: list[int] = []

    def run_some(first: int) -> None:
        for seed in range(first, first + 40):
            program = [
                Step(
                    **{
                        **step.__dict__,
                        "action": step.action.replace("wait_all", "wait_for"),
                        "fails": False,
                    }
                )
                for step in seeded_program(seed)
            ]
            expected, found = run(program, NaiveEngine()), run(program, engines[1])
            if any(expected[key] != found[key] for key in ("state", "versions", "waits")):
                wrong.append(seed)

    threads = [threading.Thread(target=run_some, args=(10_000 + 100 * i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
