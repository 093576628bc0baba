"""Learning-rate schedules against MXNet 1.9.1's numbers, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest

import mxlite as mx
from mxlite.core import FormatError
from mxlite.module.optim.lr_scheduler import (
    CosineScheduler,
    FactorScheduler,
    LRScheduler,
    MultiFactorScheduler,
    PolyScheduler,
)

WARM = dict(warmup_steps=4)
CONSTANT = dict(warmup_mode="constant")
# (class, arguments, updates, rates): MXNet 1.9.1
MXNET: list[tuple[type[LRScheduler], dict[str, Any], list[int], list[float]]] = [
    (
        FactorScheduler,
        dict(step=10, factor=0.5, base_lr=1.0),
        [1, 10, 11, 20, 21, 35, 100],
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.125, 0.001953125],
    ),
    (
        FactorScheduler,
        dict(step=1, factor=0.1, stop_factor_lr=1e-3, base_lr=1.0),
        [1, 2, 3, 4, 5, 6],
        [1.0, 0.1, 0.010000000000000002, 0.0010000000000000002, 0.001, 0.001],
    ),
    (
        FactorScheduler,
        dict(step=10, factor=0.5, base_lr=1.0, warmup_steps=5, warmup_begin_lr=0.1),
        [1, 4, 5, 10, 11, 21],
        [0.28, 0.82, 1.0, 1.0, 0.5, 0.25],
    ),
    (
        MultiFactorScheduler,
        dict(step=[5, 8, 20], factor=0.1, base_lr=1.0),
        [1, 5, 6, 8, 9, 20, 21],
        [1.0, 1.0, 0.1, 0.1, 0.010000000000000002, 0.010000000000000002, 0.0010000000000000002],
    ),
    (
        MultiFactorScheduler,
        dict(
            step=[5, 8], factor=0.1, base_lr=1.0, warmup_steps=3, warmup_begin_lr=0.2, warmup_mode="constant"
        ),
        [1, 2, 3, 5, 6],
        [0.2, 0.2, 1.0, 1.0, 0.1],
    ),
    (
        PolyScheduler,
        dict(max_update=20, base_lr=1.0, pwr=2, final_lr=0.1, **WARM),
        [1, 2, 4, 5, 12, 20, 25],
        [0.25, 0.5, 1.0, 0.891015625, 0.325, 0.1, 0.1],
    ),
    (
        CosineScheduler,
        dict(max_update=20, base_lr=0.3, final_lr=0.01, warmup_begin_lr=0.05, **WARM),
        [1, 2, 4, 5, 7, 12, 20, 25],
        [0.1125, 0.175, 0.3, 0.2972138656584684, 0.27556309378386906, 0.155, 0.01, 0.01],
    ),
]


@pytest.mark.parametrize("cls, kwargs, updates, rates", MXNET)
def test_rates_are_mxnets(
    cls: type[LRScheduler], kwargs: dict[str, Any], updates: list[int], rates: list[float]
) -> None:
    schedule = cls(**kwargs)
    assert [float(f"{schedule(n):.17g}") for n in updates] == rates


def test_numbers_of_updates_need_not_be_whole() -> None:
    """Rates of MXNet 1.9.1; its own programs reckon such steps from epochs and batches."""
    falling = FactorScheduler(2.5, 0.5, base_lr=1)
    assert [falling(n) for n in range(1, 12)] == [
        *(1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625)
    ]
    several = MultiFactorScheduler([2.5, 4.0], 0.5, base_lr=1)
    assert [several(n) for n in range(1, 7)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert FactorScheduler(937.5, 0.1)(938) == FactorScheduler(937, 0.1)(938) == 0.001


class Halving:
    """A user's own schedule, with a state and nothing that MXNet asks for beyond a call."""

    def __init__(self) -> None:
        self.rate, self.log = 1.0, ["not a number"]

    def __call__(self, num_update: int) -> float:
        self.rate /= 2 if num_update % 2 else 1
        return self.rate

    def method(self, num_update: int) -> float:
        return 1 / num_update


@pytest.mark.parametrize("make", [Halving, lambda: Halving().method, lambda: lambda n: 0.1 / n])
def test_whatever_can_be_called_is_a_schedule_and_is_saved_and_resumed(make: Any, tmp_path: Any) -> None:
    def module() -> Any:
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
        made = mx.mod.Module(mx.sym.LinearRegressionOutput(net, name="softmax"))
        made.bind([("data", (2, 2))], [("softmax_label", (2, 2))])
        made.init_params(mx.init.One())
        made.init_optimizer(optimizer_params={"lr_scheduler": make(), "learning_rate": 1.0, "momentum": 0.9})
        return made

    def train(module: Any, steps: int) -> Any:
        for _ in range(steps):
            module.train_step(mx.io.DataBatch([mx.nd.ones((2, 2))], [mx.nd.zeros((2, 2))]))
        return module.get_params()[0]["fc_weight"].asnumpy()

    expected = train(module(), 5)
    first, second, third = module(), module(), module()
    train(first, 3)
    first.save_checkpoint(str(tmp_path / "c"), 1, save_optimizer_states=True)
    second.load_params(str(tmp_path / "c-0001.params"))
    second.load_optimizer_states(str(tmp_path / "c-0001.states"))
    assert (train(second, 2) == expected).all()
    first.save_resume_state(str(tmp_path / "r"), 0, 3, None)
    third.load_resume_state(str(tmp_path / "r"), None)
    assert (train(third, 2) == expected).all()


@pytest.mark.parametrize("cls, kwargs, updates, rates", MXNET)
def test_a_schedule_continues_from_its_state(
    cls: type[LRScheduler], kwargs: dict[str, Any], updates: list[int], rates: list[float]
) -> None:
    whole, first, second = cls(**kwargs), cls(**kwargs), cls(**kwargs)
    expected = [whole(n) for n in range(1, 30)]
    for n in range(1, 12):
        first(n)
    second.set_state(first.state())
    assert [second(n) for n in range(12, 30)] == expected[11:]


def test_state_of_another_schedule_is_refused() -> None:
    with pytest.raises(FormatError, match="CosineScheduler"):
        CosineScheduler(10).set_state(FactorScheduler(10).state())


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: FactorScheduler(0), ValueError, "step must be at least 1, got 0"),
        (lambda: FactorScheduler(0.5), ValueError, "step must be at least 1, got 0.5"),
        (lambda: FactorScheduler("9"), TypeError, "number of updates"),  # type: ignore[arg-type]
        (lambda: FactorScheduler(float("nan")), ValueError, "finite"),
        (lambda: FactorScheduler(1, 1.1), ValueError, "factor"),
        (lambda: MultiFactorScheduler([]), TypeError, "one or more"),
        (lambda: MultiFactorScheduler([3, 3]), ValueError, "increase"),
        (lambda: MultiFactorScheduler([0, 3]), ValueError, r"step\[0\]"),
        (lambda: CosineScheduler(0), ValueError, "max_update"),
        (lambda: CosineScheduler(5, warmup_steps=5), ValueError, "at least 6"),
        (lambda: PolyScheduler(5, warmup_mode="liner"), ValueError, "Did you mean 'linear'"),
        (lambda: PolyScheduler(5, base_lr=0.1, warmup_begin_lr=0.2), ValueError, "rises"),
        (lambda: PolyScheduler(5, warmup_steps=-1), ValueError, "at least 0"),
    ],
)
def test_wrong_arguments_are_named(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_the_base_class_has_no_rate() -> None:
    with pytest.raises(NotImplementedError, match="__call__"):
        LRScheduler()(1)


def test_the_oldest_schedule_falls_where_mxnets_does():
    """Rates of MXNet 1.9.1's mx.misc.FactorScheduler."""
    rate = mx.misc.FactorScheduler(4, 0.5)
    mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=rate)
    assert [rate(n) for n in (1, 3, 4, 7, 8, 9)] == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125]
    assert mx.misc.FactorScheduler(1)(1) == pytest.approx(0.001)
    with pytest.raises(ValueError, match="factor must be below 1"):
        mx.misc.FactorScheduler(4, 1)
