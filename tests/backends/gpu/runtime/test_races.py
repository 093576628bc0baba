"""Random programs of array operations on a CPU and two GPUs, whose streams go on as late as they like.

Each program is run beside its numpy twin. A wait that is missing shows as a wrong number: the last test takes
one away at a time and looks whether that is noticed.
"""

from __future__ import annotations

import random
from contextlib import nullcontext

import numpy as np
import pytest

import mxlite as mx
from mxlite import nd
from mxlite.backends.gpu.backend import GPUBackend
from mxlite.backends.gpu.runtime import memory
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.engine import bulk, use_engine
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import emulated_gpus
from tests.engine.watchdog import in_time

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICES = [mx.cpu(0), mx.gpu(0), mx.gpu(0), mx.gpu(1)]
ROWS, COLUMNS = 6, 8


class Program:
    """Pairs of an NDArray and the numpy array that it should be; each step changes both."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pairs = []
        for _ in range(6):
            self.create()

    def number(self):
        return self.random.randrange(-8, 9)

    def numbers(self, *shape):
        return np.array([self.number() for _ in range(int(np.prod(shape)))], "f4").reshape(shape)

    def pick(self, ctx=None):
        return self.random.choice([p for p in self.pairs if ctx is None or p[0].context == ctx])

    def rows(self):
        low, high = sorted(self.random.sample(range(ROWS + 1), 2))
        return slice(low, high)

    def create(self):
        ctx, values = self.random.choice(DEVICES), self.numbers(ROWS, COLUMNS)
        if self.random.random() < 0.5:
            made = nd.array(values, ctx)
        else:
            made = nd.full(values.shape, 3, ctx)
            made += values[0, 0]
            values[...] = values[0, 0] + 3
        self.pairs.append((made, values))

    def forget(self):
        del self.pairs[self.random.randrange(len(self.pairs))]

    def renew(self):
        """An array goes, and its memory to the next one."""
        self.forget()
        self.create()

    def add_number(self):
        a, x = self.pick()
        k = self.number()
        a += k
        x += k

    def multiply(self):
        a, x = self.pick()
        b, y = self.pick(a.context)
        made, wanted = a * b, x * y
        made, wanted = made - 3 * a, wanted - 3 * x
        made, wanted = nd.clip(made, -50, 50), np.clip(wanted, -50, 50)
        b[:] = made
        y[...] = wanted

    def copy(self):
        (a, x), (b, y) = self.pick(), self.pick()
        a.copyto(b)
        y[...] = x

    def move(self):
        a, x = self.pick()
        self.forget()
        self.pairs.append((a.as_in_context(self.random.choice(DEVICES)).copy(), x.copy()))

    def assign_rows(self):
        (a, x), (b, y), key = self.pick(), self.pick(), self.rows()
        a[key] = b[key]
        x[key] = y[key]

    def assign_columns(self):
        (a, x), (b, y) = self.pick(), self.pick()
        step = self.random.choice([2, -1, 3])
        a[:, ::step] = b[0, ::step]
        x[:, ::step] = y[0, ::step]

    def assign_numpy(self):
        a, x = self.pick()
        key = self.random.choice([self.rows(), (slice(None), slice(1, 4)), (2, slice(None))])
        values = self.numbers(*x[key].shape)
        a[key] = values
        x[key] = values
        values[...] = 99  # it was copied

    def through_a_view(self):
        a, x = self.pick()
        key, k = self.rows(), self.number()
        view = a[key]
        view *= 2
        view += k
        x[key] = x[key] * 2 + k
        np.clip(x, -50, 50, out=x)
        nd.clip(a, -50, 50, out=a)

    def look_up(self):
        a, x = self.pick()
        order = [self.random.randrange(ROWS) for _ in range(ROWS)]
        a[:] = a[order]
        x[...] = x[order]

    def on_the_host(self):
        (a, x), k = self.pick(), self.number()
        a[:] = nd.einsum(a, nd.full((), k, a.context), subscripts="ij,->ij")  # has no kernel on a GPU
        x *= k
        np.clip(x, -50, 50, out=x)
        nd.clip(a, -50, 50, out=a)

    def look(self):
        a, x = self.pick()
        np.testing.assert_array_equal(a.asnumpy(), x)

    def run(self, steps):
        kinds = [
            *(self.renew, self.add_number, self.add_number, self.multiply, self.multiply, self.copy),
            *(self.copy, self.move, self.assign_rows, self.assign_columns, self.assign_numpy),
            *(self.through_a_view, self.look_up, self.on_the_host, self.look),
        ]
        for _ in range(steps):
            self.random.choice(kinds)()
        for a, x in self.pairs:
            np.testing.assert_array_equal(a.asnumpy(), x)


def run(seed, late, engine, steps=60):
    kind = "naive" if engine == "naive" else "threaded"
    with emulated_gpus(late=late, seed=seed), use_engine(kind):
        with bulk(5) if engine == "bulk" else nullcontext():
            Program(seed).run(steps)
        nd.waitall()


@pytest.mark.parametrize("engine", ["threaded", "bulk", "naive"])
@pytest.mark.parametrize("late", [0.0, 0.1, 0.5, 1.0])
@in_time(60)
def test_random_programs_on_three_devices_are_numpys(late, engine):
    for seed in range(12):
        run(seed, late, engine)


def no_wait(self, stream, ticket):
    pass


def no_ticket(self, run, vars):
    def issued():
        with self.device.active():
            run()

    return issued


def early_ticket(self, run, vars):
    def issued():
        with self.device.active():
            ticket = self.device.mark()
            run()
            for var in vars:
                var.fence = ticket

    return issued


def any_stream(self):
    return random.choice([self.compute, self.uploads])


def no_since(self, target, var):
    return 0 if var is None else var.fence


def since_too_early(self, address, size):
    self._returned.append((address, size, self._device.issued - 3))


def not_waited_for(self, stream, to, start, host, there, after):
    if host.nbytes:
        self.let_wait(stream, after)
        self.driver.copy(to, start, host.nbytes, stream)


def unordered_peer(self, var):
    pass


BREAKS = {
    "a copy does not wait for the ticket": (CudaDevice, "let_wait", no_wait),
    "operations leave no ticket": (GPUBackend, "issue", no_ticket),
    "the ticket is taken before the kernels": (GPUBackend, "issue", early_ticket),
    "kernels go to any stream": (CudaDevice, "stream", property(any_stream)),
    "memory may be written before its last owner is done": (GPUBackend, "_after", no_since),
    "memory comes back with an old ticket": (memory.MemoryPool, "_give_back", since_too_early),
    "nobody waits for a copy": (CudaDevice, "_cross", not_waited_for),
    "another device's array is read before it is made": (GPUBackend, "settle", unordered_peer),
}


@pytest.mark.parametrize("name", BREAKS)
@in_time(60)
def test_a_missing_wait_is_noticed(monkeypatch, name):
    monkeypatch.setattr(*BREAKS[name])
    with pytest.raises(AssertionError, match=r"(?i)not equal|mismatch"):
        for seed in range(40):
            run(seed, 0.02, "threaded")
