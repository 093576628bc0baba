"""Random numbers: that they follow their laws, and depend on nothing but seed, step, stream and element.

All tests have fixed seeds. The level of every test of a law is 1e-4, so a right sampler passes at nearly
every seed, and the sample is so large that a parameter wrong by a few per cent fails (`test_tests_can_fail`).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.errors import DTypeError, OpAttributeError, ShapeError
from mxlite.engine import use_engine
from mxlite.ops.random import distributions
from mxlite.ops.random.philox import RandomStream

COUNT = 40_000


@pytest.fixture(autouse=True)
def state():
    before = mx.random.get_state()
    mx.random.seed(20)
    yield
    mx.random.set_state(before)


def numbers(name, count=COUNT, **parameters):
    """By the scalar operator, in float64."""
    made = getattr(mx.nd, f"random_{name}")(shape=(count,), dtype="float64", **parameters)
    return made.asnumpy()


# -- laws ------------------------------------------------------------------------------------------------


def ks_distance(x, cdf):
    """sqrt(n) times the largest distance of the empirical law from `cdf`: above 2.22 at level 1e-4."""
    x = np.sort(x)
    f, i = cdf(x), np.arange(len(x))
    return math.sqrt(len(x)) * max(np.max(f - i / len(x)), np.max((i + 1) / len(x) - f))


def chi_square(x, probability):
    """(statistic - degrees) / sqrt(2 * degrees), cells of expected 20 at least; above about 4.5 at 1e-4."""
    p = np.array([probability(k) for k in range(int(x.max()) + 200)])
    counts = np.bincount(x.astype(int), minlength=len(p))
    cells, expected, seen, e = [], 0.0, 0, len(x) * p
    for k in range(len(p)):
        expected, seen = expected + e[k], seen + counts[k]
        if expected >= 20:
            cells.append((seen, expected))
            expected, seen = 0.0, 0
    cells[-1] = (cells[-1][0] + seen, cells[-1][1] + len(x) - sum(c[1] for c in cells))
    degrees = len(cells) - 1
    return (sum((o - e) ** 2 / e for o, e in cells) - degrees) / math.sqrt(2 * degrees)


def gamma_cdf(shape, scale):
    """By adding up the density; below shape 1 over x^shape, where it has no pole at 0."""
    q = min(shape, 1)
    t = np.linspace(0, (scale * (shape + 12 * math.sqrt(shape) + 20)) ** q, 400_001)
    x = t ** (1 / q)
    density = np.exp(-x / scale - math.lgamma(shape) - shape * math.log(scale)) / q
    if shape >= 1:
        density *= x ** (shape - 1)
    total = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * (t[1] - t[0]))])
    return lambda x: np.interp(x**q, t, total)


def poisson_pmf(mean):
    return lambda k: math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


def negative_binomial_pmf(k, p):
    return lambda x: math.exp(
        math.lgamma(x + k) - math.lgamma(k) - math.lgamma(x + 1) + k * math.log(p) + x * math.log1p(-p)
    )


def normal_cdf(mean, deviation):
    erf = np.vectorize(math.erf)
    return lambda x: 0.5 * (1 + erf((x - mean) / deviation / math.sqrt(2)))


CONTINUOUS = {
    "uniform": ({"low": -1, "high": 3}, lambda x: (x + 1) / 4),
    "normal": ({"loc": 1, "scale": 2}, normal_cdf(1, 2)),
    "exponential": ({"lam": 4}, lambda x: 1 - np.exp(-4 * x)),
    **{
        f"gamma-{shape}": ({"alpha": shape, "beta": 2.5}, gamma_cdf(shape, 2.5))
        for shape in (0.3, 0.9, 1, 1.5, 7, 40)
    },
}
WHOLE = {
    **{f"poisson-{mean}": ({"lam": mean}, poisson_pmf(mean)) for mean in (0.2, 3, 9.9, 10, 14, 60, 900)},
    **{
        f"negative_binomial-{k}-{p}": ({"k": k, "p": p}, negative_binomial_pmf(k, p))
        for k, p in ((1, 0.5), (3, 0.25), (40, 0.6))
    },
    **{
        f"generalized_negative_binomial-{m}-{d}": (
            {"mu": m, "alpha": d},
            negative_binomial_pmf(1 / d, 1 / (1 + m * d)),
        )
        for m, d in ((3, 0.5), (20, 0.1))
    },
    "generalized_negative_binomial-poisson": ({"mu": 5, "alpha": 0}, poisson_pmf(5)),
}


@pytest.mark.parametrize("row", CONTINUOUS)
def test_continuous_numbers_follow_their_law(row):
    parameters, cdf = CONTINUOUS[row]
    assert ks_distance(numbers(row.split("-")[0], **parameters), cdf) < 2.22


@pytest.mark.parametrize("row", WHOLE)
def test_whole_numbers_follow_their_law(row):
    parameters, probability = WHOLE[row]
    assert chi_square(numbers(row.split("-")[0], **parameters), probability) < 4.5


@pytest.mark.parametrize("row", [*CONTINUOUS, *WHOLE])
def test_tests_can_fail(row):
    """A parameter of the sampler off by a few per cent is noticed."""
    parameters, law = {**CONTINUOUS, **WHOLE}[row]
    key = next(k for k in parameters if k in ("high", "scale", "lam", "beta", "p", "mu"))
    wrong = parameters | {key: parameters[key] * (0.95 if key == "p" else 1.06)}
    x = numbers(row.split("-")[0], **wrong)
    if row in CONTINUOUS:
        assert ks_distance(np.minimum(x, 3) if key == "high" else x, law) > 2.22
    else:
        assert chi_square(x, law) > 4.5


@pytest.mark.parametrize("lam", [1e4, 1e7, 1e12])
def test_large_means_have_their_moments(lam):
    z = (numbers("poisson", lam=lam) - lam) / math.sqrt(lam)
    assert abs(z.mean()) < 4 / math.sqrt(COUNT) and abs(z.std() - 1) < 3 / math.sqrt(COUNT)


def test_log_factorials():
    k = np.array([0.0, 1, 2, 15, 16, 17, 100, 1e4, 1e7])
    want = [math.lgamma(x + 1) for x in k]
    np.testing.assert_allclose(distributions._log_factorial(np, k), want, rtol=2e-14)


# -- counters --------------------------------------------------------------------------------------------

SAMPLERS = {
    "uniform": (-1, 2),
    "normal": (0, 2),
    "exponential": (3,),
    "bernoulli": (0.3,),
    "gamma": (0.5, 2),
    "poisson": (30,),
    "negative_binomial": (4, 0.3),
    "generalized_negative_binomial": (8, 0.6),
}


def sample(name, elements, stream=5, step=3, parameters=None):
    rng = RandomStream(np.array([7, step], np.uint64), stream)
    source = distributions.UniformSource(np, rng, np.empty(distributions.WORK_BYTES, np.uint8))
    of = [np.full(len(elements), float(p)) for p in parameters or SAMPLERS[name]]
    return getattr(distributions, name)(source, elements, *of)


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_element_does_not_depend_on_its_neighbours(name):
    whole = sample(name, np.arange(1000))
    some = np.array([0, 3, 17, 500, 501, 998])
    np.testing.assert_array_equal(sample(name, some), whole[some])
    np.testing.assert_array_equal(sample(name, some[::-1]), whole[some[::-1]])
    for i in (0, 7, 998):
        np.testing.assert_array_equal(sample(name, np.array([i])), whole[i : i + 1])


@pytest.mark.parametrize("name", SAMPLERS)
def test_streams_and_steps_each_change_the_numbers(name):
    first, n = sample(name, np.arange(1000)), 1000
    for other in (sample(name, np.arange(n), stream=6), sample(name, np.arange(n), step=4)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / math.sqrt(n)


def test_elements_tags_and_the_stream_itself_share_no_block():
    rng, work = RandomStream(np.array([7, 3], np.uint64), 5), np.empty(RandomStream.WORK_BYTES, np.uint8)
    own = np.empty(400, np.uint32)
    rng.fill_bits(np, own, work)
    blocks = {tuple(b) for b in own.reshape(-1, 4)}
    for tag in (1, 2, 2049, 65535):
        blocks |= {tuple(b) for b in rng.element_bits(np, np.arange(100), tag, work).tolist()}
    assert len(blocks) == 500


def test_arrays_of_equal_parameters_give_what_numbers_give():
    state = mx.random.get_state()
    for name, parameters in SAMPLERS.items():
        if name in ("uniform", "normal", "bernoulli"):
            continue
        mx.random.set_state(state)
        want = getattr(mx.nd._internal, f"_random_{name}")(*parameters, shape=(300, 10)).asnumpy()
        mx.random.set_state(state)
        arrays = [mx.nd.full((300,), p) for p in parameters]
        got = getattr(mx.nd._internal, f"_sample_{name}")(*arrays, shape=(10,)).asnumpy()
        close = np.isclose(got, want, rtol=1e-5)  # 0.3 is another number in float32
        assert close.mean() > 0.99, name


def draw_everything():
    a, b = mx.nd.array([[1.5, 2]]), mx.nd.array([[3.0, 4]])
    r = mx.random
    made = [
        r.uniform(a, b, shape=3), r.normal(a, b), r.exponential(a, shape=(2, 2)), r.gamma(a, b), r.poisson(a),
        r.negative_binomial(a, mx.nd.array([[0.5, 0.1]])), r.generalized_negative_binomial(a, b, shape=2),
        r.exponential(3, shape=4), r.gamma(0.5, 2, shape=4), r.poisson(50, shape=4), r.negative_binomial(3,
        0.4), r.generalized_negative_binomial(3, 0.4, shape=(2, 2)), r.randint(0, 10, shape=5),
        r.shuffle(mx.nd.arange(9)), r.multinomial(mx.nd.array([[0.2, 0.8], [0.5, 0.5]]), shape=4),
        r.bernoulli(mx.nd.array([0.5] * 9)), r.uniform_like(a), r.normal_like(a, 3, 4), r.exponential_like(a,
        2), r.gamma_like(a, 2, 2), r.poisson_like(a, 30), r.negative_binomial_like(a, 2, 0.3),
        r.generalized_negative_binomial_like(a, 2, 0.3),
    ]  # fmt: skip
    return [m.asnumpy() for m in made]


def test_engines_draw_the_same_numbers():
    found = []
    for engine in ("naive", "threaded", "threaded"):
        mx.random.seed(4)
        with use_engine(engine):
            found.append(draw_everything())
    for others in found[1:]:
        for want, got in zip(found[0], others):
            np.testing.assert_array_equal(got, want)


def random_net():
    """Noise of several laws on the way through a chain that a tight budget has recomputed."""
    x = mx.sym.Variable("data")
    for i in range(6):
        noise = mx.sym.random.gamma_like(x, alpha=0.5) + mx.sym.random.poisson_like(x, lam=20)
        x = mx.sym.tanh(x * (noise * 0.05), name=f"t{i}")
    return mx.sym.MakeLoss(mx.sym.sum(x))


def test_a_recomputed_program_draws_the_same_numbers():
    net, found = random_net(), []
    with pytest.raises(mx.MemoryBudgetError) as refused:
        net.memory_plan(data=(64, 64), memory_budget=1)
    least = refused.value.least_feasible_bytes
    assert least < net.memory_plan(data=(64, 64)).peak_bytes
    for budget in (None, least):
        mx.random.seed(8)
        ex = net.simple_bind(mx.cpu(), data=(64, 64), memory_budget=budget)
        ex.arg_dict["data"][:] = mx.nd.array(np.random.default_rng(0).standard_normal((64, 64)))
        ex.forward(is_train=True)
        ex.backward()
        found.append((ex.outputs[0].asnumpy(), ex.grad_dict["data"].asnumpy()))
    for want, got in zip(*found):
        np.testing.assert_array_equal(got, want)


def test_nodes_of_a_program_have_streams_of_their_own_and_steps_differ():
    draws = [mx.sym.random.gamma(3, 1, shape=(500,)) for _ in range(2)]
    ex = mx.sym.Group(draws).bind(mx.cpu(), {})
    rows = [ex.forward(is_train=train)[i].asnumpy() for train in (False, True, False) for i in range(2)]
    for i in range(6):
        for j in range(i):
            assert abs(np.corrcoef(rows[i], rows[j])[0, 1]) < 4 / math.sqrt(500)


# -- interface -------------------------------------------------------------------------------------------


def test_parameters_say_the_shape_and_numbers_the_rest():
    low, high = mx.nd.array([[0, 10, 20]]), mx.nd.array([[1, 11, 21]])
    x = mx.random.uniform(low, high, shape=(4, 2))
    assert x.shape == (1, 3, 4, 2) and x.dtype == np.float32
    np.testing.assert_array_equal(
        np.floor(x.asnumpy()) // 10, np.broadcast_to([[[[0]], [[1]], [[2]]]], (1, 3, 4, 2))
    )
    assert mx.random.uniform(low, high).shape == (1, 3)
    assert mx.random.gamma(low + 1, high, dtype="float64").dtype == np.float64
    assert mx.random.exponential(4, shape=(2,)).shape == (2,)
    out = mx.nd.zeros((1, 3), dtype="float16")
    assert mx.random.poisson(high, out=out) is out and (out.asnumpy() >= 0).all()


def test_exponential_takes_a_scale_and_its_operator_a_rate():
    assert abs(mx.random.exponential(4, shape=(COUNT,)).asnumpy().mean() - 4) < 0.1
    assert abs(mx.random.exponential(mx.nd.array([4]), shape=(COUNT,)).asnumpy().mean() - 4) < 0.1
    assert abs(mx.nd.random_exponential(4, shape=(COUNT,)).asnumpy().mean() - 0.25) < 0.01


def test_whole_numbers_of_any_range():
    x = mx.nd.random_randint(low=-(2**62), high=2**62, shape=(COUNT,), dtype="int64").asnumpy()
    assert ks_distance(x.astype(float), lambda v: (v + 2.0**62) / 2.0**63) < 2.22
    y = mx.random.randint(-(2**31), 2**31, shape=(COUNT,)).asnumpy()
    assert y.dtype == np.int32 and ks_distance(y.astype(float), lambda v: (v + 2.0**31) / 2.0**32) < 2.22
    with pytest.raises(OpAttributeError, match="low must be below high, 3, got 3"):
        mx.random.randint(3, 3)


def test_classes_have_their_probabilities():
    p = np.array([[0.1, 0, 0.3, 0.6], [0, 1, 0, 0], [0.25, 0.25, 0.25, 0.25], [2, 0, 6, 0]])
    drawn, log = mx.random.multinomial(mx.nd.array(p), shape=(COUNT,), get_prob=True)
    assert drawn.dtype == np.int32 and drawn.shape == (4, COUNT)
    for row, q in zip(drawn.asnumpy(), p):
        q = q / q.sum()
        seen = np.bincount(row, minlength=4) / COUNT
        assert (abs(seen - q) <= 4 * np.sqrt(q * (1 - q) / COUNT)).all()
    np.testing.assert_allclose(log.asnumpy()[0], np.log(p[0][drawn.asnumpy()[0]]), rtol=1e-6)
    assert mx.random.multinomial(mx.nd.array([0.5, 0.5])).shape == (1,)
    many = mx.nd.array(np.eye(3000, 5, k=0) + np.eye(3000, 5, k=-2995) + np.ones((3000, 5)) * 1e-9)
    np.testing.assert_array_equal(mx.random.multinomial(many).asnumpy()[:5], np.arange(5))
    np.testing.assert_array_equal(mx.random.multinomial(many).asnumpy()[-5:], np.arange(5))


def test_every_order_is_equally_likely():
    orders = [tuple(mx.random.shuffle(mx.nd.arange(3)).asnumpy()) for _ in range(3000)]
    counts = np.array([orders.count(o) for o in set(orders)])
    assert len(counts) == 6 and (abs(counts - 500) < 4.5 * math.sqrt(500)).all()


def test_bernoulli_draws_ones_and_zeros():
    x = mx.nd.bernoulli(mx.nd.full((COUNT,), 0.3)).asnumpy()
    assert set(x) == {0, 1} and abs(x.mean() - 0.3) < 4 * math.sqrt(0.21 / COUNT)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype):
    x = mx.random.gamma(9, 0.5, shape=(COUNT,), dtype=dtype).asnumpy()
    assert x.dtype.name == dtype and abs(x.astype(float).mean() - 4.5) < 0.03
    with pytest.raises(DTypeError, match="floating"):
        mx.random.poisson(3, dtype="int32")


def test_symbols_take_numbers_or_symbols():
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    drawn = mx.sym.random.gamma(a, b, shape=(500,))
    assert drawn.list_arguments() == ["a", "b"]
    ex = drawn.bind(mx.cpu(), {"a": mx.nd.array([2, 8]), "b": mx.nd.array([1, 3])})
    np.testing.assert_allclose(ex.forward()[0].asnumpy().mean(1), [2, 24], rtol=0.1)
    assert mx.sym.random.poisson(3, shape=(2, 3)).infer_shape()[1] == [(2, 3)]
    assert mx.sym.random.poisson(3).infer_shape()[1] == [(1,)]
    assert len(mx.sym.random.multinomial(a)) == 2  # get_prob, by default, as in MXNet
    with pytest.raises(OpAttributeError, match="all parameters or for none"):
        mx.sym.random.gamma(a, 2)


@pytest.mark.parametrize(
    "name, wrong, text",
    [
        ("normal", {"scale": -1}, "scale must be at least 0, got -1"),
        ("uniform", {"low": 2}, "low must be at most high, 1.0, got 2"),
        ("gamma", {"alpha": 0}, "alpha must be above 0, got 0"),
        ("exponential", {"lam": -1}, "lam must be above 0"),
        ("poisson", {"lam": -1}, "lam must be at least 0"),
        ("negative_binomial", {"p": 0}, r"p must be in \(0, 1\], got 0"),
        ("generalized_negative_binomial", {"alpha": -0.5}, "alpha must be at least 0"),
    ],
)
def test_parameters_out_of_range(name, wrong, text):
    with pytest.raises(OpAttributeError, match=text):
        getattr(mx.nd, f"random_{name}")(**wrong)
    with pytest.raises(OpAttributeError, match=text):
        getattr(mx.nd.random, f"{name}_like")(mx.nd.zeros((2,)), **wrong)
    with pytest.raises(OpAttributeError, match=text):
        getattr(mx.sym.random, f"{name}_like")(mx.sym.Variable("x"), **wrong)
    arrays = [mx.nd.array([v, 0.5]) for v in wrong.values()]
    if name == "exponential":
        assert np.isnan(mx.nd.sample_exponential(*arrays).asnumpy()).tolist() == [True, False]


def test_arrays_out_of_range_give_nan():
    nan = mx.nd.sample_gamma(mx.nd.array([-1, 2, np.nan]), mx.nd.array([1, 2, 3])).asnumpy()
    assert np.isnan(nan).tolist() == [True, False, True]
    nan = mx.nd.sample_poisson(mx.nd.array([-1, 2, np.inf, 50, np.nan])).asnumpy()
    assert np.isnan(nan).tolist() == [True, False, True, False, True]
    nan = mx.nd.sample_negative_binomial(mx.nd.array([3, 3, 0]), mx.nd.array([0, 0.5, 1])).asnumpy()
    assert np.isnan(nan).tolist() == [True, False, False] and nan[2] == 0
    with pytest.raises(ShapeError, match="one shape"):
        mx.nd.sample_gamma(mx.nd.zeros((2,)), mx.nd.zeros((3,)))
