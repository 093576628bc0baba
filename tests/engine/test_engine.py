"""The engine's contract, clause by clause; most of it on both engines."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mxlite as mx
from mxlite.core.errors import EngineError, MXLiteError, OperatorError
from mxlite.engine import (
    Engine,
    get_engine,
    inline_engine,
    NaiveEngine,
    process,
    set_engine,
    ThreadedEngine,
    use_engine,
    Var,
    Vars,
)
from mxlite.engine.operation import check_vars
from tests.engine.watchdog import in_time

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["naive", "threaded"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = NaiveEngine() if request.param == "naive" else ThreadedEngine(workers=2)
    yield engine
    try:
        engine.stop()
    except OperatorError:
        pass  # of a test about failures


@pytest.fixture
def threaded() -> Iterator[ThreadedEngine]:
    engine = ThreadedEngine(workers=2)
    yield engine
    try:
        engine.stop()
    except OperatorError:
        pass


def fail(message: str = "no") -> Callable[[], None]:
    def failing() -> None:
        raise ValueError(message)

    return failing


def nothing() -> None:
    pass


def here() -> str:
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0)
    return condition()


def run_script(script: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONFAULTHANDLER="1")
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment,
    )


# -- order ---------------------------------------------------------------------------------------------


@in_time()
def test_order_of_push_is_order_of_effect(engine: Engine) -> None:
    v, seen = Var("v"), []
    for i in range(3000):
        engine.push(lambda i=i: seen.append(i), [v], [v])
    engine.wait_for(v)
    assert seen == list(range(3000))
    assert v.version == 3000


@in_time()
def test_a_reader_sees_the_write_before_it_and_not_the_one_after(engine: Engine) -> None:
    v, box, seen = Var("v"), [0], []
    out = [Var(f"out{i}") for i in range(50)]
    for i in range(50):
        engine.push(lambda i=i: box.__setitem__(0, i), (), (v,))
        engine.push(lambda: seen.append(box[0]), (v,), (out[i],))
    engine.wait_all()
    assert seen == list(range(50))


@in_time()
def test_readers_run_together(threaded: ThreadedEngine) -> None:
    v, both = Var("v"), threading.Barrier(2)
    threaded.push(nothing, (), (v,))
    for _ in range(2):
        threaded.push(lambda: both.wait(20), (v,), ())
    threaded.wait_all()


@in_time()
def test_a_writer_waits_for_all_readers(threaded: ThreadedEngine) -> None:
    v, release, seen = Var("v"), threading.Event(), []
    threaded.push(lambda: release.wait(20), (v,), ())
    threaded.push(lambda: seen.append("writer"), (), (v,))
    threaded.push(lambda: seen.append("other"), (), (Var("w"),))
    assert until(lambda: seen == ["other"])
    time.sleep(0.05)
    assert seen == ["other"]
    release.set()
    threaded.wait_for(v)
    assert seen == ["other", "writer"]


@in_time()
def test_duplicates_and_a_var_in_both_lists_mean_one_write(engine: Engine) -> None:
    v, w, seen = Var("v"), Var("w"), []
    engine.push(lambda: seen.append(1), [v, v, w, w], [v, v])
    engine.push(lambda: seen.append(2), [v, v], [w, v, w])
    engine.wait_for(v, w, v)
    assert seen == [1, 2]
    assert (v.version, w.version) == (2, 1)


@in_time()
def test_wait_for_does_not_wait_for_readers_but_wait_to_write_does(threaded: ThreadedEngine) -> None:
    v, release, seen = Var("v"), threading.Event(), []
    threaded.push(nothing, (), (v,))
    threaded.push(lambda: (release.wait(20), seen.append("read")), (v,), ())
    threaded.wait_for(v)
    assert not seen
    threading.Timer(0.05, release.set).start()
    threaded.wait_to_write(v)
    assert seen == ["read"]


@in_time()
def test_a_wait_returns_while_all_workers_are_busy_elsewhere() -> None:
    engine = ThreadedEngine(workers=1)
    v, u, started, release = Var("v"), Var("u"), threading.Event(), threading.Event()
    engine.push(nothing, (), (v,))
    engine.push(lambda: (started.set(), release.wait(25)), (), (u,))
    started.wait(20)
    engine.push(nothing, (u,), (u,))  # stays in the inbox: nobody is free to link it
    engine.wait_for(v)
    assert not release.is_set()
    release.set()
    engine.stop()


@in_time()
def test_the_highest_priority_runs_first_then_the_oldest() -> None:
    engine = ThreadedEngine(workers=1)
    release, seen = threading.Event(), []
    engine.push(lambda: release.wait(20), (), ())
    for i, priority in enumerate([0, 5, -1, 5, 0, 9]):
        engine.push(lambda i=i: seen.append(i), (), (Var(),), priority=priority)
    release.set()
    engine.wait_all()
    assert seen == [5, 1, 3, 0, 4, 2]
    engine.stop()


@in_time()
def test_copies_and_input_have_workers_of_their_own() -> None:
    engine = ThreadedEngine(workers=1)
    release, names = threading.Event(), []
    engine.push(lambda: release.wait(20), (), ())
    out = [Var(), Var(), Var()]
    for var, (device, kind) in zip(out, [("cpu", "copy"), ("cpu", "io"), ("gpu(0)", "compute")]):
        engine.push(
            lambda: names.append(threading.current_thread().name), (), (var,), device=device, kind=kind
        )
    engine.wait_for(*out)
    assert not release.is_set() and len(set(names)) == 3
    release.set()
    engine.stop()


def test_a_team_runs_on_one_thread_whoever_made_it_ready(engine: Engine) -> None:
    var, seen = Var(), set()
    for _ in range(100):
        engine.push(nothing, writes=[var])
        engine.push(lambda: seen.add(threading.get_ident()), writes=[var], kind="team")
        engine.wait_for(var)
    assert len(seen) == 1


def test_other_work_goes_on_beside_a_team(threaded: ThreadedEngine) -> None:
    gates = [threading.Event(), threading.Event()]
    passed: list[bool] = []
    threaded.push(lambda: passed.extend(gate.wait(10) for gate in gates), kind="team")
    for gate in gates:
        threaded.push(gate.set)
    threaded.wait_all()
    assert passed == [True, True]


def test_what_is_pushed_again_and_again_is_looked_at_once(engine: Engine) -> None:
    a, b = Var("a"), Var("b")
    vars = Vars([a, b, a])
    assert vars == (a, b) and check_vars(vars) is vars
    seen: list[int] = []
    for n in range(3):
        engine.push(lambda n=n: seen.append(n), (), vars)
    engine.wait_for(a)
    assert seen == [0, 1, 2] and a.version == b.version == 3
    with pytest.raises(TypeError, match="Vars, got str: 'c'"):
        Vars([a, "c"])  # type: ignore[list-item]


def test_wrong_arguments_are_told_to_the_caller(engine: Engine) -> None:
    with pytest.raises(TypeError, match="Vars, got int: 3"):
        engine.push(nothing, [3], ())  # type: ignore[list-item]
    with pytest.raises(EngineError, match="got 'magic'"):
        engine.push(nothing, kind="magic")
    with pytest.raises(EngineError, match="at least 1, got 0"):
        engine.bulk(0)
    with mx.engine.bulk(0):  # of a program for MXNet: nothing is collected
        engine.push(nothing)
    mx.engine.set_bulk_size(10)
    assert [mx.engine.set_bulk_size(3), mx.engine.set_bulk_size(0)] == [10, 3]
    with pytest.raises(EngineError, match="workers=0, max_pending=7"):
        ThreadedEngine(workers=0, max_pending=7)
    engine.wait_all()


# -- many threads --------------------------------------------------------------------------------------


@in_time()
def test_many_threads_push_and_each_keeps_its_order(engine: Engine) -> None:
    shared, seen = Var("shared"), []

    def push_many(me: int) -> None:
        own = Var()
        for i in range(300):
            engine.push(lambda i=i: seen.append((me, i)), (own,), (shared,))
            if i % 50 == 0:
                engine.wait_for(shared)

    threads = [threading.Thread(target=push_many, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.wait_all()
    assert len(seen) == 2400
    for me in range(8):
        assert [i for who, i in seen if who == me] == list(range(300))


@in_time()
def test_a_busy_neighbour_does_not_hold_up_wait_all() -> None:
    threaded = ThreadedEngine(workers=2, max_pending=200)
    leave = threading.Event()

    def keep_pushing() -> None:
        v = Var()
        while not leave.is_set():
            threaded.push(lambda: time.sleep(0.0002), (v,), (v,))

    thread = threading.Thread(target=keep_pushing)
    thread.start()
    try:
        for _ in range(3):
            seen: list[int] = []
            threaded.push(lambda seen=seen: seen.append(1), (), (Var(),))
            threaded.wait_all()
            assert seen == [1]
    finally:
        leave.set()
        thread.join()
    threaded.stop()


@in_time()
def test_an_operation_may_push_and_wait_all_includes_it(engine: Engine) -> None:
    seen: list[int] = []

    def push_next(depth: int) -> None:
        seen.append(depth)
        time.sleep(0.0005)
        if depth:
            engine.push(lambda: push_next(depth - 1), (), (Var(),))

    engine.push(lambda: push_next(20), (), (Var(),))
    engine.wait_all()
    assert seen == list(range(20, -1, -1))


@in_time()
def test_what_an_operation_pushes_on_its_own_var_runs_after_it(engine: Engine) -> None:
    v, seen = Var("v"), []

    def parent() -> None:
        engine.push(lambda: seen.append("child"), (v,), (v,))
        seen.append("parent")

    engine.push(parent, (), (v,))
    engine.wait_all()
    assert seen == ["parent", "child"]


# -- failures ------------------------------------------------------------------------------------------


@in_time()
def test_a_failure_names_operation_and_line_and_is_raised_at_every_wait(engine: Engine) -> None:
    v = Var("v")
    engine.push(fail("boom"), (), (v,), name="divide"); line = here()  # fmt: skip # noqa: E702
    for wait in (engine.wait_for, engine.wait_for, engine.wait_to_write):
        with pytest.raises(OperatorError, match="boom") as caught:
            wait(v)
        assert caught.value.operation == "divide"
        assert caught.value.where == line
        assert isinstance(caught.value.__cause__, ValueError)
    engine.wait_all()  # it has surfaced


@in_time()
def test_readers_of_poison_do_not_run_and_poison_what_they_write(engine: Engine) -> None:
    a, b, c, ran = Var("a"), Var("b"), Var("c"), []
    engine.push(fail(), (), (a,), name="first")
    engine.push(lambda: ran.append("b"), (a,), (b,), name="second")
    engine.push(lambda: ran.append("c"), (b, c), (c,), name="third")
    with pytest.raises(OperatorError) as caught:
        engine.wait_for(c)
    assert caught.value.operation == "first"
    assert ran == []
    assert engine.stats()["failed"] == 1 and engine.stats()["skipped"] == 2


@in_time()
def test_writing_anew_heals_and_changing_in_place_does_not(engine: Engine) -> None:
    a, ran = Var("a"), []
    engine.push(fail(), (), (a,))
    engine.push(lambda: ran.append("a += 1"), (a,), (a,))
    with pytest.raises(OperatorError):
        engine.wait_for(a)
    engine.push(lambda: ran.append("a[:] = 0"), (), (a,))
    engine.wait_for(a)
    engine.push(lambda: ran.append("a += 1"), (a,), (a,))
    engine.wait_for(a)
    assert ran == ["a[:] = 0", "a += 1"]


@in_time()
def test_an_overwritten_failure_is_not_lost(engine: Engine) -> None:
    a = Var("a")
    engine.push(fail("early"), (), (a,))
    engine.push(nothing, (), (a,))
    engine.wait_for(a)
    with pytest.raises(OperatorError, match="early"):
        engine.wait_all()
    engine.wait_all()


@in_time()
def test_wait_all_raises_the_first_with_the_others_as_notes_once(engine: Engine) -> None:
    seen = Var("seen")
    engine.push(fail("seen"), (), (seen,), name="zero")
    with pytest.raises(OperatorError):
        engine.wait_for(seen)
    for name in ("one", "two", "three"):
        engine.push(fail(name), (), (), name=name)
    with pytest.raises(OperatorError, match="one") as caught:
        engine.wait_all()
    notes = caught.value.__notes__
    assert len(notes) == 2 and "two" in notes[0] and "three" in notes[1]
    engine.wait_all()


@in_time()
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, StopIteration])
def test_any_exception_in_a_closure_is_a_failure(engine: Engine, kind: type[BaseException]) -> None:
    v = Var("v")

    def failing() -> None:
        raise kind("x")

    engine.push(failing, (), (v,))
    with pytest.raises(OperatorError) as caught:
        engine.wait_for(v)
    assert isinstance(caught.value.__cause__, kind)
    engine.push(nothing, (), (v,))
    engine.wait_for(v)


@in_time()
def test_a_given_line_is_used_and_an_unnamed_operation_is_called_by_its_closure(engine: Engine) -> None:
    v = Var("v")
    engine.push(fail(), (), (v,), where="net.py:7")
    with pytest.raises(
        OperatorError, match=r"failing, called at net\.py:7, failed with ValueError: no"
    ) as caught:
        engine.wait_for(v)
    assert caught.value.where == "net.py:7"


@in_time()
def test_waiting_inside_an_operation_is_an_error(engine: Engine) -> None:
    v, w = Var("v"), Var("w")
    for wait in (lambda: engine.wait_for(w), lambda: engine.wait_to_write(w), engine.wait_all, engine.stop):
        engine.push(wait, (), (v,))
        with pytest.raises(OperatorError, match="wait inside an operation") as caught:
            engine.wait_for(v)
        assert isinstance(caught.value.__cause__, EngineError)


# -- bounds --------------------------------------------------------------------------------------------


@in_time()
def test_push_blocks_while_too_much_is_pending() -> None:
    engine = ThreadedEngine(workers=1, max_pending=10)
    release, pushed, peak = threading.Event(), [], []
    v = Var("v")

    def push_many() -> None:
        for i in range(200):
            engine.push(lambda: (release.wait(20), peak.append(engine.stats()["pending"])), (v,), (v,))
            pushed.append(i)

    thread = threading.Thread(target=push_many)
    thread.start()
    try:
        assert until(lambda: len(pushed) == 10)
        time.sleep(0.1)
        assert len(pushed) == 10
    finally:
        release.set()
        thread.join()
    engine.wait_all()
    assert len(peak) == 200 and max(peak) <= 11  # while an operation is linked it may be counted twice
    engine.stop()


@in_time()
def test_with_several_threads_the_bound_holds_up_to_their_number() -> None:
    engine = ThreadedEngine(workers=2, max_pending=8)
    peak: list[int] = []

    def push_many() -> None:
        v = Var()
        for _ in range(200):
            engine.push(lambda: peak.append(engine.stats()["pending"]), (v,), (v,))

    threads = [threading.Thread(target=push_many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.wait_all()
    assert len(peak) == 1200 and max(peak) <= 8 + 6
    engine.stop()


@in_time()
def test_room_for_one_is_enough_and_operations_push_beyond_it() -> None:
    engine = ThreadedEngine(workers=1, max_pending=1)
    seen: list[int] = []

    def push_five() -> None:
        for i in range(5):
            engine.push(lambda i=i: seen.append(i), (), (Var(),))

    for _ in range(20):
        engine.push(push_five, (), (Var(),))
    engine.wait_all()
    assert len(seen) == 100
    engine.stop()


@in_time()
@pytest.mark.parametrize("workers", [1, 2])
def test_a_push_wakes_a_worker_however_the_two_interleave(workers: int) -> None:
    """No wait in here: a wait would wake the worker whose ring was lost. Every second operation has many
    Vars, so that the next push comes while the worker lets go of them, on its way to sleep."""
    engine = ThreadedEngine(workers=workers)
    many, interval = [Var() for _ in range(300)], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for i in range(2000):
            ran: list[int] = []
            engine.push(lambda ran=ran: ran.append(1), many, ())
            assert until(lambda ran=ran: len(ran) == 1, 3.0), f"lost in round {i}"
            for _ in range(i % 30):
                pass
            engine.push(lambda ran=ran: ran.append(2), (), (many[0],))
            if i % 3:
                engine.push(lambda ran=ran: ran.append(3), (), (many[1],), kind="io")
            assert until(lambda ran=ran, i=i: len(ran) == 2 + bool(i % 3), 3.0), f"lost in round {i}"
    finally:
        sys.setswitchinterval(interval)
    engine.stop()


@in_time()
def test_closures_and_vars_die_when_they_have_run(threaded: ThreadedEngine) -> None:
    class Load:
        def __call__(self) -> None:
            pass

    def push_some() -> list[weakref.ref[object]]:
        refs: list[weakref.ref[object]] = []
        a, b = Var("a"), Var("b")
        for _ in range(5):
            load = Load()
            threaded.push(load, (a,), (b,))
            refs.append(weakref.ref(load))
        with threaded.bulk(3):
            for _ in range(5):
                load = Load()
                threaded.push(load, (b,), (a, b))
                refs.append(weakref.ref(load))
        threaded.wait_for(a, b)
        return [*refs, weakref.ref(a), weakref.ref(b)]

    gc.disable()
    try:
        refs = push_some()
        assert until(lambda: all(ref() is None for ref in refs), 2.0)
    finally:
        gc.enable()


@in_time()
def test_a_finalizer_may_push_in_the_middle_of_anything(threaded: ThreadedEngine) -> None:
    v, seen = Var("v"), []

    class Loud:
        def __init__(self) -> None:
            self.me = self  # only the cycle collector frees it, whenever it likes

        def __del__(self) -> None:
            threaded.push(lambda: seen.append(1), (v,), (v,))

    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for i in range(2000):
            Loud()
            if i % 100 == 0:
                with threaded.bulk(7):
                    for _ in range(20):
                        Loud()
                        threaded.push(nothing, (v,), (v,))
            threaded.push(nothing, (v,), (v,))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    threaded.wait_all()
    assert len(seen) == 2000 + 20 * 20


# -- bulk ----------------------------------------------------------------------------------------------


@in_time()
def test_bulk_hands_over_at_its_size_at_a_wait_and_at_its_end(threaded: ThreadedEngine) -> None:
    v, seen = Var("v"), []
    with threaded.bulk(3):
        for i in range(4):
            threaded.push(lambda i=i: seen.append(i), (v,), (v,))
        assert until(lambda: seen == [0, 1, 2])
        time.sleep(0.02)
        assert seen == [0, 1, 2]
        threaded.wait_for(v)
        assert seen == [0, 1, 2, 3]
        threaded.push(lambda: seen.append(4), (v,), (v,))
    threaded.wait_for(v)
    assert seen == [0, 1, 2, 3, 4]


@in_time()
def test_a_bulk_is_one_pending_operation_of_its_kind() -> None:
    engine = ThreadedEngine(workers=1)
    release, v = threading.Event(), Var("v")
    engine.push(lambda: release.wait(20), (), ())
    with engine.bulk(100):
        for _ in range(10):
            engine.push(nothing, (v,), (v,))
        for _ in range(10):
            engine.push(nothing, (v,), (v,), kind="io")
    assert engine.stats()["pending"] == 3
    release.set()
    engine.stop()
    assert engine.stats() == {"pushed": 21, "executed": 21, "failed": 0, "skipped": 0, "pending": 0}


@in_time()
def test_in_a_bulk_the_member_that_failed_is_named_and_independent_ones_run(engine: Engine) -> None:
    a, b, c, ran = Var("a"), Var("b"), Var("c"), []
    with engine.bulk(10):
        engine.push(lambda: ran.append("a"), (), (a,), name="fine")
        engine.push(fail(), (a,), (b,), name="broken"); line = here()  # fmt: skip # noqa: E702
        engine.push(lambda: ran.append("b"), (b,), (b,), name="dependent")
        engine.push(lambda: ran.append("c"), (a,), (c,), name="independent")
    engine.wait_for(a, c)
    with pytest.raises(OperatorError) as caught:
        engine.wait_for(b)
    assert (caught.value.operation, caught.value.where) == ("broken", line)
    assert ran == ["a", "c"]


@in_time()
def test_bulks_nest_and_an_exception_in_the_block_loses_nothing(engine: Engine) -> None:
    v, seen = Var("v"), []
    with pytest.raises(KeyError):
        with engine.bulk(10):
            engine.push(lambda: seen.append(1), (v,), (v,))
            with engine.bulk(2):
                for i in (2, 3, 4):
                    engine.push(lambda i=i: seen.append(i), (v,), (v,))
            engine.push(lambda: seen.append(5), (v,), (v,))
            raise KeyError
    engine.push(lambda: seen.append(6), (v,), (v,))
    engine.wait_for(v)
    assert seen == [1, 2, 3, 4, 5, 6]


# -- the current engine --------------------------------------------------------------------------------


@in_time()
def test_use_engine_changes_the_current_engine_and_puts_it_back() -> None:
    before = get_engine()
    assert get_engine() is before
    with use_engine("naive") as inner:
        assert get_engine() is inner and isinstance(inner, NaiveEngine)
        with use_engine("threaded") as innermost:
            assert isinstance(innermost, ThreadedEngine)
        with pytest.raises(EngineError, match="after stop"):
            innermost.push(nothing)
    assert get_engine() is before
    with pytest.raises(EngineError, match="'naive', 'threaded', got 'fast'"):
        set_engine("fast")


@in_time()
def test_set_engine_drains_the_old_one_first() -> None:
    old, new, seen, v = ThreadedEngine(workers=1), NaiveEngine(), [], Var("v")
    before = set_engine(old)
    try:
        get_engine().push(lambda: (time.sleep(0.05), seen.append(1)), (), (v,))
        assert set_engine(new) is old
        assert seen == [1]
        get_engine().push(lambda: seen.append(2), (v,), (v,))
        assert seen == [1, 2]
    finally:
        set_engine(before)
    old.stop()


@in_time()
def test_stop_finishes_the_work_and_ends_the_workers(engine: Engine) -> None:
    v, seen = Var("v"), []
    for i in range(100):
        engine.push(lambda i=i: seen.append(i), (v,), (v,))
    engine.push(fail("unseen"), (), ())
    with pytest.raises(OperatorError, match="unseen"):
        engine.stop()
    assert len(seen) == 100
    engine.stop()
    engine.wait_for(v)
    engine.wait_all()
    for device in ("cpu", "cpu(1)"):
        with pytest.raises(EngineError, match="push after stop"):
            engine.push(nothing, device=device)
    if isinstance(engine, ThreadedEngine):
        assert not any(thread.is_alive() for pool in engine._pools.values() for thread in pool.threads)


@in_time()
def test_the_environment_chooses_the_default_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from mxlite.engine import current

    for kind, expected in (("naive", NaiveEngine), ("threaded", ThreadedEngine)):
        monkeypatch.setattr(current, "_current", {})
        monkeypatch.setenv("MXLITE_ENGINE", kind)
        assert type(get_engine()) is expected
    monkeypatch.setattr(current, "_current", {})
    monkeypatch.setenv("MXLITE_ENGINE", "fast")
    with pytest.raises(MXLiteError, match="fast"):
        get_engine()


# -- the process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["naive", "threaded"])
def test_a_script_that_falls_off_its_end_finishes_its_work(kind: str) -> None:
    done = run_script(f"""
        import time
        from mxlite.engine import get_engine, set_engine, Var
        set_engine({kind!r})
        e, v, count = get_engine(), Var("v"), []
        for i in range(500):
            e.push(lambda: count.append(1), (v,), (v,))
        e.push(lambda: time.sleep(0.2), (v,), (v,), kind="io")
        e.push(lambda: e.push(lambda: print("last", len(count)), (v,), (v,)), (v,), (v,))
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "last 500\n", "")


@pytest.mark.parametrize("how", ["", "import sys; sys.exit(0)", "import sys; sys.stderr.flush()"])
@pytest.mark.parametrize("kind", ["naive", "threaded"])
def test_a_failure_that_nobody_waited_for_is_printed_at_exit_and_is_no_success(kind: str, how: str) -> None:
    done = run_script(f"""
        import atexit, sys
        atexit.register(lambda: print("first in, last out", file=sys.stderr, flush=True))
        from mxlite.engine import get_engine, set_engine, Var
        set_engine({kind!r})
        get_engine().push(lambda: 1 / 0, (), (Var(),), name="halve")
        print("last line")
        {how}
        """)
    assert (done.returncode, done.stdout) == (120, "last line\n")
    assert "nobody waited" in done.stderr and "halve, called at <string>:6" in done.stderr
    assert "ZeroDivisionError" in done.stderr and done.stderr.endswith("first in, last out\n")


@pytest.mark.parametrize("ending", ["e.wait_all()", "e.wait_for(v)", "e.push(lambda: 1, (), (v,))"])
def test_a_failure_that_was_seen_and_one_that_was_written_over_end_as_they_should(ending: str) -> None:
    done = run_script(f"""
        from mxlite.engine import get_engine, Var
        e, v = get_engine(), Var()
        e.push(lambda: 1 / 0, (), (v,), name="halve")
        try:
            {ending}
        except Exception:
            pass
        """)
    assert done.returncode == (120 if "push" in ending else 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("kind", ["naive", "threaded"])
def test_after_a_fork_both_sides_go_on_computing(kind: str) -> None:
    done = run_script(f"""
        import os, time
        from mxlite.engine import get_engine, set_engine, Var
        set_engine({kind!r})
        e, v, total = get_engine(), Var("v"), [0]
        def add():
            total[0] += 1
        def slow_add():
            time.sleep(0.001); add()
        for i in range(50):
            e.push(slow_add, (v,), (v,))
        bulk = e.bulk(100)
        bulk.__enter__()
        e.push(add, (v,), (v,))
        child = os.fork()
        for i in range(50 if child else 20):
            e.push(add, (v,), (v,))
        e.wait_for(v)
        bulk.__exit__(None, None, None)
        for i in range(10):
            e.push(add, (v,), (v,))
            e.wait_all()
        e.stop()
        if child:
            _, status = os.waitpid(child, 0)
            print(total[0], os.waitstatus_to_exitcode(status))
        else:
            os._exit(total[0])
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "111 81\n"


def test_an_engine_that_is_made_while_others_come_to_rest_is_left_alone(monkeypatch) -> None:
    """Only what was brought to rest before a fork is woken after it."""
    known: weakref.WeakSet[Engine] = weakref.WeakSet()
    monkeypatch.setattr(process, "_live", known)
    made: list[Engine] = []

    class Making(NaiveEngine):
        def before_fork(self) -> None:
            super().before_fork()
            made.append(NaiveEngine())

    engine = Making()
    for after in (process._after_fork_in_parent, process._after_fork_in_child):
        process._before_fork()
        assert made[-1] in known
        after()
    for e in (engine, *made):
        v = Var("v")
        e.push(lambda: None, (), (v,))
        e.wait_for(v)
        assert v.version == 1


def test_an_engine_of_an_operation_is_nobody_else_s(monkeypatch) -> None:
    known: weakref.WeakSet[Engine] = weakref.WeakSet()
    monkeypatch.setattr(process, "_live", known)
    with inline_engine():
        assert not len(known)


def test_engines_are_listed_while_other_threads_make_some(monkeypatch) -> None:
    class Changing(set):
        def __iter__(self):
            if len(self) < 3:
                self.add(len(self))
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    monkeypatch.setattr(process, "_live", Changing())
    assert process._engines() == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_what_a_fork_could_not_wait_for_is_poisoned_in_the_child() -> None:
    done = run_script("""
        import os, threading, time
        from mxlite.core.errors import OperatorError
        from mxlite.engine import ThreadedEngine, Var
        e = ThreadedEngine(workers=2)
        u, v, w, x, go, forked = Var("u"), Var("v"), Var("w"), Var("x"), threading.Event(), threading.Event()
        def fork():     # inside an operation, where nothing can be waited for
            time.sleep(0.1)
            child = os.fork()
            if not child:
                code = 0
                try:
                    e.wait_for(x)
                    for bad in (v, w):
                        try:
                            e.wait_for(bad)
                        except OperatorError as error:
                            code += "forked before" in str(error.__cause__)
                    e.push(lambda: None, (), (v,)); e.push(lambda: None, (v,), (u,))
                    e.wait_for(v, u)
                    code += 40
                finally:
                    os._exit(code)
            status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            go.set()
        status = []
        e.push(lambda: None, (), (x,))
        e.wait_for(x)
        e.push(lambda: go.wait(20), (), (v,), kind="io")
        e.push(lambda: None, (v,), (w,))
        e.push(fork, (), (u,))
        e.wait_for(u, v, w, x)
        e.stop()
        print(status)
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[42]\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
def test_ctrl_c_interrupts_a_wait_at_once_and_the_engine_stays_usable() -> None:
    done = run_script("""
        import os, signal, threading, time
        from mxlite.engine import ThreadedEngine, Var
        e, v, seen = ThreadedEngine(workers=1, max_pending=3), Var("v"), []
        def push_until_full():
            while True:
                e.push(lambda: None, (v,), (v,))
        for wait in (lambda: e.wait_for(v), lambda: e.wait_to_write(v), e.wait_all, e.stop, push_until_full):
            go, late = threading.Event(), []
            e.push(lambda: go.wait(40) or late.append(1), (v,), (v,))
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                wait()
            except KeyboardInterrupt:
                assert not late
            else:
                raise SystemExit("not interrupted")
            go.set()
            e.push(lambda: seen.append(1), (v,), (v,))
            e.wait_for(v)
        e.stop()
        print(len(seen))
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
def test_a_storm_of_interrupts_breaks_no_schedule() -> None:
    done = run_script("""
        import random, signal, time
        from contextlib import nullcontext
        from mxlite.engine import ThreadedEngine, Var
        e, vs = ThreadedEngine(workers=2, max_pending=50), [Var(str(k)) for k in range(4)]
        seen, returned = [[] for _ in range(4)], [set() for _ in range(4)]
        interrupts, turn, armed = 0, 0, False
        def interrupt(*_):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        random.seed(5)
        while interrupts < 600:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.002))
                with e.bulk(3) if interrupts % 2 else nullcontext():
                    while True:
                        turn += 1
                        k, me = turn % 4, turn
                        e.push(lambda k=k, me=me: seen[k].append(me), (vs[(turn + 1) % 4], vs[k]), (vs[k],))
                        returned[k].add(me)
                        if turn % 40 == 0:
                            e.wait_for(vs[k])
            except KeyboardInterrupt:
                interrupts += 1
        armed = False
        e.wait_all()
        for k in range(4):
            assert seen[k] == sorted(set(seen[k])), "twice or out of order"
            assert returned[k] <= set(seen[k]), "lost"
            assert len(seen[k]) - len(returned[k]) <= interrupts
        stats = e.stats()
        assert stats["pending"] == 0 and stats["pushed"] == sum(map(len, seen)), stats
        e.stop()
        """)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_process_wide_engine_has_a_bulk_of_its_own():
    from mxlite import engine as package

    with use_engine("threaded") as engine:
        done = []
        with package.bulk(10):
            engine.push(lambda: done.append(1), (), (Var(),))
            assert engine.stats()["executed"] == 0
        engine.wait_all()
        assert done == [1]


@in_time()
def test_a_gpu_has_one_worker_for_kernels_and_two_for_copies():
    with use_engine("threaded"):
        engine = get_engine()
        for kind, wanted in (("compute", 1), ("copy", 2)):
            met = threading.Semaphore(0)
            peak, now, lock, together = 0, 0, threading.Lock(), threading.Event()

            def work(met=met, lock=lock, together=together, wanted=wanted):
                nonlocal peak, now
                with lock:
                    now += 1
                    peak = max(peak, now)
                    if now == wanted:
                        together.set()
                together.wait(20)
                met.acquire(timeout=0.05)  # time enough for one too many
                with lock:
                    now -= 1

            for _ in range(6):
                engine.push(work, device="gpu0", kind=kind)
            engine.wait_all()
            assert peak == wanted
