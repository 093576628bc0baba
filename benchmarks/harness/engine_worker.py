"""Times tiny operations in one framework; `python engine_worker.py mxlite` or `mxnet`.

All figures are microseconds. The engine is selected by the environment, as by a user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from frameworks import load
from worker import serve

mx, VERSIONS = load(sys.argv[1])

CHAIN = 1000  # nodes
SMALL = (4,)


def timed(run: Callable[[], None], count: int) -> float:
    """Microseconds per repetition of `run`, including completion of the work."""
    mx.nd.waitall()
    start = perf_counter()
    for _ in range(count):
        run()
    mx.nd.waitall()
    return (perf_counter() - start) * 1e6 / count


def push(case: str, count: int) -> float:
    """Microseconds per imperative operation on 4 floats."""
    a, b, c = mx.nd.zeros(SMALL), mx.nd.ones(SMALL), mx.nd.zeros(SMALL)
    plain = np.zeros(SMALL, np.float32)
    add = mx.nd.elemwise_add

    # Written out: a call through a lambda costs as much as numpy's addition.
    mx.nd.waitall()
    start = perf_counter()
    if case == "a += 1":
        for _ in range(count):
            a += 1
        mx.nd.waitall()
        total = perf_counter() - start
        assert a.asnumpy()[0] == count
    elif case == "elemwise_add(a, b, out=c)":
        for _ in range(count):
            add(a, b, out=c)
        mx.nd.waitall()
        total = perf_counter() - start
        assert c.asnumpy()[0] == 1
    elif case == "(a + 1).asnumpy()":
        for _ in range(count):
            (a + 1).asnumpy()
        total = perf_counter() - start
    else:
        for _ in range(count):
            plain += 1
        total = perf_counter() - start
    return total * 1e6 / count


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "x * 1.001": lambda x: x * 1.001,
    "tanh(x)": lambda x: mx.sym.tanh(x),
}


def compose(op: str) -> Any:
    """A chain of CHAIN nodes."""
    x, step = mx.sym.Variable("x"), OPERATIONS[op]
    for _ in range(CHAIN):
        x = step(x)
    return x


BOUND: dict[str, Any] = {}


def bound(op: str) -> Any:
    if op not in BOUND:
        BOUND[op] = compose(op).simple_bind(mx.cpu(), grad_req="write", x=SMALL)
    return BOUND[op]


def chain(op: str, case: str, count: int) -> float:
    """Microseconds per forward node of the chain (forward + backward runs two nodes for each)."""
    if case == "compose":
        return timed(lambda: compose(op), count) / CHAIN
    if case == "simple_bind":
        net = compose(op)
        return timed(lambda: net.simple_bind(mx.cpu(), grad_req="write", x=SMALL), count) / CHAIN
    exe = bound(op)
    head = [mx.nd.ones(SMALL)]
    train = case != "inference"

    def forward() -> None:
        exe.forward(is_train=train)
        exe.outputs[0].wait_to_read()

    def both() -> None:
        exe.forward(is_train=True)
        exe.backward(head)
        exe.grad_arrays[0].wait_to_read()

    run = both if case == "forward + backward" else forward
    run()
    return timed(run, count) / CHAIN


def check(op: str) -> list[float]:
    """Output and gradient of the chain at 0.5, to check that both frameworks compute the same."""
    exe = bound(op)
    exe.arg_dict["x"][:] = 0.5
    exe.forward(is_train=True)
    exe.backward([mx.nd.ones(SMALL)])
    return [float(exe.outputs[0].asnumpy()[0]), float(exe.grad_dict["x"].asnumpy()[0])]


def answer(do: str, **arguments: Any) -> Any:
    if do == "versions":
        return VERSIONS
    return {"push": push, "chain": chain, "check": check}[do](**arguments)


serve(answer)
