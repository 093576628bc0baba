"""Consecutive native calls joined to one: which are, their order, and which is named if one fails."""

import ctypes
import sys
from functools import partial

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import call, load, Module, usable
from mxlite.backends.cpu.compiled.calls.sequence import join, Joined, rows_of
from mxlite.backends.cpu.compiled.codegen.ir import I64
from mxlite.backends.cpu.onednn import library, OneDNNError
from mxlite.backends.cpu.onednn.library import Done
from mxlite.backends.cpu.onednn.primitive import Calls

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not here, or MXLITE_KERNELS leaves it out")


@pytest.fixture(scope="module")
def note():
    """`note(n)`: a native call that appends n to `note.seen`; `note.fail(status)` one that answers."""
    module = Module()
    f = module.function("note")
    log, number = f.pointer(0), f.integer(1)
    more = f.plus(f.load_at(I64, log), 1)
    f.store_at(more, log)
    f.store_at(number, f.offset(log, more, 8))
    f.done()
    code = load(module)
    log = np.zeros(100, np.int64)

    def make(n):
        return call(code, "note", [log.ctypes.data, n], 1)

    def seen():
        found = log[1 : 1 + log[0]].tolist()
        log[:] = 0
        return found

    def fail(status):
        answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(lambda x: status)
        address = ctypes.cast(answer, ctypes.c_void_p).value
        function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        function.restype = Done({0: None}).__getitem__
        function.keep = answer
        return partial(function, ctypes.c_int64(0))

    make.seen, make.fail = seen, fail
    return make


def run(pairs):
    for _, each in pairs:
        each()


def test_native_calls_in_a_row_are_one(note):
    python = []
    calls = [
        note(0), note(1), note(2), lambda: python.append("a"), note(4), lambda: python.append("b"),
        Calls((note(6), note(7))), note(8),
    ]  # fmt: skip
    pairs = join(calls)
    assert [at for at, _ in pairs] == [0, 3, 4, 5, 6]
    assert [type(each) is Joined for _, each in pairs] == [True, False, False, False, True]
    run(pairs)
    assert note.seen() == [0, 1, 2, 4, 6, 7, 8] and python == ["a", "b"]
    run(pairs)
    assert note.seen() == [0, 1, 2, 4, 6, 7, 8]


def test_one_alone_and_none_stay_as_they_are(note):
    single = note(5)
    assert join([single]) == [(0, single)]
    assert join([]) == []


@pytest.mark.parametrize(
    "other",
    [
        lambda: None,
        partial(print),
        partial(ctypes.CFUNCTYPE(ctypes.c_int)(0)),
        partial(ctypes.CFUNCTYPE(None)(0), ctypes.c_double(1)),
        partial(ctypes.CFUNCTYPE(None)(0), *[ctypes.c_float(1)] * 3),
        partial(ctypes.CFUNCTYPE(None)(0), 7),
        partial(ctypes.CFUNCTYPE(None)(0), *[ctypes.c_int(0)] * 12),
        partial(ctypes.CFUNCTYPE(None)(0), x=1),
        Calls((lambda: None,)),
    ],
)
def test_what_is_not_known_to_the_last_bit_is_called_from_python(other):
    """An answer that is not ours to read, numbers that travel elsewhere, too many arguments."""
    assert rows_of(other) is None


def test_arguments_are_passed_as_they_are():
    seen = []
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
    target = kind(lambda *args: seen.append(args))
    function = ctypes.CFUNCTYPE(None)(ctypes.cast(target, ctypes.c_void_p).value)
    slots = (ctypes.c_int64 * 2)(1, 2)
    one = partial(function, ctypes.c_void_p(2**63 + 5), ctypes.c_int(-3), ctypes.c_uint(2**32 - 1), slots)
    two = partial(function, ctypes.c_void_p(None), ctypes.c_int64(-(2**62)))
    run(join([one, two]))
    assert seen[0] == (5 - 2**63, -3, 2**32 - 1, ctypes.addressof(slots))
    assert seen[1] == (0, -(2**62), 0, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there such calls are made from Python")
def test_floats_between_integers_arrive_where_they_belong():
    """The arguments of dnnl_sgemm, in its order."""
    c, seen = ctypes, []
    kinds = [c.c_char] * 2 + [c.c_int64] * 3 + [c.c_float, c.c_void_p, c.c_int64, c.c_void_p, c.c_int64]
    kinds += [c.c_float, c.c_void_p, c.c_int64]
    target = c.CFUNCTYPE(None, *kinds)(lambda *args: seen.append(args))
    function = c.CFUNCTYPE(None)(c.cast(target, c.c_void_p).value)
    values = (b"T", b"N", 2, 3, 2**40, 0.5, 2**45, 7, 2**46, 8, -1.25, 2**47, 9)
    few = partial(function, *[kind(v) for kind, v in zip(kinds, values)])
    run(join([few, few]))
    assert seen == [values] * 2


def test_the_one_that_fails_is_named_and_those_behind_it_do_not_run(note):
    calls = [note(0), Calls((note(1), note.fail(0))), note.fail(3), note(4)]
    ((first, joined),) = join(calls)
    for _ in range(2):
        with pytest.raises(OneDNNError, match="unimplemented") as raised:
            joined()
        assert (first, raised.value.call) == (0, 2)
        assert note.seen() == [0, 1]


def test_an_answer_of_a_function_that_gives_none_is_no_failure(note):
    """What is in the register then is left over from anything."""
    noisy = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 77)
    silent = ctypes.CFUNCTYPE(None)(ctypes.cast(noisy, ctypes.c_void_p).value)
    run(join([partial(silent), note(1)]))
    assert note.seen() == [1]


def test_without_a_compiler_every_call_is_its_own(note, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    calls = [note(0), note(1)]
    assert join(calls) == list(enumerate(calls))


@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_a_program_names_the_step_that_fails_inside_a_joined_call(note, engine):
    x = mx.sym.Variable("x")
    for name in "abcd":
        x = mx.sym.tanh(x, name=name)
    exe = x.bind(mx.cpu(), {"x": mx.nd.ones((2,))})
    exe.forward()
    mx.nd.waitall()
    segment = exe._infer.segments[0]
    segment.calls[:] = [note(0), note(1), note.fail(2), note(3)]
    with mx.engine.use_engine(engine):
        exe.forward()
        with pytest.raises(
            mx.OperatorError, match=r"'c' failed with OneDNNError.*invalid arguments"
        ) as raised:
            exe.outputs[0].asnumpy()
        mx.nd.waitall()
    assert raised.value.operation == "c" and note.seen() == [0, 1]
    segment.calls[2] = note(2)
    exe.forward()
    exe.outputs[0].wait_to_read()
    assert note.seen() == [0, 1, 2, 3], "calls that are changed are joined anew"


@pytest.mark.skipif(library() is None, reason="oneDNN is not here")
def test_a_program_gives_the_same_joined_and_not(monkeypatch):
    net = mx.sym.Variable("data")
    for i in range(20):
        net = mx.sym.FullyConnected(net, num_hidden=24, name=f"fc{i}")
    results = []
    for kinds in ("onednn", "onednn,compiled"):
        monkeypatch.setenv("MXLITE_KERNELS", kinds)
        exe = net.simple_bind(mx.cpu(), grad_req="null", data=(7, 24))
        rng = np.random.default_rng(0)
        for a in exe.arg_arrays:
            a[:] = rng.standard_normal(a.shape).astype("float32") / 5
        results.append(exe.forward()[0].asnumpy())
        joined = exe._infer.segments[0]._joined
        assert any(type(each) is Joined for _, each in joined) == ("compiled" in kinds)
    np.testing.assert_array_equal(*results)
