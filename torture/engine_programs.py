"""Random programs for an engine: pushes, waits, failures, pushes from closures, Vars without references.

A program is a list of steps. Every closure mixes what it reads into what it writes, so any wrong order
changes a number; and it checks, while it runs, that no other closure has conflicting access to its Vars. A
program's result is the same on every engine that satisfies the contract, so `NaiveEngine` is the oracle for
all others. Code shared by engines could be wrong in both, so each result is also compared with `contract`,
which uses no engine.
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

from mxlite.core.errors import OperatorError
from mxlite.engine import Engine, Var

VARS = 8
KINDS = ("compute", "compute", "compute", "copy", "io")


@dataclass(frozen=True)
class Step:
    """One step. `reads` and `writes` are indices among `VARS` Vars.

    action: "push", a wait ("wait_for", "wait_to_write", "wait_all"), or "forget": from here on there are new
    Vars at `writes`, and only pending operations hold the old ones. fails: the closure raises. pushes: the
    number of nested closures that it pushes, on a separate Var. bulk: consecutive steps of equal bulk > 0 run
    in one `engine.bulk`.
    """

    action: str = "push"
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    fails: bool = False
    sleep_us: int = 0
    priority: int = 0
    kind: str = "compute"
    bulk: int = 0
    pushes: int = 0


class Cell:
    """Value of a Var: a number, and the closures that access it right now."""

    __slots__ = ("readers", "value", "writers")

    def __init__(self, value: int) -> None:
        self.value = value
        self.readers = self.writers = 0


class Guard:
    """Recorder of conflicting accesses to a cell."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clashes: list[str] = []

    def enter(self, me: int, reads: set[Cell], writes: set[Cell]) -> None:
        with self.lock:
            for cell in writes:
                if cell.readers or cell.writers:
                    self.clashes.append(f"step {me} writes a Var that is in use")
                cell.writers += 1
            for cell in reads:
                if cell.writers:
                    self.clashes.append(f"step {me} reads a Var that is being written")
                cell.readers += 1

    def leave(self, reads: set[Cell], writes: set[Cell]) -> None:
        with self.lock:
            for cell in writes:
                cell.writers -= 1
            for cell in reads:
                cell.readers -= 1


def outcome(call: Callable[[], None]) -> list[Any]:
    """Error raised by a wait, as strings; empty if it returned."""
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
    """Result of the program: values, versions, what each wait saw, number of operations.

    Raises AssertionError if there were conflicting accesses to a Var, or if something is pending afterwards.
    """
    vars = [Var(f"v{i}") for i in range(VARS)]
    cells = [Cell(i) for i in range(VARS)]
    inside = [0]  # number of nested closures that have run
    guard = Guard()
    waits: list[Any] = []

    def pushed(depth: int, var: Var) -> Callable[[], None]:
        def run_inside() -> None:
            with guard.lock:
                inside[0] += 1
            if depth > 1:
                engine.push(pushed(depth - 1, var), (), (var,), name="inside")

        return run_inside

    def closure(me: int, step: Step) -> Callable[[], None]:
        read, written = [cells[v] for v in step.reads], [cells[v] for v in step.writes]
        writes = set(written)
        reads = set(read) - writes

        def mix() -> None:
            guard.enter(me, reads, writes)
            try:
                if step.sleep_us:
                    time.sleep(step.sleep_us * 1e-6)
                value = me
                for cell in read:
                    value = (value * 1000003 ^ cell.value) & 0xFFFFFFFFFFFF
                if step.pushes:
                    own = Var("inside")
                    engine.push(pushed(step.pushes, own), (), (own,), name="inside")
                if step.fails:
                    raise ValueError(f"step {me} with {value}")
                for cell in written:
                    cell.value = (cell.value * 31 + value) & 0xFFFFFFFFFFFF
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
        elif step.action == "forget":
            for v in step.writes:
                vars[v], cells[v] = Var(f"v{v} of {me}"), Cell(me)
        elif step.action == "wait_all":
            waits.append((me, outcome(engine.wait_all), [cell.value for cell in cells], inside[0]))
        else:
            wait = getattr(engine, step.action)
            found = outcome(lambda: wait(*(vars[v] for v in step.reads)))
            waits.append((me, found, [cells[v].value for v in step.reads]))

    before = engine.stats()
    for bulk, steps in groupby(enumerate(program), key=lambda item: item[1].bulk):
        with ExitStack() as stack:
            if bulk:
                stack.enter_context(engine.bulk(bulk))
            for me, step in steps:
                perform(me, step)
    each = [outcome(lambda v=v: engine.wait_for(v)) for v in vars]  # type: ignore[misc]
    waits.append(("each", each))
    waits.append(("all", outcome(engine.wait_all)))
    assert guard.clashes == []
    assert outcome(engine.wait_all) == []
    for var in vars:
        assert var.writer is None and not var.readers
    after = engine.stats()
    simple = {
        "state": [cell.value for cell in cells],
        "versions": [var.version for var in vars],
        "poisoned": [found[1] if found else "" for found in each],
        "inside": inside[0],
    }
    assert simple == (wanted := contract(program)), f"{simple}, but by the contract {wanted}"
    return {
        **simple,
        "waits": waits,
        "counts": {key: after[key] - before[key] for key in after},
    }


def contract(program: list[Step]) -> dict[str, Any]:
    """Result of a program by the contract of engine/engine.py: values and versions of the Vars at the end,
    the failures that poison them, and the number of nested closures that ran.
    """
    state, versions, poisoned, inside = list(range(VARS)), [0] * VARS, [""] * VARS, 0
    for me, step in enumerate(program):
        if step.action == "forget":
            for v in step.writes:
                state[v], versions[v], poisoned[v] = me, 0, ""
        if step.action != "push":
            continue
        failure = next((poisoned[v] for v in step.reads if poisoned[v]), "")
        if not failure:
            inside += step.pushes
            failure = f"step{me}" if step.fails else ""
            value = me
            for v in step.reads:
                value = (value * 1000003 ^ state[v]) & 0xFFFFFFFFFFFF
            for v in step.writes if not failure else ():
                state[v] = (state[v] * 31 + value) & 0xFFFFFFFFFFFF
        for v in set(step.writes):
            versions[v] += 1
            poisoned[v] = failure
    return {"state": state, "versions": versions, "poisoned": poisoned, "inside": inside}


def seeded_program(seed: int) -> list[Step]:
    """The random program of a seed: up to 40 steps."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 40))
    used = int(rng.integers(1, VARS + 1))  # few Vars: long chains; many: parallelism
    failing = float(rng.choice([0.0, 0.05, 0.3]))
    sleeping = float(rng.choice([0.0, 0.0, 0.1]))
    pushing = float(rng.choice([0.0, 0.0, 0.2]))
    bulk, program = 0, []
    for _ in range(length):
        if rng.random() < 0.15:
            bulk = int(rng.choice([0, 0, 1, 3, 50]))
        reads = tuple(int(v) for v in rng.integers(0, used, rng.integers(0, 4)))
        writes = tuple(int(v) for v in rng.integers(0, used, rng.integers(0, 3)))
        if rng.random() < 0.1:
            action = ("wait_for", "wait_to_write", "wait_all", "forget")[int(rng.integers(4))]
            program.append(Step(action, reads, writes, bulk=bulk))
        else:
            program.append(
                Step(
                    reads=reads,
                    writes=writes,
                    fails=bool(rng.random() < failing),
                    sleep_us=int(rng.random() < sleeping),
                    priority=int(rng.integers(-1, 2)),
                    kind=KINDS[int(rng.integers(len(KINDS)))],
                    bulk=bulk,
                    pushes=int(rng.integers(1, 4)) if rng.random() < pushing else 0,
                )
            )
    return program


def without_neighbours(program: list[Step]) -> list[Step]:
    """The program for an engine that other threads use, too, with failures and work of their own: `wait_all`
    becomes `wait_for`, and nothing fails or pushes.
    """
    return [
        Step(
            step.action.replace("wait_all", "wait_for"),
            step.reads,
            step.writes,
            False,
            step.sleep_us,
            step.priority,
            step.kind,
            step.bulk,
        )
        for step in program
    ]
