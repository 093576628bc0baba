"""Spins of OpenMP's threads are short while the thread that starts teams has to wait for a core."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import pytest

from mxlite.backends.cpu.compiled.calls import team
from mxlite.backends.cpu.runtime import spins
from mxlite.backends.cpu.runtime.spins import Contention, LITTLE, MUCH, WINDOW_S

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or team.openmp() is None, reason="libgomp is Linux's"
)
CORES = len(os.sched_getaffinity(0))


class _Waiting:
    """A thread that waits for a core for a share of its time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited = 0.0
        monkeypatch.setattr(spins, "waited_for_cores", lambda: self.waited)
        self.found = Contention()

    def runs(self, share: float, seconds: float = WINDOW_S, threads: int = CORES) -> None:
        self.waited += share * seconds
        self.found.add(seconds, threads)


@pytest.fixture
def waiting(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    spins._oversubscription.end()
    yield _Waiting(monkeypatch)
    spins._oversubscription.end()


def _sleeping() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mxlite-sleeping-team"]


def _becomes(count: int) -> bool:
    """True if there are so many threads with a sleeping team, soon."""
    ends = monotonic() + 10
    while len(_sleeping()) != count and monotonic() < ends:
        sleep(0.002)
    return len(_sleeping()) == count


def test_a_sleeping_team_exists_while_waiting_is_much(waiting):
    assert _becomes(0)
    waiting.runs(MUCH / 2)
    assert _becomes(0)
    waiting.runs(2 * MUCH)
    assert _becomes(1)
    waiting.runs((MUCH + LITTLE) / 2)  # between the two shares it stays as it is
    waiting.runs(3 * MUCH)
    assert _becomes(1)
    waiting.runs(LITTLE / 2)
    assert _becomes(0)


def test_a_short_time_decides_nothing(waiting):
    assert _becomes(0)
    waiting.runs(100 * MUCH, WINDOW_S / 3)
    assert _becomes(0)
    waiting.runs(100 * MUCH, WINDOW_S)
    assert _becomes(1)


@pytest.mark.parametrize("why", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "limit", "fewer threads"])
def test_spins_are_left_alone(waiting, monkeypatch, why):
    assert _becomes(0)
    if why == "limit":
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**40, resource.RLIM_INFINITY))
    elif why != "fewer threads":
        monkeypatch.setenv(why, "1000")
    for _ in range(3):
        waiting.runs(10 * MUCH, threads=CORES - (why == "fewer threads"))
    assert _becomes(0)


def test_a_thread_that_cannot_be_started_does_no_harm(waiting, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    assert _becomes(0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        waiting.runs(10 * MUCH)
    assert _becomes(0)


def test_waiting_is_what_another_process_on_the_core_takes():
    counted = Path("/proc/thread-self/schedstat")
    if not counted.exists() or set(counted.read_text().split()) == {"0"}:
        pytest.skip("this system does not count the waiting of a thread")
    core = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    found = []

    def beside():
        os.sched_setaffinity(0, {core})  # of this thread alone
        before, ends = spins.waited_for_cores(), monotonic() + 20
        while (waited := spins.waited_for_cores() - before) < WINDOW_S and monotonic() < ends:
            pass
        found.append(waited)

    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as busy:
        busy.stdout.readline()
        mine = threading.Thread(target=beside)
        mine.start()
        mine.join()
        busy.kill()
    assert found[0] >= WINDOW_S


_PROGRAM = """
import os, threading
import numpy as np
import mxlite as mx
from mxlite.backends.cpu.runtime import spins as openmp

count = 0
def waited():
    global count
    count += 1
    return count
openmp.waited_for_cores = waited
net = mx.models.get("mlp", hidden=(256,) * 3)
step = net.simple_bind(mx.cpu(), data=(64, 784))
def run():
    for _ in range(40):
        step.forward(is_train=True)
        step.backward()
    mx.nd.waitall()
run()
threads = sum(thread.name == "mxlite-sleeping-team" for thread in threading.enumerate())
child = os.fork()
if not child:
    run()
    os._exit(0)
print(threads, os.waitpid(child, 0)[1])
"""


def test_programs_measure_their_waiting_and_fork_meanwhile():
    settings = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    settings.pop("MXLITE_KERNELS", None)
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**settings, "MXLITE_NUM_THREADS": str(max(CORES, 2))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", "0"]
