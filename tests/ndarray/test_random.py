"""mx.random: seeds, state, and the same numbers on every engine."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite import ndarray as nd
from mxlite.core import MXLiteError, OpAttributeError, ShapeError
from mxlite.engine import use_engine
from mxlite.ndarray import random


@pytest.fixture(autouse=True, params=["naive", "threaded"])
def engine(request):
    before = random.get_state()
    with use_engine(request.param) as engine:
        yield engine
    random.set_state(before)


def draw():
    """A program of draws, one of them through a function made from an operator, one into a view."""
    a = random.uniform(shape=(3, 4))
    b = random.normal(2, 3, shape=5)
    c = random.randint(0, 9, shape=(7,))
    d = random.shuffle(nd.arange(11))
    e = nd.zeros((2, 3))
    random.uniform(-1, 1, out=e[1])
    f = nd.random_uniform(shape=(4,))
    return [x.asnumpy() for x in (a, b, c, d, e, f)]


def test_a_seed_repeats_everything():
    random.seed(5)
    first = draw()
    second = draw()
    random.seed(5)
    again = draw()
    for x, y, z in zip(first, second, again):
        np.testing.assert_array_equal(x, z)
        assert (x != y).any()


def test_both_engines_draw_the_same_numbers():
    random.seed(17)
    with use_engine("naive"):
        wanted = draw()
    random.seed(17)
    with use_engine("threaded"):
        for x, y in zip(wanted, draw()):
            np.testing.assert_array_equal(x, y)


def test_numbers_do_not_depend_on_what_the_engine_is_busy_with():
    random.seed(3)
    quiet = [random.normal(shape=100) for _ in range(8)]
    wanted = [q.asnumpy() for q in quiet]
    random.seed(3)
    busy = []
    for _ in range(8):
        big = nd.ones((200, 200))
        nd.dot(big, big)
        busy.append(random.normal(shape=100))
    for w, b in reversed(list(zip(wanted, busy))):
        np.testing.assert_array_equal(w, b.asnumpy())


def test_different_seeds_give_different_numbers_and_any_int_is_a_seed():
    found = set()
    for seed in (0, 1, -1, 2**64 - 2, 12345678901234567890123):
        random.seed(seed)
        found.add(random.uniform(shape=4).asnumpy().tobytes())
    assert len(found) == 5


def test_a_state_of_plain_ints_continues_where_it_was_taken():
    random.seed(9)
    draw()
    state = random.get_state()
    assert all(type(x) is int for x in state)
    wanted = draw()
    random.seed(1)
    random.set_state(state)
    for x, y in zip(wanted, draw()):
        np.testing.assert_array_equal(x, y)


def test_steps_are_unique_among_threads():
    taken: list[tuple[int, int]] = []

    def take():
        for _ in range(500):
            taken.append(random.next_step())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(taken)) == 2000


def test_uniform_numbers_fill_their_interval():
    random.seed(0)
    a = random.uniform(-2, 6, shape=(100, 100)).asnumpy()
    assert a.dtype == np.float32 and -2 <= a.min() < -1.9 and 5.9 < a.max() <= 6
    assert abs(a.mean() - 2) < 0.1 and abs(a.std() - 8 / 12**0.5) < 0.1


def test_normal_numbers_have_their_moments():
    random.seed(0)
    for dtype in ("float32", "float64", "float16"):
        a = random.normal(1, 2, shape=(101, 99), dtype=dtype).asnumpy().astype("float64")
        z = (a - 1) / 2
        assert abs(z.mean()) < 0.05 and abs(z.std() - 1) < 0.05
        assert abs((z**3).mean()) < 0.1 and abs((z**4).mean() - 3) < 0.3


def test_whole_numbers_cover_their_range_evenly():
    random.seed(0)
    a = random.randint(-3, 4, shape=(7000,)).asnumpy()
    assert a.dtype == np.int32
    assert (abs(np.bincount(a + 3, minlength=7) - 1000) < 150).all()
    with pytest.raises(OpAttributeError, match="low must be below high"):
        random.randint(3, 3)


def test_shuffle_moves_whole_rows_and_leaves_its_argument():
    random.seed(0)
    a = nd.array(np.arange(40).reshape(20, 2))
    b = random.shuffle(a).asnumpy()
    assert (b[:, 1] == b[:, 0] + 1).all()
    assert sorted(b[:, 0]) == list(range(0, 40, 2)) and (b != a.asnumpy()).any()
    random.shuffle(a, out=a)
    assert sorted(a.asnumpy()[:, 0]) == list(range(0, 40, 2))


def test_shapes_default_to_one_number():
    assert random.uniform().shape == (1,)
    assert random.normal(shape=3).shape == (3,)
    assert random.randn(2, 3, loc=1).shape == (2, 3)
    assert random.uniform(shape=(2, 0)).asnumpy().shape == (2, 0)
    with pytest.raises(ShapeError):
        random.uniform(shape=(2, -1))


def test_out_is_filled_and_must_fit():
    out = nd.zeros((2, 3), dtype="float64")
    assert random.normal(out=out) is out
    assert (out.asnumpy() != 0).all()
    with pytest.raises(MXLiteError):
        random.normal(shape=(3,), out=out)
    with pytest.raises(MXLiteError):
        random.normal(dtype="float32", out=out)


def test_arrays_as_parameters_and_misspelt_parameters_are_errors():
    with pytest.raises(TypeError, match="'high'"):
        random.uniform(nd.zeros(2), 1)
    with pytest.raises(OpAttributeError, match="'lo'"):
        random.uniform(lo=2)


def test_each_device_has_numbers_of_its_own():
    def drawn(ctx):
        return mx.nd.random.uniform(shape=(5,), ctx=ctx).asnumpy().tolist()

    mx.random.seed(3)
    first, second = drawn(mx.cpu(0)), drawn(mx.cpu(1))
    assert first != second
    mx.random.seed(3)
    assert drawn(mx.cpu(1)) == second  # whatever the other device has drawn meanwhile
    mx.random.seed(3, ctx=mx.cpu(1))
    assert drawn(mx.cpu(1)) == first  # a seed for one device is that device's own
    assert drawn(mx.cpu(0)) == first


def test_a_bound_program_draws_from_its_device():
    net = mx.sym.Dropout(mx.sym.Variable("x"), p=0.5)

    def mask(ctx):
        exe = net.bind(ctx, {"x": mx.nd.ones((64,), ctx=ctx)})
        return exe.forward(is_train=True)[0].asnumpy().tolist()

    mx.random.seed(3)
    first, second = mask(mx.cpu(0)), mask(mx.cpu(1))
    mx.random.seed(3)
    assert (mask(mx.cpu(1)), mask(mx.cpu(0))) == (second, first) and first != second
