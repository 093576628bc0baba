"""Random programs of imperative operations, copies and threads, against numpy: whole numbers, so exactly."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np

import mxlite as mx

from .checks import Checks
from .nets import bound, mlp, same, steps
from .programs import graphs_of

ARRAYS = 6


def run(checks: Checks) -> None:
    count = 0
    with checks.check("random operations, copies and views") as found:
        while (count < 3 if checks.emulated else checks.left > checks.seconds * 0.5) and count < 10_000:
            program(random.Random(count), checks)
            count += 1
            found["programs"] = count
    with checks.check("several threads at once") as found:
        rounds, errors = 0, []

        def work(seed: int) -> None:
            try:
                program(random.Random(seed), checks)
            except BaseException as error:
                errors.append(error)

        while (rounds < 2 if checks.emulated else checks.left > checks.seconds * 0.25) and rounds < 2000:
            threads = [threading.Thread(target=work, args=(1000 * rounds + i,)) for i in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if errors:
                raise errors[0]
            rounds += 1
            found["rounds of four"] = rounds
    with checks.check("graphs are captured while other threads allocate, copy and wait") as found:
        captured_beside(checks, found)


def captured_beside(checks: Checks, found: dict[str, Any]) -> None:
    """Programs are bound, captured and replayed on one thread, to the same bits, while others are busy."""
    net, shapes = mlp()
    want = steps(bound(net, shapes, mx.gpu(0)), 3)
    over, errors = threading.Event(), []

    def work(seed: int) -> None:
        try:
            while not over.is_set():
                program(random.Random(seed), checks)
                seed += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(10_000 * i,)) for i in range(1, 4)]
    for t in threads:
        t.start()
    try:
        for count in range(1, 2 if checks.emulated else 20):
            executor = bound(net, shapes, mx.gpu(0))
            assert same(steps(executor, 3), want), "other bits"
            found |= graphs_of(executor)
            assert found["graphs"] and not found["outside"], "not all of it was captured"
            found["captured"] = count
            if checks.left < 3:
                break
    finally:
        over.set()
        for t in threads:
            t.join()
    if errors:
        raise errors[0]


def program(r: random.Random, checks: Checks) -> None:
    """About forty operations on a few arrays, on both devices and between them."""
    n = r.choice([1, 7, 1000, 4096] if checks.small else [1, 1000, 100_003, 1_000_000])
    host = [np.arange(n, dtype=np.float32) % 17 + i for i in range(ARRAYS)]
    devices = [mx.gpu(0) if r.random() < 0.8 else mx.cpu() for _ in range(ARRAYS)]
    there: list[Any] = [mx.nd.array(x, ctx=d) for x, d in zip(host, devices)]
    for _ in range(40):
        i, j, k = (r.randrange(ARRAYS) for _ in range(3))
        kind = r.randrange(7)
        if kind == 0 and devices[j] == devices[k]:
            there[i], devices[i] = there[j] + there[k], devices[j]
            host[i] = host[j] + host[k]
        elif kind == 1:
            there[i] *= 0.5 if np.abs(host[i]).max() > 1000 else 2
            host[i] = host[i] * np.float32(0.5 if np.abs(host[i]).max() > 1000 else 2)
        elif kind == 2:
            there[i][:] = host[j]
            host[i] = host[j].copy()
        elif kind == 3 and i != j:
            there[j].copyto(there[i])
            host[i] = host[j].copy()
        elif kind == 4:
            assert np.array_equal(there[i].asnumpy(), host[i]), (kind, i)
        elif kind == 5:
            low = r.randrange(n)
            there[i][low : low + 5] = 3
            host[i] = host[i].copy()
            host[i][low : low + 5] = 3
        elif kind == 6:
            devices[i] = mx.gpu(0) if r.random() < 0.8 else mx.cpu()
            there[i] = there[j].as_in_context(devices[i]) + 0
            host[i] = host[j].copy()
    for x, y in zip(there, host):
        assert np.array_equal(x.asnumpy(), y)
