"""Random programs on the threaded engine, compared with `naive`; threads, forks, signals, ends of processes

Most cases are one program (torture/engine_programs.py) on an engine with 1, 2, 4 or 64 workers. Some are one
of `UNUSUAL` instead: 64 threads on one engine; a fork while other threads push, after which parent and child
run programs; a storm of SIGINT in a forked child; an engine that is stopped, or a process that exits, with
work pending. A case that does not end in `PATIENCE_S` is a failure, with the stacks of all threads on stderr.
Memory leaks are detected by comparing Python's allocated blocks and resident memory over the run.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from mxlite.core.errors import EngineError
from mxlite.engine import NaiveEngine, ThreadedEngine, Var
from torture.allowance import Allowance, Outcome
from torture.engine_programs import run as run_program, seeded_program, without_neighbours

CASES = 100_000
SMALL = 1200
PATIENCE_S = 60.0
THREADS = 64
GROWTH_BYTES = 24 * 2**20
GROWTH_BLOCKS = 20_000
SETTINGS: tuple[dict[str, int], ...] = (
    dict(workers=1),
    dict(workers=2),
    dict(workers=4, max_pending=5),
    dict(workers=64),
)


def run(allowance: Allowance) -> Outcome:
    engines = [ThreadedEngine(**setting) for setting in SETTINGS]
    failures: list[str] = []
    counts: dict[str, int] = {}
    start: tuple[int, int] | None = None
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__)
    try:
        for seed in allowance:
            every, case = _chosen(seed)
            counts[case.__name__.strip("_")] = counts.get(case.__name__.strip("_"), 0) + 1
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True, file=sys.__stderr__)
            try:
                case(seed, engines[seed // every % len(engines)])
            except Exception as error:
                failures.append(
                    f"seed {seed}, {case.__name__.strip('_')}: {type(error).__name__}: {error}"[:400]
                )
                if len(failures) > 20:
                    break
            if allowance.done == min(2000, allowance.cases // 2):
                start = _memory()
    finally:
        faulthandler.cancel_dump_traceback_later()
    for engine in engines:
        engine.stop()
    note = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))
    if start is not None:
        resident, blocks = (now - then for now, then in zip(_memory(), start, strict=True))
        note += f"; resident memory grew by {resident / 2**20:.1f} MiB, Python's blocks by {blocks}"
        if resident > GROWTH_BYTES or blocks > GROWTH_BLOCKS:
            failures.append(f"memory grew: {resident} bytes, {blocks} blocks")
    return Outcome(allowance.done, failures, note)


def _chosen(seed: int) -> tuple[int, Callable[[int, ThreadedEngine], None]]:
    for every, case in UNUSUAL:
        if seed % every == every - 1:
            return every, case
    return 1, programs


def _memory() -> tuple[int, int]:
    """Resident bytes, and the number of blocks allocated by Python."""
    gc.collect()
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) if statm.exists() else 0
    return pages * 4096, sys.getallocatedblocks()


def _agree(seed: int, found: dict[str, Any], expected: dict[str, Any], keys: tuple[str, ...] = ()) -> None:
    for key in keys or tuple(expected):
        if found[key] != expected[key]:
            raise AssertionError(f"program {seed}: {key} is {found[key]}, but on naive {expected[key]}"[:300])


def programs(seed: int, engine: ThreadedEngine) -> None:
    """Run one program."""
    program = seeded_program(seed)
    _agree(seed, run_program(program, engine), run_program(program, NaiveEngine()))


_OWN = ("state", "versions", "waits")  # compared for a program that shares the engine


def threads(seed: int, engine: ThreadedEngine) -> None:
    """64 threads, each with its own program and a Var that all of them write."""
    rng = random.Random(seed)
    shared, count, wrong = Var("shared"), [0], []

    def add() -> None:
        before = count[0]
        time.sleep(0)
        count[0] = before + 1

    def work(mine: int) -> None:
        try:
            program = without_neighbours(seeded_program(mine))
            for _ in range(3):
                engine.push(add, (), (shared,))
            _agree(mine, run_program(program, engine), run_program(program, NaiveEngine()), _OWN)
            engine.push(add, (), (shared,))
            if mine % 3:
                engine.wait_for(shared)
            elif mine % 2:
                engine.wait_all()
        except BaseException as error:
            wrong.append(f"{mine}: {type(error).__name__} {error}")

    first = rng.randrange(10**6)
    started = [threading.Thread(target=work, args=(first + i,)) for i in range(THREADS)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    engine.wait_all()
    assert not wrong, wrong[:3]
    assert count[0] == 4 * THREADS, f"{count[0]} writes of {4 * THREADS} are left"
    assert shared.version == 4 * THREADS


def _in_child(check: Callable[[], None]) -> None:
    """`check()` in a forked child; raises AssertionError with its output if it failed or hung."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: a multi-threaded process forks
        child = os.fork()
    if not child:
        os.close(told)
        code = 1
        try:
            check()
            code = 0
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}"[:500].encode())
        finally:
            os._exit(code)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        if not select.select([pipe], [], [], PATIENCE_S / 2)[0]:
            os.kill(child, signal.SIGUSR1)  # prints its stacks
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the child ended with {status}: {said or 'it hung'}"


def forks(seed: int, engine: ThreadedEngine) -> None:
    """A fork at some moment while three threads push; child and parent continue with programs."""
    rng = random.Random(seed)
    over, wrong = threading.Event(), []

    def work(mine: int) -> None:
        while not over.is_set():
            try:
                program = without_neighbours(seeded_program(mine))
                _agree(mine, run_program(program, engine), run_program(program, NaiveEngine()), _OWN)
            except BaseException as error:
                wrong.append(f"{mine}: {type(error).__name__} {error}")
                return
            mine += 1

    def in_child() -> None:
        for mine in range(seed, seed + 5):
            programs(mine, engine)
        engine.stop()

    started = [threading.Thread(target=work, args=(rng.randrange(10**6),)) for _ in range(3)]
    for thread in started:
        thread.start()
    try:
        time.sleep(rng.random() * 0.01)
        _in_child(in_child)
    finally:
        over.set()
        for thread in started:
            thread.join()
    assert not wrong, wrong
    engine.wait_all()
    programs(seed, engine)


def signals(seed: int, engine: ThreadedEngine) -> None:
    """SIGINT at random moments of pushes and waits, in a child; pushed operations run once and in order."""

    def storm() -> None:
        rng = random.Random(seed)
        mine = ThreadedEngine(workers=2, max_pending=30)
        vars = [Var(str(k)) for k in range(4)]
        seen: list[list[int]] = [[] for _ in vars]
        returned: list[set[int]] = [set() for _ in vars]
        armed, interrupts, turn = False, 0, 0

        def interrupt(*_: object) -> None:
            nonlocal armed
            if armed:
                armed = False
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-5, 2e-3))
                with mine.bulk(3) if interrupts % 2 else nullcontext():
                    while armed:  # an interrupt inside of a callback of the interpreter is dropped
                        turn += 1
                        k, me = turn % 4, turn
                        mine.push(lambda k=k, me=me: seen[k].append(me), (vars[(k + 1) % 4],), (vars[k],))  # type: ignore[misc]
                        returned[k].add(me)
                        if turn % 17 == 0:
                            mine.wait_for(vars[k]) if turn % 2 else mine.wait_all()
            except KeyboardInterrupt:
                interrupts += 1
        armed = False
        mine.wait_all()
        for k in range(4):
            assert seen[k] == sorted(set(seen[k])), "an operation ran twice or out of order"
            assert returned[k] <= set(seen[k]), "an operation that was pushed did not run"
            assert len(seen[k]) - len(returned[k]) <= interrupts
        assert mine.stats()["pending"] == 0
        mine.stop()
        for mine_too in range(seed, seed + 3):
            programs(mine_too, ThreadedEngine(workers=2))

    _in_child(storm)


def stops(seed: int, engine: ThreadedEngine) -> None:
    """An engine that is stopped while threads push: accepted operations have run, the rest is rejected."""
    rng = random.Random(seed)
    mine = ThreadedEngine(workers=rng.choice([1, 3]), max_pending=rng.choice([5, 4096]))
    ran: list[int] = []
    pushed = [0, 0, 0]
    raised = []

    def work(index: int) -> None:
        var = Var()
        try:
            for _ in range(200):
                mine.push(lambda: ran.append(index), (), (var,), kind=rng.choice(["compute", "io"]))
                pushed[index] += 1
        except EngineError as error:
            raised.append(str(error))

    started = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in started:
        thread.start()
    time.sleep(rng.random() * 0.003)
    mine.stop()
    for thread in started:
        thread.join()
    for index in range(3):
        # A push in progress when the engine stopped may be the last that runs, or one that does not.
        assert abs(ran.count(index) - pushed[index]) <= 1, (ran.count(index), pushed[index])
    assert all("stop" in text for text in raised), raised


_ENDING = """
import faulthandler, os, random, sys, threading, time
from mxlite.engine import get_engine, ThreadedEngine, Var
faulthandler.dump_traceback_later({patience}, exit=True)
rng = random.Random({seed})
engines = [get_engine(), ThreadedEngine(workers=3, max_pending=4)]
vars, done = [Var(), Var()], [0]
def work(e, var, depth):
    time.sleep(rng.choice([0, 0, 1e-4]))
    if depth:
        e.push(lambda: work(e, var, depth - 1), (), (var,))
    else:
        with open(sys.argv[1], "a") as file:
            file.write("x")
for i in range(rng.randrange(1, 60)):
    e = rng.choice(engines)
    e.push(lambda e=e: work(e, vars[i % 2], i % 3), (), (vars[i % 2],), kind=rng.choice(["compute", "io"]))
if rng.random() < 0.3:
    threading.Thread(target=lambda: [engines[0].push(lambda: None, (), (Var(),)) for _ in range(99)]).start()
how = rng.randrange(4)
print(i + 1, flush=True)
if how == 1: sys.exit(0)
if how == 2: engines[0].wait_all()
if how == 3: os.kill(os.getpid(), 2)
"""


def ends(seed: int, engine: ThreadedEngine) -> None:
    """A process that exits with work pending (at its end, by sys.exit, by SIGINT): all of it is done."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        marks = Path(folder) / "marks"
        done = subprocess.run(
            [sys.executable, "-c", _ENDING.format(seed=seed, patience=PATIENCE_S), str(marks)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S
            * 5,  # to start takes long on a busy machine; a hang ends before that, with stacks
        )
        assert done.returncode in (0, -signal.SIGINT), (done.returncode, done.stderr[-3000:])
        assert done.returncode or not done.stderr, done.stderr[-3000:]
        written = len(marks.read_text()) if marks.exists() else 0
        assert written == int(done.stdout), f"{written} of {done.stdout.strip()} operations were done"


UNUSUAL: tuple[tuple[int, Callable[[int, ThreadedEngine], None]], ...] = (
    (1000, ends),
    (500, signals),
    (200, threads),
    (100, forks),
    (50, stops),
)
"""Cases of these kinds are run once in so many, the rarest first."""
