"""Initial values: which rule a name falls under, and what each initializer fills in."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxlite import ndarray as nd
from mxlite.core import OpAttributeError, ShapeError, UnknownNameError
from mxlite.module.initial import initializer as init
from mxlite.module.initial.initializer import InitDesc


def filled(
    initializer: Any, name: str, shape: tuple[int, ...], attrs: Any = None, dtype: str = "float32"
) -> Any:
    arr = nd.full(shape, 7.0, dtype=dtype)
    initializer(InitDesc(name, attrs), arr)
    return arr.asnumpy()


@pytest.mark.parametrize(
    "name, value",
    [
        ("fc_weight", 3.0),
        ("fc_bias", 0.0),
        ("bn_gamma", 1.0),
        ("bn_beta", 0.0),
        ("bn_moving_mean", 0.0),
        ("bn_moving_var", 1.0),
        ("q_min", 0.0),
        ("q_max", 1.0),
    ],
)
def test_the_end_of_a_name_decides(name: str, value: float) -> None:
    assert (filled(init.Constant(3), name, (2, 3)) == value).all()
    arr = nd.zeros((2, 3))
    init.Constant(3)(name, arr)  # plain text works like an InitDesc
    assert (arr.asnumpy() == value).all()


def test_the_variables_own_initializer_wins() -> None:
    assert (filled(init.Constant(3), "fc_bias", (2,), {"__init__": init.One().dumps()}) == 1).all()
    assert (filled(init.Uniform(), "anything", (2,), {"__init__": '["constant", {"value": 5}]'}) == 5).all()
    assert (filled(init.Uniform(), "anything", (2,), {"__init__": "ones"}) == 1).all()


def test_a_name_that_tells_nothing_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match=r"'h0'.*init=mx.init.Zero"):
        filled(init.One(), "h0", (2,))
    with pytest.raises(TypeError, match="name"):
        init.One()(3, nd.zeros(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "initializer, text",
    [
        (
            init.Xavier(factor_type="in", magnitude=2.34),
            '["xavier", {"rnd_type": "uniform", "factor_type": "in", "magnitude": 2.34}]',
        ),
        (init.MSRAPrelu(), '["msraprelu", {"factor_type": "avg", "slope": 0.25}]'),
        (init.Constant(np.array([1, 2])), '["constant", {"value": [1, 2]}]'),
        (init.Zero(), '["zero", {}]'),
        (init.Normal(0.5), '["normal", {"sigma": 0.5}]'),
    ],
)
def test_dumps_is_mxnets_and_creates_an_equal_one(initializer: init.Initializer, text: str) -> None:
    assert initializer.dumps() == text
    assert init.create(text) == initializer
    assert init.create(text) != init.One()


def test_seed_repeats_random_weights() -> None:
    draws = []
    for seed in (1, 1, 2):
        nd.random.seed(seed)
        draws.append(filled(init.Xavier(), "w_weight", (5, 4)))
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize("factor, n", [("avg", (4 * 9 + 64 * 9) / 2), ("in", 4 * 9), ("out", 64 * 9)])
def test_xavier_bounds_count_the_kernels_area(factor: str, n: float) -> None:
    nd.random.seed(0)
    bound = np.sqrt(3 / n)
    w = filled(init.Xavier(factor_type=factor), "c_weight", (64, 4, 3, 3))
    assert 0.97 * bound < np.abs(w).max() <= np.float32(bound)
    assert abs(w.std() / (bound / np.sqrt(3)) - 1) < 0.05


def test_spreads_are_as_asked() -> None:
    nd.random.seed(0)
    shape = (100, 100)
    assert abs(filled(init.Normal(0.5), "w_weight", shape).std() - 0.5) < 0.02
    assert abs(filled(init.MSRAPrelu(slope=0), "w_weight", shape).std() - np.sqrt(2 / 100)) < 0.01
    w = filled(init.Uniform(0.3), "w_weight", shape)
    assert 0.29 < w.max() <= 0.3 and -0.3 <= w.min() < -0.29 and abs(w.mean()) < 0.01


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (4, 3, 3), (5, 5)])
def test_orthogonal_has_orthonormal_rows_or_columns(kind: str, shape: tuple[int, ...]) -> None:
    w = filled(init.Orthogonal(scale=2.0, rand_type=kind), "w_weight", shape).reshape(shape[0], -1) / 2
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_bilinear_weights_are_mxnets() -> None:
    rows = [
        [0.111111112, 0.222222224, 0.333333343, 0.222222224, 0.111111112],
        [0.222222224, 0.444444448, 0.666666687, 0.444444448, 0.222222224],
        [0.333333343, 0.666666687, 1.0, 0.666666687, 0.333333343],
        [0.222222224, 0.444444448, 0.666666687, 0.444444448, 0.222222224],
    ]  # MXNet 1.9.1
    w = filled(init.Bilinear(), "up_weight", (2, 1, 4, 5))
    np.testing.assert_allclose(w[0, 0], rows, rtol=1e-6)
    assert np.array_equal(w[0], w[1])


def test_lstm_bias_opens_the_forget_gate() -> None:
    attrs = {"__init__": init.LSTMBias(2.0).dumps()}
    assert filled(init.Zero(), "i2h_bias", (12,), attrs).tolist() == [0.0] * 3 + [2.0] * 3 + [0.0] * 6


def test_a_constant_may_be_an_array() -> None:
    assert filled(init.Constant([[1, 2], [3, 4]]), "w_weight", (2, 2)).tolist() == [[1, 2], [3, 4]]
    assert filled(init.Constant(nd.array([1, 2])), "w_weight", (2,), dtype="float64").tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        filled(init.Constant([1, 2]), "w_weight", (3,))


def test_mixed_takes_the_first_that_matches() -> None:
    mixed = init.Mixed(["conv.*", ".*bias", ".*weight"], [init.One(), init.Zero(), init.Constant(2)])
    assert (filled(mixed, "conv0_weight", (1, 1)) == 1).all()
    assert (filled(mixed, "fc_weight", (1, 1)) == 2).all()
    with pytest.raises(UnknownNameError, match="matches none"):
        filled(mixed, "gamma", (1,))
    with pytest.raises(ValueError, match="1 patterns"):
        init.Mixed([".*"], [])


def test_load_takes_values_from_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.params")
    nd.save(path, {"arg:fc_weight": nd.array([[1.0, 2.0]]), "aux:bn_moving_mean": nd.array([3.0])})
    load = init.Load(path, default_init=init.One())
    assert filled(load, "fc_weight", (1, 2)).tolist() == [[1, 2]]
    assert filled(load, "bn_moving_mean", (1,)).tolist() == [3]
    assert filled(load, "other_weight", (2,)).tolist() == [1, 1]
    with pytest.raises(ShapeError, match="fc_weight"):
        filled(load, "fc_weight", (2, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'fc_weight'"):
        filled(init.Load({"fc_weight": nd.zeros(1)}), "fc_wieght", (1,))


@pytest.mark.parametrize("kind", [init.Xavier, init.Orthogonal, init.MSRAPrelu])
def test_vectors_are_refused_by_name(kind: type[init.Initializer]) -> None:
    with pytest.raises(ShapeError, match=r"'x_weight'.*at least 2 axes"):
        filled(kind(), "x_weight", (3,))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'xavier'"):
        init.create("xaver")
    with pytest.raises(OpAttributeError, match="Did you mean 'sigma'"):
        init.create("normal", sigmo=1)
    with pytest.raises(ValueError, match="Did you mean 'uniform'"):
        init.Xavier(rnd_type="unifrom")
    with pytest.raises(UnknownNameError, match="JSON"):
        init.create("[3")


def test_users_initializers_are_found_and_verbosity_logs(caplog: pytest.LogCaptureFixture) -> None:
    @init.register
    class Sevens(init.Initializer):
        def _init_weight(self, name: str, arr: Any) -> None:
            arr[:] = 7

    caplog.set_level(logging.INFO)
    sevens = init.create("sevens").set_verbosity(True)
    assert (filled(sevens, "w_weight", (2,)) == 7).all()
    assert "Initialized w_weight" in caplog.text and "7.0" in caplog.text
