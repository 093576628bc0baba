"""mxlite beside others in one process: PyTorch and its workers, Ctrl-C in a loop, two threads that train."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import mxlite as mx
from tests.engine.watchdog import in_time

_TRAIN = """
import numpy as np

def ours(width=32):
    x = mx.sym.Variable("data")
    for k in range(3):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=width, name=f"f{k}"), act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="last"), name="softmax")
    sgd = mx.optimizer.SGD(learning_rate=0.1)
    exe = net.simple_bind(mx.cpu(), optimizer=sgd, data=(64, 256), softmax_label=(64,))
    rng = np.random.default_rng(1)
    for name, array in exe.arg_dict.items():
        array[:] = rng.integers(0, 10, 64) if "label" in name else rng.standard_normal(array.shape) / 16
    rates = np.tile([0.01, 0.0], (len(exe.updated), 1))
    def step():
        return exe.step(rates)[0].asnumpy().tobytes()
    return step
"""


def _run(script: str, *arguments: str) -> str:
    source = _TRAIN + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "MXLITE_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("order", ["mxlite, torch", "torch, mxlite"])
def test_pytorch_trains_in_turns_and_neither_changes_the_other(order):
    """Also its DataLoader's workers, which fork while an engine has threads."""
    found = _run(
        f"""
        import {order}
        import mxlite as mx
        def theirs():
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            x, y = torch.randn(64, 256), torch.arange(64) % 10
            def step():
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()
                return loss.item()
            return step
        step = ours()
        alone = [step() for _ in range(4)]
        step = theirs()
        before = [step() for _ in range(4)], torch.get_num_threads()
        mine, its = ours(), theirs()
        pairs = [(mine(), its()) for _ in range(4)]
        assert [a for a, _ in pairs] == alone
        assert ([b for _, b in pairs], torch.get_num_threads()) == before
        data = torch.utils.data.TensorDataset(torch.arange(16))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
        again = ours()
        for i, (batch,) in enumerate(loader):
            assert again() == alone[i] and batch.sum() == sum(range(4 * i, 4 * i + 4))
        print("done")
        """
    )
    assert found == "done\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
def test_ctrl_c_in_a_loop_comes_at_once_and_what_was_there_can_be_used():
    """As in a notebook: cells are interrupted wherever they are, and the next one goes on."""
    found = _run(
        """
        import os, random, signal, threading, time
        import mxlite as mx
        step = ours(512)
        first = step()
        rng, late, interrupts = random.Random(3), 0.0, 0
        told = [0.0]
        def interrupt(*_):
            told[0] = time.monotonic()
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        for cell in range(20):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.03))
                while True:
                    step()
            except KeyboardInterrupt:
                interrupts += 1
                late = max(late, time.monotonic() - told[0])
            step()
        assert interrupts == 20 and late < 5, (interrupts, late)
        assert ours(512)() == first
        mx.nd.waitall()
        print("done")
        """
    )
    assert found == "done\n"


@in_time(60)
def test_two_threads_that_train_give_the_bits_of_one_after_the_other():
    scope = {"mx": mx}
    exec(_TRAIN, scope)
    serial = []
    for width in (32, 48):
        step = scope["ours"](width)
        serial.append([step() for _ in range(12)])
    steps = [scope["ours"](width) for width in (32, 48)]
    found = [[], []]

    def train(index):
        for _ in range(12):
            found[index].append(steps[index]())

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == serial
    assert not any(np.isnan(np.frombuffer(found[0][-1], np.float32)))
