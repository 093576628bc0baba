"""Times the overhead around the kernels of a bound program. One process per setting."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache, partial
from threading import Event, Thread
from time import perf_counter
from typing import Any

import numpy as np
from frameworks import load
from worker import serve

mx, _ = load("mxlite")
NODES = 1000
WORK = {"tiny": (1, 16, NODES), "small": (64, 256, 200), "large": (512, 1024, 40)}
"""Chains of FullyConnected: rows, columns, nodes. Kernels of about 1 us, 50 us and 5 ms."""


@cache
def chain(which: str) -> Any:
    """A chain bound for inference, run once."""
    rows, columns, nodes = WORK[which]
    net = mx.sym.Variable("data")
    for i in range(nodes):
        net = mx.sym.FullyConnected(net, num_hidden=columns, no_bias=True, name=f"fc{i}")
        # Training's forward pass: inference would also look for constants. Gradients are not requested.
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(rows, columns))
    rng = np.random.default_rng(0)
    for a in exe.arg_arrays:
        a[:] = rng.standard_normal(a.shape).astype("float32") / columns**0.5
    forward(exe)
    return exe


def forward(exe: Any) -> None:
    exe.forward(is_train=True)
    exe.outputs[0].wait_to_read()


def lower_quartile(run: Callable[[], None], rounds: int) -> float:
    """Lower quartile of the seconds of `run`."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return sorted(times)[rounds // 4]


def node(how: str, rounds: int) -> float:
    """Microseconds per node of the chain of tiny kernels.

    `calls`: each call made from a Python loop.  `segments`: as a program makes them, without the engine.
    `forward`: pushed, run by a worker and waited for.  `ctypes`: a call of an empty C function.
    """
    exe = chain("tiny")
    segments = exe._train.segments
    calls = [call for s in segments for call in s.calls]
    if how == "ctypes":
        nothing = ctypes.CDLL(None).abs
        argument = ctypes.c_int(0)
        calls = [partial(nothing, argument)] * NODES
    if how in ("calls", "ctypes"):

        def run() -> None:
            for call in calls:
                call()

    elif how == "segments":

        def run() -> None:
            for segment in segments:
                segment()

    else:

        def run() -> None:
            forward(exe)

    return lower_quartile(run, rounds) / NODES * 1e6


def busy(which: str, interval_ms: float, rounds: int) -> dict[str, float]:
    """Milliseconds of a forward pass while the main thread waits, and while it computes in Python.

    Also the rate of the main thread meanwhile, relative to its rate alone.
    """
    exe = chain(which)
    quiet = lower_quartile(lambda: forward(exe), rounds)
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_ms / 1000)
    times: list[float] = []
    over = Event()

    def runs() -> None:
        for _ in range(rounds):
            start = perf_counter()
            forward(exe)
            times.append(perf_counter() - start)
        over.set()

    try:
        alone = spin(until=perf_counter() + 0.2)
        thread = Thread(target=runs)
        thread.start()
        beside = spin(over=over)
        thread.join()
    finally:
        sys.setswitchinterval(before)
    return {"quiet": 1e3 * quiet, "busy": 1e3 * sorted(times)[rounds // 2], "rate": beside / alone}


def spin(until: float = float("inf"), over: Event | None = None) -> float:
    """Rounds per second of a loop in Python."""
    count, start = 0, perf_counter()
    while perf_counter() < until and not (over is not None and over.is_set()):
        for _ in range(1000):
            count += 1
    return count / (perf_counter() - start)


def bind(model: str, batch: int) -> dict[str, float]:
    """Seconds to bind a network with momentum and build its training program, the first time in a process and
    the second.
    """
    net, shapes = mx.models.get(model), mx.models.shapes_of(model, batch=batch)
    found = {}
    for when in ("cold", "warm"):
        gc.collect()
        start = perf_counter()
        exe = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), **shapes)
        bound = perf_counter()
        exe._training_program()
        found |= {f"{when} bind": bound - start, f"{when} program": perf_counter() - bound}
        found["nodes"] = len(exe.memory_plan.schedule.task)
        del exe
    return found


def answer(do: str, **arguments: Any) -> Any:
    return {"node": node, "busy": busy, "bind": bind}[do](**arguments)


serve(answer)
