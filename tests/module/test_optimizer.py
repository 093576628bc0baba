"""Optimizers against MXNet 1.9.1's numbers, both forms against each other, and states that survive."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import FormatError, OpAttributeError, StateError, UnknownNameError
from mxlite.graph import parse_attrs
from mxlite.module.optim import optimizer
from mxlite.module.optim.lr_scheduler import CosineScheduler, FactorScheduler
from mxlite.module.saved.statefile import pack_state, unpack_state
from mxlite.ndarray import array

WEIGHT = np.array([0.5, -1.0, 2.0, 0.25], "float32")
GRADS = np.array([[1.0, -2.0, 0.5, 30.0], [0.25, 4.0, -0.5, -8.0], [-1.5, 0.1, 0.7, 2.0]], "float32")

COMMON: dict[str, Any] = dict(learning_rate=0.1, wd=0.01, rescale_grad=0.5)
# (name, arguments, weight after the three gradients): MXNet 1.9.1
MXNET = [
    ("sgd", COMMON, [0.511113942, -1.10200298, 1.95903099, -0.948150754]),
    ("sgd", {**COMMON, "clip_gradient": 0.8}, [0.511113942, -1.00208294, 1.95903099, 0.169330686]),
    ("sgd", {**COMMON, "momentum": 0.9}, [0.413149834, -1.10857463, 1.9336096, -3.15110278]),
    (
        "sgd",
        {**COMMON, "momentum": 0.9, "clip_gradient": 0.8},
        [0.413149834, -0.934818685, 1.9336096, 0.104022637],
    ),
    ("nag", {**COMMON, "momentum": 0.9, "wd": 0}, [0.436674982, -1.2076, 1.9152751, -4.01449966]),
    ("adam", COMMON, [0.332208395, -0.965107977, 1.85010707, 0.0651608706]),
    (
        "adam",
        {**COMMON, "wd": 0.5, "clip_gradient": 0.8},
        [0.28967908, -0.887662649, 1.70073891, 0.121683024],
    ),
    ("adagrad", {**COMMON, "clip_gradient": 0.8}, [0.456888437, -0.972257972, 1.89449334, 0.162355587]),
    (
        "rmsprop",
        {**COMMON, "wd": 0.5, "clip_gradient": 0.8},
        [0.314944297, -0.798630357, 1.2809068, -0.028906703],
    ),
    ("rmsprop", {**COMMON, "centered": True}, [-0.299643427, -0.651439607, 1.25895321, -0.510232449]),
    (
        "rmsprop",
        dict(learning_rate=0.1, clip_weights=0.6),
        [0.371894598, -0.600000024, 0.368902683, -0.00314844586],
    ),
    ("adadelta", {**COMMON}, [0.48388803, -0.973595142, 1.92840576, 0.23554486]),
    (
        "adadelta",
        {**COMMON, "rho": 0.7, "clip_gradient": 0.8},
        [0.484263361, -0.971400023, 1.93341672, 0.236499146],
    ),
    ("ftrl", {**COMMON}, [0.163581207, -0.512604058, 0.373996347, 0.158719599]),
    (
        "ftrl",
        {**COMMON, "lamda1": 0.3, "beta": 0.6, "clip_gradient": 0.8},
        [0.192843825, -0.541569173, 0.51724261, 0.0701503232],
    ),
    ("signum", {**COMMON}, [0.400000006, -1.10000002, 1.69999993, -0.049999997]),
    ("signum", {**COMMON, "momentum": 0.0}, [0.398801416, -1.09710288, 1.89410603, 0.149350673]),
    (
        "signum",
        {**COMMON, "wd_lh": 0.1, "clip_gradient": 0.8},
        [0.388139516, -1.07128906, 1.64358795, 0.14356479],
    ),
    ("ftml", {**COMMON}, [0.450553626, -0.980405569, 1.89376783, 0.167075425]),
    ("ftml", {**COMMON, "clip_gradient": 0.8}, [0.450553626, -0.965652287, 1.89376783, 0.161479205]),
    ("ftml", {"rescale_grad": 0.5}, [0.495137602, -0.998102009, 1.99003363, 0.241709605]),
    ("adamax", {**COMMON}, [0.350071579, -0.947423816, 1.85967803, 0.0930781364]),
    (
        "adamax",
        {**COMMON, "wd": 0.5, "clip_gradient": 0.8},
        [0.314231187, -0.889997303, 1.71063673, 0.121683821],
    ),
    ("nadam", {**COMMON}, [0.450249434, -0.990283787, 1.8759737, 0.153438941]),
    (
        "nadam",
        {**COMMON, "wd": 0.5, "clip_gradient": 0.8, "schedule_decay": 0.02},
        [0.405040413, -0.924004018, 1.74519086, 0.149049044],
    ),
    ("dcasgd", {**COMMON}, [0.511146247, -1.10361528, 1.95902646, -0.854219794]),
    (
        "dcasgd",
        {**COMMON, "lamda": 0.5, "clip_gradient": 0.8},
        [0.511516452, -1.00466216, 1.95897377, 0.169259369],
    ),
    ("lamb", {**COMMON}, [0.262054741, -1.04992461, 1.75193024, -0.0837075114]),
    (
        "lamb",
        {**COMMON, "clip_gradient": 0.8, "lower_bound": 0.5, "upper_bound": 0.9, "bias_correction": False},
        [0.391237199, -0.970991433, 1.89290679, 0.157568842],
    ),
    ("lars", {**COMMON}, [0.500115514, -1.00009334, 1.99994314, 0.24980028]),
    (
        "lars",
        {**COMMON, "momentum": 0.9, "clip_gradient": 0.8, "eta": 0.5, "eps": 0.1},
        [0.543915153, -1.02404022, 1.97531819, 0.206165582],
    ),
    (
        "lars",
        {**COMMON, "eta": 0.5, "param_idx2name": {0: "a_bias"}},
        [0.512499988, -1.10500002, 1.96500003, -0.950000048],
    ),
    ("lbsgd", {**COMMON, "momentum": 0.9}, [0.413149834, -1.10857463, 1.9336096, -3.15110278]),
    (
        "lbsgd",
        {
            **COMMON,
            "momentum": 0.9,
            "batch_scale": 3,
            "warmup_strategy": "power2",
            "warmup_epochs": 1,
            "updates_per_epoch": 6,
        },
        [0.505500019, -1.051, 1.97950006, -0.350374997],
    ),
    (
        "lbsgd",
        {**COMMON, "warmup_strategy": "lars", "clip_gradient": 0.8},
        [0.558908403, -1.01759219, 1.97099733, 0.1930874],
    ),
]


def train(updater: optimizer.Updater, weight: Any, grads: np.ndarray = GRADS, index: Any = 0) -> np.ndarray:
    for grad in grads:
        updater(index, array(grad), weight)
    return weight.asnumpy()


@pytest.mark.parametrize("name, kwargs, expected", MXNET)
def test_three_updates_give_what_mxnet_gives(
    name: str, kwargs: dict[str, Any], expected: list[float]
) -> None:
    got = train(optimizer.get_updater(optimizer.create(name, **kwargs)), array(WEIGHT))
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-7)


def test_dcasgd_gathers_momentum() -> None:
    settings = {**COMMON, "rescale_grad": 1.0}
    step = optimizer.create("dcasgd", momentum=0.9, **settings)
    plain = optimizer.create("sgd", momentum=0.9, **settings)  # the first two steps have nothing to correct
    mine, weight = optimizer.get_updater(step), array(WEIGHT)
    got = train(mine, weight, GRADS[:1])
    np.testing.assert_allclose(got, train(optimizer.get_updater(plain), array(WEIGHT), GRADS[:1]), rtol=1e-6)
    np.testing.assert_array_equal(mine.states[0][1].asnumpy(), WEIGHT)
    momentum, _ = mine.states[0]
    np.testing.assert_allclose(momentum.asnumpy(), got - WEIGHT, rtol=1e-6)
    m, g = got - WEIGHT, GRADS[1]
    m = 0.9 * m - 0.1 * (g + 0.01 * got + 0.04 * g * g * (got - WEIGHT))
    np.testing.assert_allclose(train(mine, weight, GRADS[1:2]), got + m, rtol=1e-5)


def test_the_momentum_of_lars_follows_the_rate_as_in_mxnet() -> None:
    schedule = mx.lr_scheduler.FactorScheduler(1, 0.5)
    lars = optimizer.create("lars", momentum=0.9, eta=0.5, lr_scheduler=schedule, **COMMON)
    got = train(optimizer.get_updater(lars), array(WEIGHT))
    np.testing.assert_allclose(got, [0.50742352, -1.02476978, 1.99278009, 0.11227607], rtol=2e-6)
    again = optimizer.create("lars", momentum=0.9, lr_scheduler=mx.lr_scheduler.FactorScheduler(1, 0.5))
    again.set_progress(lars.progress())
    assert again.progress() == lars.progress()


@pytest.mark.parametrize("settings, fused", [({}, True), ({"batch_scale": 2, "warmup_epochs": 1}, False)])
def test_large_batches_train_in_a_module(settings: dict[str, Any], fused: bool) -> None:
    x, y = np.random.RandomState(0).rand(12, 4), np.arange(12) % 3
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3), name="softmax")
    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, 4),
        optimizer="lbsgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, **settings},
        num_epoch=2,
    )
    assert module.is_fused == fused and module.measured_bytes == module.memory_plan.peak_bytes


def test_a_large_batch_goes_on_where_it_was_saved() -> None:
    def make() -> optimizer.Updater:
        settings = {"momentum": 0.5, "batch_scale": 4, "warmup_epochs": 2, "updates_per_epoch": 3}
        return optimizer.get_updater(optimizer.create("lbsgd", learning_rate=0.1, **settings))

    whole, first, then = make(), make(), make()
    weight, other = array(WEIGHT), array(WEIGHT)
    want = train(whole, weight, np.concatenate([GRADS, -GRADS, 2 * GRADS]))
    train(first, other, np.concatenate([GRADS, -GRADS]))
    then.set_states(first.get_states(True))
    np.testing.assert_array_equal(train(then, other, 2 * GRADS), want)


def test_large_batches_name_what_is_wrong() -> None:
    with pytest.raises(OpAttributeError, match="Did you mean 'power2'"):
        optimizer.create("lbsgd", warmup_strategy="power")
    with pytest.raises(OpAttributeError, match="batch_scale must be at least 1, got 0"):
        optimizer.create("lbsgd", batch_scale=0)


def test_lars_leaves_a_weight_alone_that_is_zero_and_has_no_gradient() -> None:
    updater = optimizer.get_updater(optimizer.create("lars", learning_rate=0.1))
    zeros = np.zeros_like(WEIGHT)
    np.testing.assert_array_equal(train(updater, array(zeros), np.zeros_like(GRADS)), zeros)
    np.testing.assert_allclose(train(updater, array(zeros), GRADS[:1]), -0.1 * GRADS[0])


def test_adamax_leaves_alone_what_never_had_a_gradient() -> None:
    updater = optimizer.get_updater(optimizer.create("adamax"))
    np.testing.assert_array_equal(train(updater, array(WEIGHT), np.zeros_like(GRADS)), WEIGHT)


def test_sgld_samples_around_the_weight_it_descends_to() -> None:
    """With a gradient of `weight` it samples a normal distribution of deviation 1."""
    mx.random.seed(3)
    updater = optimizer.get_updater(optimizer.create("sgld", learning_rate=0.1))
    weight, seen = array(np.zeros(2000, "float32")), []
    for step in range(120):
        updater(0, weight.copy(), weight)
        if step > 60:
            seen.append(weight.asnumpy())
    assert abs(np.mean(seen)) < 0.05 and abs(np.std(seen) - 1) < 0.05


@pytest.mark.parametrize("name", ["adamax", "nadam", "dcasgd", "sgld", "lars"])
def test_what_has_no_fused_form_trains_in_a_module(name: str, tmp_path: Any) -> None:
    x, y = np.random.RandomState(0).rand(12, 4), np.arange(12) % 3
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3), name="softmax")
    module = mx.mod.Module(net)
    module.fit(mx.io.NDArrayIter(x, y, 4), optimizer=name, num_epoch=2)
    assert not module.is_fused and module.measured_bytes == module.memory_plan.peak_bytes
    for file in ("a", "b"):
        module.save_optimizer_states(str(tmp_path / file))
        module.load_optimizer_states(str(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nag_decays_by_its_formula() -> None:
    weight, momentum = WEIGHT.astype("float64"), np.zeros(4)
    for grad in GRADS:
        step = 0.1 * (0.5 * grad + 0.01 * weight)
        momentum = 0.9 * momentum - step
        weight = weight + 0.9 * momentum - step
    got = train(optimizer.get_updater(optimizer.create("nag", momentum=0.9, **COMMON)), array(WEIGHT))
    np.testing.assert_allclose(got, weight, rtol=1e-6)


def test_nag_with_clipping_is_nag_of_the_clipped_gradient() -> None:
    clipped = np.clip(GRADS * 0.5, -0.8, 0.8)
    plain = optimizer.create("nag", learning_rate=0.1, momentum=0.9, wd=0.01)
    cutting = optimizer.create("nag", clip_gradient=0.8, momentum=0.9, **COMMON)
    np.testing.assert_allclose(
        train(optimizer.get_updater(cutting), array(WEIGHT)),
        train(optimizer.get_updater(plain), array(WEIGHT), clipped),
        rtol=1e-6,
    )


@pytest.mark.parametrize("kwargs", [{}, {"clip_gradient": 0.8}])
@pytest.mark.parametrize(
    "name, extra", [("sgd", {}), ("sgd", {"momentum": 0.9}), ("lbsgd", {}), ("adam", {})]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_fused_and_imperative_updates_are_bitwise_equal(
    name: str, extra: dict[str, Any], kwargs: dict[str, Any], dtype: str
) -> None:
    if name == "adam" and dtype == "float16":
        extra = {"epsilon": 1e-3}  # the default is 0 in float16
    rng = np.random.default_rng(3)
    grads = rng.standard_normal((5, 7, 3)).astype(dtype)
    start = rng.standard_normal((7, 3)).astype(dtype)

    def make() -> optimizer.Optimizer:
        schedule = FactorScheduler(2, 0.7, base_lr=0.3)
        return optimizer.create(
            name, learning_rate=0.3, wd=0.013, rescale_grad=1 / 3, lr_scheduler=schedule, **extra, **kwargs
        )

    weight = array(start, dtype=dtype)
    updater = optimizer.get_updater(make())
    for grad in grads:
        updater(0, array(grad, dtype=dtype), weight)

    fused = make()
    rule = fused.update_rule()
    assert rule is not None
    attrs = parse_attrs(rule.op, {**rule.attrs, "row": 0})
    w, states = start.copy(), [np.zeros_like(start) for _ in rule.states]
    services = rule.op.signature.services
    work = {}
    if "work" in services:
        shapes = (w.shape,) * (2 + len(states)) + ((1, 2),)
        work["work"] = np.empty(rule.op.workspace(attrs, shapes, (), np.dtype(dtype)), np.uint8)
    for grad in grads:
        hyper = np.array([fused.hyper(0)], "float64")
        rule.op.forward(np, attrs, w, grad, *states, hyper, **work)
    assert np.array_equal(w, weight.asnumpy())
    kept = updater.states[0]
    for mine, theirs in zip(states, kept if isinstance(kept, tuple) else (kept,)):
        assert np.array_equal(mine, theirs.asnumpy())


def test_multipliers_and_decay_by_name_are_mxnets() -> None:
    class Net:
        def attr_dict(self) -> dict[str, dict[str, str]]:
            return {"fc_weight": {"__lr_mult__": "0.5", "__wd_mult__": "2.0"}}

        def list_arguments(self) -> list[str]:
            return ["data", "fc_weight", "fc_bias"]

    names = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma", 3: "bn_beta"}
    opt = optimizer.create("sgd", learning_rate=1.0, wd=0.1, sym=Net(), param_idx2name=names)
    assert [opt.hyper(i) for i in range(5)] == [(0.5, 0.2), (1.0, 0.0), (1.0, 0.1), (1.0, 0.0), (1.0, 0.1)]
    opt.set_lr_mult({"fc_bias": 3.0})
    opt.set_wd_mult({"fc_bias": 5.0, 3: 7.0})
    expected = [(0.5, 0.2), (3.0, 0.5), (1.0, 0.1), (1.0, 0.7000000000000001), (1.0, 0.1)]
    assert [opt.hyper(i) for i in range(5)] == expected


def test_each_parameter_counts_its_own_updates() -> None:
    opt = optimizer.create("adam", learning_rate=1.0)
    first = opt.hyper(0)
    assert opt.hyper(0) != first  # the bias correction has moved on
    assert opt.hyper(1) == first
    assert opt.num_update == 2


NAMES = {0: "a_weight", 1: "a_bias", 2: "b_weight", 3: "b_bias", 4: "c_gamma"}


def ways_to_have_rates() -> dict[str, Any]:
    def of(name: str, **more: Any) -> Any:
        return optimizer.create(name, learning_rate=0.1, wd=0.01, param_idx2name=NAMES, **more)

    class Slower(optimizer.SGD):
        def _get_lr(self, index: Any) -> float:
            return super()._get_lr(index) / (1 + index)

    class Own(optimizer.Adam):
        def hyper(self, index: Any) -> tuple[float, ...]:
            lr, wd = super().hyper(index)
            return lr * index, wd

    scheduled = lambda name: of(name, lr_scheduler=FactorScheduler(2, 0.5, base_lr=0.3))  # noqa: E731
    return {
        **{name: lambda name=name: of(name) for name in ("sgd", "adam", "adamw", "ftml", "lamb")},
        **{f"{name}, scheduled": lambda name=name: scheduled(name) for name in ("sgd", "lamb")},
        "a rate of its own": lambda: Slower(learning_rate=0.1, param_idx2name=NAMES),
        "a `hyper` of its own": lambda: Own(learning_rate=0.1, param_idx2name=NAMES),
    }


@pytest.mark.parametrize("how", ways_to_have_rates())
def test_rates_of_all_parameters_are_those_of_each(how: str) -> None:
    together, apart = (ways_to_have_rates()[how]() for _ in range(2))
    indices = tuple(NAMES)
    for step in range(8):
        if step == 2:  # also in place
            for o in (together, apart):
                o.set_lr_mult({"b_weight": 3.0})
        elif step == 3:
            together.wd_mult["a_bias"] = apart.wd_mult["a_bias"] = 0.25
        elif step == 4:
            together.hyper(3), apart.hyper(3)  # one counts on
        elif step == 6:
            together.set_progress(apart.progress())
        want = np.array([apart.hyper(i) for i in indices])
        np.testing.assert_array_equal(together.hypers(indices), want)
        assert together.progress() == apart.progress()


def test_parameters_that_are_alike_are_asked_about_once(monkeypatch: Any) -> None:
    asked: list[Any] = []
    hyper = optimizer.SGD.hyper
    counted = lambda self, index: (asked.append(index), hyper(self, index))[1]  # noqa: E731
    monkeypatch.setattr(optimizer._OperatorOptimizer, "hyper", optimizer.alike(counted))
    names = {i: f"{i}_{'weight' if i % 2 else 'bias'}" for i in range(1000)}
    sgd = optimizer.SGD(learning_rate=0.1, wd=0.01, param_idx2name=names)
    sgd.hypers(tuple(names))  # the first time counts them in their order
    asked.clear()
    rows = sgd.hypers(tuple(names))
    assert sorted(asked) == [0, 1]
    assert {count for _, count in sgd.progress()["counts"]} == {2}
    np.testing.assert_array_equal(rows[:, 1], [0.0, 0.01] * 500)


@pytest.mark.parametrize("how", ways_to_have_rates())
def test_counts_are_there_for_whoever_looks_after_some_steps(how: str) -> None:
    together, apart = (ways_to_have_rates()[how]() for _ in range(2))
    indices, others = tuple(NAMES), tuple(reversed(NAMES))
    for step in range(12):
        if step == 2:  # another is the first of its kind
            together.lr_mult[0] = apart.lr_mult[0] = 0.5
        order = others if step in (7, 8) else indices
        want = np.array([apart.hyper(i) for i in order])
        np.testing.assert_array_equal(together.hypers(order), want)
        if step in (3, 5, 8, 11):
            assert together.progress() == apart.progress()


def test_counts_are_right_where_a_schedule_fails() -> None:
    def schedule(count: int) -> float:
        if count == 3:
            raise ValueError("third")
        return 0.1

    sgd = optimizer.SGD(lr_scheduler=schedule, param_idx2name=NAMES)
    for _ in range(2):
        sgd.hypers(tuple(NAMES))
    with pytest.raises(ValueError, match="third"):
        sgd.hypers(tuple(NAMES))
    counts = dict(sgd._index_update_count)
    assert sorted(counts) == sorted(NAMES) and sorted(counts.values())[:-1] == [2] * (len(NAMES) - 1)


def test_schedule_sees_the_largest_count() -> None:
    opt = optimizer.create("sgd", lr_scheduler=FactorScheduler(2, 0.5, base_lr=1.0))
    assert [opt.hyper(0)[0] for _ in range(3)] == [1.0, 1.0, 0.5]
    assert opt.hyper(1)[0] == 0.5
    assert opt.learning_rate == 0.5


def test_a_given_rate_is_written_to_the_schedule() -> None:
    opt = optimizer.create("sgd", learning_rate=0.7, lr_scheduler=FactorScheduler(5, 0.5))
    assert opt.learning_rate == 0.7
    # MXNet 1.9.1: Cosine keeps the base rate of its constructor.
    opt = optimizer.create("sgd", learning_rate=0.7, lr_scheduler=CosineScheduler(20, base_lr=0.3))
    assert opt.hyper(0)[0] == 0.29815325108927065


def test_rate_cannot_be_set_beside_a_schedule() -> None:
    for kind in (StateError, UserWarning):
        with pytest.raises(kind, match="FactorScheduler"):
            optimizer.create("sgd", lr_scheduler=FactorScheduler(5)).set_learning_rate(0.1)
    opt = optimizer.create("sgd")
    opt.set_learning_rate(0.25)
    assert opt.learning_rate == 0.25


def test_group_adagrad_is_for_matrices_without_decay() -> None:
    opt = optimizer.create("groupadagrad", wd=0.1)
    with pytest.raises(mx.ShapeError, match="matrices"):
        opt.create_state(0, mx.nd.ones(3))
    weight = mx.nd.ones((2, 3))
    with pytest.raises(OpAttributeError, match="no weight decay"):
        opt.update(0, weight, weight, opt.create_state(0, weight))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_16_bit_weights_learn_through_a_float32_copy(kind: str) -> None:
    opt = optimizer.create("sgd", learning_rate=1e-4, multi_precision=True)
    updater, weight = optimizer.get_updater(opt), array(np.ones(2), dtype=kind)
    for _ in range(20):
        updater("w", array(np.ones(2), dtype=kind), weight)
    master = updater.states["w"][1].asnumpy()
    np.testing.assert_allclose(master, 1 - 20e-4, rtol=1e-6)
    np.testing.assert_array_equal(weight.asnumpy(), master.astype(weight.asnumpy().dtype))


MIXED = ["sgd", "nag", "signum", "adam", "adamw", "lamb", "ftml", "adagrad", "adadelta", "ftrl", "rmsprop"]


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_fused_steps_of_every_optimizer_give_the_bits_of_single_updates(name: str, kind: str) -> None:
    def make() -> Any:
        own = {"momentum": 0.9} if name in ("sgd", "nag") else {}
        return optimizer.create(name, learning_rate=0.01, wd=0.01, multi_precision=True, **own)

    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(mx.sym.Variable("w") * mx.sym.Variable("x"))))
    start = {n: array(np.linspace(-1, 2, 6), dtype=kind) for n in ("w", "x")}
    fused_opt, single_opt = make(), make()
    kinds = {"w": kind, "x": kind}
    fused = net.simple_bind(mx.cpu(), type_dict=kinds, optimizer=fused_opt, x=(6,), grad_req={"w": "write"})
    single = net.simple_bind(mx.cpu(), type_dict=kinds, x=(6,), grad_req={"w": "write"})
    updater = optimizer.get_updater(single_opt)
    for exe in (fused, single):
        exe.copy_params_from(start)
    for _ in range(3):
        fused.step([fused_opt.hyper(0)])
        single.forward(is_train=True)
        single.backward()
        updater(0, single.grad_dict["w"], single.arg_dict["w"])
    np.testing.assert_array_equal(fused.arg_dict["w"].asnumpy(), single.arg_dict["w"].asnumpy())
    assert not np.array_equal(fused.arg_dict["w"].asnumpy(), start["w"].asnumpy())


def test_masters_follow_weights_that_are_set_and_keep_what_rounding_would_lose() -> None:
    opt = optimizer.create("sgd", learning_rate=1e-4, multi_precision=True)
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.Variable("w") * mx.sym.Variable("x")))
    exe = net.simple_bind(mx.cpu(), type_dict={"w": "float16", "x": "float16"}, optimizer=opt, x=(2,))
    exe.copy_params_from({n: array(np.ones(2)) for n in ("w", "x")})
    for _ in range(20):
        exe.step([opt.hyper(0)])
    master = exe.optimizer_states["w:weight32"].asnumpy()
    np.testing.assert_allclose(master, 1 - 20e-4, rtol=1e-6)
    exe.copy_params_from({"w": array(np.full(2, 3.0))})
    exe.step([opt.hyper(0)])
    np.testing.assert_allclose(exe.optimizer_states["w:weight32"].asnumpy(), 3 - 1e-4, rtol=1e-7)


@pytest.mark.parametrize("weights_are_set", [True, False])
def test_masters_that_an_interrupt_left_unmade_are_made_by_the_next_step(
    monkeypatch, weights_are_set
) -> None:
    opt = optimizer.create("sgd", learning_rate=0.0, multi_precision=True)
    net = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="fc"))
    names = ("fc_weight", "fc_bias")
    exe = net.simple_bind(
        mx.cpu(), type_dict=dict.fromkeys((*names, "x"), "float16"), optimizer=opt, x=(1, 2)
    )
    hyper = [opt.hyper(i) for i in range(2)]
    exe.step(hyper)
    values = {n: array(np.full(exe.arg_dict[n].shape, 3.0)) for n in names}
    astype, count = mx.nd.NDArray.astype, iter(range(100))

    def interrupted(*args: Any, **keywords: Any) -> Any:
        if next(count) == 1:
            raise KeyboardInterrupt
        return astype(*args, **keywords)

    if not weights_are_set:
        for n in names:
            exe.arg_dict[n][:] = 3
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(mx.nd.NDArray, "astype", interrupted)
        exe.copy_params_from(values) if weights_are_set else exe.refresh_masters()
    want = {n: exe.arg_dict[n].asnumpy() for n in names}
    exe.step(hyper)
    for n in names:
        np.testing.assert_array_equal(exe.arg_dict[n].asnumpy(), want[n])


@pytest.mark.parametrize("name, kwargs, expected", MXNET)
def test_resumed_training_is_bitwise_that_which_never_stopped(
    name: str, kwargs: dict[str, Any], expected: list[float]
) -> None:
    def make() -> optimizer.Updater:
        schedule = FactorScheduler(1, 0.5, base_lr=0.1)
        return optimizer.get_updater(optimizer.create(name, lr_scheduler=schedule, **kwargs))

    whole = train(make(), array(WEIGHT))
    first, weight = make(), array(WEIGHT)
    halfway = train(first, weight, GRADS[:2])
    second = make()
    second.set_states(first.get_states())
    assert np.array_equal(train(second, array(halfway), GRADS[2:]), whole)
    assert second.get_states() == (train(first, weight, GRADS[2:]), first.get_states())[1]


def test_a_schedule_continues_where_it_was() -> None:
    def make() -> optimizer.Updater:
        schedule = FactorScheduler(2, 0.5, base_lr=1.0)
        return optimizer.get_updater(optimizer.create("sgd", lr_scheduler=schedule))

    first, weight = make(), array(WEIGHT)
    train(first, weight)
    first.optimizer.lr_scheduler.base_lr = 0.125  # set by hand: it does not follow from the count
    second = make()
    second.set_states(first.get_states())
    assert second.optimizer.hyper(0) == (0.125, 0.0)
    assert second.optimizer.hyper(0) == (0.0625, 0.0)
    assert second.optimizer.num_update == 5


def test_states_can_carry_the_optimizers_own_numbers() -> None:
    saved = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.3, momentum=0.5)).get_states(True)
    updater = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
    updater.set_states(saved)
    assert (updater.optimizer.lr, updater.optimizer.momentum) == (0.3, 0.5)


def test_equal_states_are_equal_bytes() -> None:
    def states() -> bytes:
        updater = optimizer.get_updater(optimizer.create("adam"))
        train(updater, array(WEIGHT))
        return updater.get_states()

    assert states() == states()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_refused_without_being_read(protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("the pickle was read",)

    updater = optimizer.get_updater(optimizer.create("sgd"))
    for value in (Trap(), {0: None}, {}, (1, 2)):
        with pytest.raises(FormatError, match="pickle"):
            updater.set_states(pickle.dumps(value, protocol))


def test_damaged_states_are_refused_and_change_nothing() -> None:
    updater = optimizer.get_updater(optimizer.create("adam"))
    train(updater, array(WEIGHT))
    good = updater.get_states()
    for end in range(len(good)):
        with pytest.raises(FormatError):
            updater.set_states(good[:end])
    for at in range(0, len(good), 3):
        with pytest.raises(FormatError):
            updater.set_states(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(FormatError):
        updater.set_states(good + b"\0")
    assert updater.get_states() == good


def test_states_of_another_kind_are_refused() -> None:
    adam = optimizer.get_updater(optimizer.create("adam")).get_states()
    sgd = optimizer.get_updater(optimizer.create("sgd"))
    with pytest.raises(FormatError, match=r"'adam'.*'sgd'"):
        sgd.set_states(adam)
    scheduled = optimizer.get_updater(optimizer.create("sgd", lr_scheduler=FactorScheduler(3)))
    with pytest.raises(FormatError, match="lr_scheduler"):
        scheduled.set_states(optimizer.get_updater(optimizer.create("sgd", wd=0.5)).get_states(True))
    assert scheduled.optimizer.wd == 0.0
    with pytest.raises(FormatError, match="not an optimizer"):
        sgd.set_states(pack_state({"epoch": 3}))


def test_a_packed_tree_comes_back() -> None:
    tree = {
        "a": [1, 2.5, None, True, "x"],
        "b": {"c": np.arange(6, dtype="int64").reshape(2, 3), "d": np.float32(3)},
        "e": np.zeros((0, 2), "float16"),
        "f": np.array(7.0),
        "g": np.arange(3, dtype="uint32"),
    }
    back = unpack_state(pack_state(tree))
    assert back["a"] == tree["a"] and back["b"]["d"] == 3.0
    for mine, theirs in ((back["b"]["c"], tree["b"]["c"]), (back["e"], tree["e"]), (back["f"], tree["f"])):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape and np.array_equal(mine, theirs)
    with pytest.raises(TypeError, match="object"):
        pack_state({"x": object()})
    with pytest.raises(TypeError, match="array"):
        pack_state({"array": 1})


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'rmsporp'.*Did you mean 'rmsprop'"):
        optimizer.create("rmsporp")
    with pytest.raises(OpAttributeError, match=r"'momentun'.*Did you mean 'momentum'"):
        optimizer.create("sgd", momentun=0.9)
    with pytest.raises(OpAttributeError, match=r"'learning_rat'.*Did you mean 'learning_rate'"):
        optimizer.create("sgd", learning_rat=0.9)
    with pytest.raises(UnknownNameError, match="text"):
        optimizer.create(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kwargs", [{"learning_rate": "fast"}, {"wd": None}, {"momentum": []}, {"param_idx2name": [1]}]
)
def test_wrong_arguments_are_named(kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(kwargs))):
        optimizer.create("sgd", **kwargs)
    with pytest.raises(ValueError, match="finite"):
        optimizer.create("sgd", learning_rate=float("nan"))


def test_lists_must_match() -> None:
    updater = optimizer.get_updater(optimizer.create("sgd"))
    with pytest.raises(ValueError, match="2 indices, 1 gradients"):
        updater([0, 1], [array(WEIGHT)], [array(WEIGHT)])


def test_a_users_optimizer_can_be_registered() -> None:
    @optimizer.register
    class HalfWay(optimizer.Optimizer):
        def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
            weight[:] = weight * 0.5

    weight = array(WEIGHT)
    optimizer.get_updater(optimizer.create("HalfWay"))(0, weight, weight)
    np.testing.assert_array_equal(weight.asnumpy(), WEIGHT / 2)
    existing = optimizer.create("sgd")
    assert optimizer.create(existing) is existing


def test_what_another_test_registered_is_gone() -> None:
    with pytest.raises(mx.base.MXNetError, match="no optimizer 'halfway'"):
        optimizer.create("halfway")


@pytest.mark.parametrize("name", ["update", "create_state"])
def test_what_a_subclass_changes_is_not_left_out_of_a_fused_step(name):
    """A class that inherits SGD's fused form and has an update of its own was trained by SGD's."""
    called = []

    def changed(self, *args):
        called.append(name)
        return getattr(mx.optimizer.SGD, name)(self, *args)

    own = type("Own", (mx.optimizer.SGD,), {name: changed})
    assert own().update_rule() is None
    assert type("Renamed", (mx.optimizer.SGD,), {})().update_rule() is not None
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    data = mx.io.NDArrayIter(np.ones((8, 4), "float32"), np.zeros(8, "float32"), 4)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), fused_update=True)
    module.fit(data, num_epoch=1, optimizer=own(rescale_grad=0.25))
    assert called
