"""The interpreter's switch interval while segments run, and after."""

import sys
import threading

import pytest

import mxlite as mx
from mxlite.engine.switching import INTERVAL_S, Switching


@pytest.fixture(autouse=True)
def interval():
    """Python's own, and again afterwards."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def now():
    return pytest.approx(sys.getswitchinterval())


def test_it_is_short_inside_and_as_before_outside():
    switching = Switching()
    with switching:
        assert now() == INTERVAL_S
        with switching:
            assert now() == INTERVAL_S
        assert now() == INTERVAL_S
    assert now() == 0.005


def test_a_shorter_one_is_left_alone():
    sys.setswitchinterval(0.00001)
    with Switching():
        assert now() == 0.00001
    assert now() == 0.00001


def test_who_sets_one_meanwhile_has_his_way():
    switching = Switching()
    with switching:
        sys.setswitchinterval(0.001)
    assert now() == 0.001
    with switching:
        assert now() == INTERVAL_S
    assert now() == 0.001


def test_an_error_inside_ends_it_too():
    switching = Switching()
    with pytest.raises(ZeroDivisionError), switching:
        raise ZeroDivisionError
    assert now() == 0.005


def test_many_threads_in_any_order():
    switching = Switching()
    gates = [threading.Event() for _ in range(4)]
    inside = threading.Barrier(5)

    def work(gate):
        with switching:
            inside.wait(10)
            gate.wait(10)

    threads = [threading.Thread(target=work, args=(g,)) for g in gates]
    for t in threads:
        t.start()
    inside.wait(10)
    for t, gate in zip(threads, gates):
        assert now() == INTERVAL_S
        gate.set()
        t.join(10)
    assert now() == 0.005


@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_a_programs_segments_run_with_the_short_one(engine):
    with mx.engine.use_engine(engine):
        exe = mx.sym.tanh(mx.sym.Variable("x")).bind(mx.cpu(), {"x": mx.nd.ones((2,))})
        exe.forward()
        mx.nd.waitall()
        seen = []
        exe._infer.segments[0].calls.append(lambda: seen.append(sys.getswitchinterval()))
        exe.forward()
        mx.nd.waitall()
    assert seen == [pytest.approx(INTERVAL_S)]
    assert now() == 0.005
