"""Steps of AdamW and LAMB under the names and arguments of mx.nd.contrib, beside numpy."""

import numpy as np
import pytest

import mxlite as mx

SHAPES = [(2,), (3, 2)]
RATES = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6}


def arrays(dtype="float32"):
    """Weights, gradients, means and variances."""
    draw = np.random.default_rng(3)
    return [[mx.nd.array(draw.uniform(0.1, 1, s), dtype=dtype) for s in SHAPES] for _ in range(4)]


def numbers(lists):
    return [[a.asnumpy().astype("float64") for a in one] for one in lists]


def adamw(weight, grad, mean, var, scale, lr, wd, eta, clip=np.inf):
    g = np.clip(grad * scale, -clip, clip)
    mean = 0.8 * mean + 0.2 * g
    var = 0.9 * var + 0.1 * g * g
    return weight - eta * (lr * mean / (np.sqrt(var) + 1e-6) + wd * weight), mean, var


def close(found, wanted, rtol=1e-5):
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a.asnumpy(), b, rtol)


@pytest.mark.parametrize("scale", [0.5, mx.nd.array([0.5])], ids=["number", "array"])
def test_adamw_of_many_weights_is_the_formula_for_each(scale):
    lists = arrays()
    lrs, wds, etas = [0.1, 0.2], [0.0, 0.1], [1.0, 0.5]
    wanted = [adamw(*a, 0.5, *r, clip=0.3) for a, *r in zip(zip(*numbers(lists)), lrs, wds, etas)]
    single = [[a.copy() for a in one] for one in lists]
    rest = {**RATES, "clip_gradient": 0.3}
    mx.nd.contrib.multi_adamw_update(*lists, scale, lrs, wds, etas, out=lists[0], size=2, **rest)
    for own, other, want, lr, wd, eta in zip(zip(*lists), zip(*single), wanted, lrs, wds, etas):
        w, g, m, v = other
        mx.nd.contrib.adamw_update(w, g, m, v, scale, lr, eta, wd=wd, out=w, **rest)
        for a, b in zip(own, other):
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes()
        close([own[0], own[2], own[3]], want)


def test_adamw_of_16_bit_weights_steps_their_float32_copies():
    masters, _, mean, var = arrays()
    weights, grads = arrays("float16")[:2]
    wanted = [adamw(*a, 0.5, 0.1, 0.01, 1.0) for a in zip(*numbers([masters, grads, mean, var]))]
    made = mx.nd.contrib.multi_mp_adamw_update(
        weights, grads, mean, var, masters, 0.5, [0.1] * 2, [0.01] * 2, [1.0] * 2, out=weights, **RATES
    )
    for i, (w, m, v) in enumerate(wanted):
        close([masters[i], mean[i], var[i]], (w, m, v))
        assert made[i] is weights[i]
        assert weights[i].asnumpy().tobytes() == masters[i].asnumpy().astype("float16").tobytes()


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan")])
def test_adamw_leaves_everything_as_it_is_after_an_overflow(scale):
    lists = arrays()
    before = numbers(lists)
    weights, grads, mean, var = lists
    made = mx.nd.contrib.multi_adamw_update(*lists, mx.nd.array([scale]), [1] * 2, [1] * 2, [1] * 2)
    new = mx.nd.contrib.adamw_update(weights[0], grads[0], mean[0], var[0], scale, 0.1, 1.0)
    for found, wanted in zip([*lists, made, [new]], [*before, before[0], before[0]]):
        close(found, wanted, 0)
    assert new is not weights[0]


def test_lamb_of_many_weights_is_that_of_each():
    lists = arrays()
    single = [[a.copy() for a in one] for one in lists]
    mx.nd.contrib.multi_lamb_update(*lists, (1, 3), (0.1, 0.2), (0, 0.1), out=lists[0], num_tensors=2)
    for (w, g, m, v), own, t, lr, wd in zip(zip(*single), zip(*lists), (1, 3), (0.1, 0.2), (0, 0.1)):
        mx.nd.lamb_update(w, g, m, v, lr=lr, wd=wd, t=t, out=w)
        for a, b in zip(own, (w, g, m, v)):
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes()


def test_lists_of_other_lengths_are_refused():
    weights, grads, mean, var = arrays()
    with pytest.raises(mx.OpAttributeError, match=r"2 arrays each, got \[2, 1, 2, 2\]"):
        mx.nd.contrib.multi_adamw_update(weights, grads[:1], mean, var, 1, [0.1] * 2, [0] * 2, [1] * 2)
    with pytest.raises(mx.OpAttributeError, match="etas must be 2 numbers"):
        mx.nd.contrib.multi_adamw_update(weights, grads, mean, var, 1, [0.1] * 2, [0] * 2, [1])
