"""Forked children: no lock of the parent's other threads stays closed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mxlite.core.process import forks
from mxlite.core.process.forks import Together

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
_PACKAGE = Path(forks.__file__).parents[2]

# Every lock that there is after a first training step is held by another thread when the process forks.
_HELD = """
import gc, os, sys, threading
import numpy as np
import mxlite as mx
from mxlite.core.process import forks
from mxlite.core.process.collection import no_collection
from mxlite.engine import SWITCHING
from mxlite.backends.cpu.runtime import cores

def train():
    mx.random.seed(3)
    x = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="a"), p=0.5)
    x = mx.sym.Activation(mx.sym.LayerNorm(x), act_type="tanh")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=4, name="b"), name="softmax")
    sgd = mx.optimizer.SGD(learning_rate=0.1)
    exe = net.simple_bind(mx.cpu(), optimizer=sgd, memory_budget=2**20, data=(8, 12), softmax_label=(8,))
    for name, array in exe.arg_dict.items():
        array[:] = np.arange(array.size).reshape(array.shape) % 7 / 7
    rates = np.tile([0.1, 0.0], (len(exe.updated), 1))
    for _ in range(2):
        out = exe.step(rates)
    return out[0].asnumpy().tobytes() + exe.arg_dict["a_weight"].asnumpy().tobytes()

def hold(lock):
    with lock:
        held.release()
        threading.Event().wait()

def stay():
    with no_collection(), SWITCHING:
        cores.hold_back()
        held.release()
        threading.Event().wait()

expected, threads, interval = train(), cores.blas_threads(), sys.getswitchinterval()
held = threading.Semaphore(0)
for run, args in [(stay, ()), *((hold, (lock,)) for lock in forks._all())]:
    threading.Thread(target=run, args=args, daemon=True).start()
    held.acquire()
child = os.fork()
if not child:
    import faulthandler
    faulthandler.dump_traceback_later(20, exit=True)
    assert gc.isenabled() and sys.getswitchinterval() == interval and cores.blas_threads() == threads
    assert train() == expected
    print(len(forks._all()), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
os._exit(status != 0)
"""


def test_a_child_trains_though_other_threads_of_its_parent_held_every_lock(tmp_path):
    environment = {**os.environ, "MXLITE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _HELD], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


# The engine comes to rest before a fork, and renews its own locks.
_OWN_WAYS = {
    "core/process/forks.py",
    *(f"engine/{name}.py" for name in ("threaded", "naive", "failure", "ticket")),
}
_LOCK = re.compile(r"(?<!forks\.)\b(?:R?Lock|Condition|(?:Bounded)?Semaphore|Barrier)\(|\bthreading\.Event\(")


def test_every_lock_is_one_that_a_child_can_take():
    made = [
        f"{path.relative_to(_PACKAGE)}: {found.group()}"
        for path in sorted(_PACKAGE.rglob("*.py"))
        if str(path.relative_to(_PACKAGE)) not in _OWN_WAYS
        for found in _LOCK.finditer(path.read_text())
    ]
    assert made == []


def _child(check) -> bool:
    """Whether `check()` is true in a forked child."""
    child = os.fork()
    if not child:
        try:
            os._exit(not check())
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def _held_by_another(lock) -> threading.Event:
    """Another thread has it until the event is set."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            leave.wait()

    threading.Thread(target=hold, daemon=True).start()
    inside.wait()
    return leave


@pytest.mark.parametrize("make", [forks.lock, forks.rlock])
def test_a_lock_is_free_in_the_child_and_as_it_was_in_the_parent(make):
    lock = make()
    leave = _held_by_another(lock)
    assert _child(lambda: lock.acquire(timeout=5))
    assert not lock.acquire(timeout=0)
    leave.set()
    assert lock.acquire(timeout=5)
    lock.release()


def test_who_forks_while_he_has_a_lock_has_it_in_the_child():
    lock = forks.rlock()

    def still_has_it() -> bool:
        other = []
        thread = threading.Thread(target=lambda: other.append(lock.acquire(timeout=0)))
        thread.start()
        thread.join()
        return other == [False]

    with lock:
        assert _child(still_has_it)
    assert _child(lambda: lock.acquire(timeout=0))


def test_what_a_lock_guards_is_whole_in_the_child(monkeypatch):
    """A thread that has it for a moment is waited for: it lets go only when the fork has begun to wait."""
    monkeypatch.setattr(forks, "PATIENCE_S", 20.0)
    lock, pair, inside, waits = forks.lock(), [0, 0], threading.Event(), threading.Event()

    def write() -> None:
        with lock:
            pair[0] += 1
            inside.set()
            waits.wait()
            time.sleep(0.01)
            pair[1] += 1

    def all_locks() -> list:
        waits.set()
        return [lock]

    writer = threading.Thread(target=write)
    writer.start()
    inside.wait()
    monkeypatch.setattr(forks, "_all", all_locks)
    try:
        assert _child(lambda: pair == [1, 1])
    finally:
        writer.join()


def test_in_a_child_only_who_forked_is_still_inside():
    state = []
    together = Together(lambda: state.append("begin"), lambda: state.append("end"))
    together.enter()
    other = threading.Thread(target=together.enter)
    other.start()
    other.join()

    def alone() -> bool:
        mine = together.anybody and state == ["begin"]
        together.leave()
        return mine and state == ["begin", "end"]

    assert _child(alone)
    together.leave()
    assert together.anybody
    assert _child(lambda: not together.anybody and state == ["begin", "end"])
