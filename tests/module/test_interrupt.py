"""Ctrl-C while `fit` runs: raised wherever it comes, and what was trained is kept."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import mxlite as mx


def network() -> mx.sym.Symbol:
    hidden = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="a"), p=0.3)
    hidden = mx.sym.Dropout(hidden, p=0.2, mode="always")  # draws when it evaluates, too
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="b"), name="softmax")


def data(seed: int) -> Any:
    r = np.random.RandomState(seed)
    return mx.io.NDArrayIter(
        r.rand(20, 5).astype("float32"), r.randint(0, 3, 20).astype("float32"), 5, shuffle=True
    )


def fit(**options: Any) -> Any:
    mx.random.seed(1)
    np.random.seed(1)
    module = mx.mod.Module(network())
    how = {"optimizer": "adam", "initializer": mx.init.Xavier(), "num_epoch": 2, **options}
    module.fit(data(0), data(5), **how)
    return module


def press(*_: Any) -> None:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("it is raised there")


def at_call(count: int, do: Any = press) -> Any:
    left = [count]

    def callback(*args: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            do()

    return callback


@pytest.mark.parametrize("when", [1, 2], ids=["first epoch", "last epoch"])
@pytest.mark.parametrize("where", ["epoch_end_callback", "eval_batch_end_callback", "eval_end_callback"])
def test_ctrl_c_is_raised_where_it_comes_and_resumed_to_the_same_bits(
    tmp_path: Any, where: str, when: int
) -> None:
    prefix = str(tmp_path / "run")
    count = when if where != "eval_batch_end_callback" else 4 * when - 1
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint_prefix=prefix, **{where: at_call(count)})
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ended: list[int] = []
    found = fit(
        checkpoint_prefix=prefix, resume=True, epoch_end_callback=lambda epoch, *_: ended.append(epoch)
    )
    assert ended == list(range(when - 1, 2))  # what was broken off is done again
    expected = fit()
    for name, array in expected.get_params()[0].items():
        np.testing.assert_array_equal(found.get_params()[0][name].asnumpy(), array.asnumpy())


@pytest.mark.parametrize("last", [False, True])
def test_without_a_prefix_it_is_raised_all_the_same(last: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(eval_batch_end_callback=at_call(7 if last else 2))


def test_it_does_not_wait_for_the_rest_of_an_evaluation() -> None:
    seen: list[int] = []

    def slow(param: Any) -> None:
        seen.append(param.nbatch)
        if len(seen) == 1:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        threading.Event().wait(60)
        seen.append(-1)

    with pytest.raises(KeyboardInterrupt):
        fit(eval_batch_end_callback=slow)
    assert seen == [0]


class WhileReset(mx.io.NDArrayIter):
    """Ctrl-C comes between two epochs, `count` resets from now."""

    count = 0

    def reset(self) -> None:
        self.count -= 1
        if self.count == 0:
            signal.raise_signal(signal.SIGINT)
        super().reset()


@pytest.mark.parametrize("last", [False, True])
def test_one_between_two_epochs_is_not_lost_either(tmp_path: Any, last: bool) -> None:
    train = WhileReset(np.ones((8, 5), "float32"), np.ones(8, "float32"), 4)
    train.count = 2 if last else 1
    module, done = mx.mod.Module(network()), []
    with pytest.raises(KeyboardInterrupt):
        module.fit(
            train,
            num_epoch=2,
            checkpoint_prefix=str(tmp_path / "run"),
            batch_end_callback=lambda p: done.append(p),
        )
    assert len(done) == (4 if last else 2)
    assert (tmp_path / "run.resume").exists()
