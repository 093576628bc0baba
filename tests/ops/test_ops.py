"""Every row of `cases.py` against every rule of `conformance.py`, and single facts about operators.

The facts were read off MXNet 1.9.1.
"""

from collections import Counter
from functools import partial

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.core.errors import (
    DefinitionError,
    DTypeError,
    OpAttributeError,
    OperatorError,
    ShapeError,
    UnknownNameError,
)
from mxlite.graph.attrs import parse_attrs
from tests.conformance.case import Case
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call
from tests.conformance.conformance_peers import check_mxnet
from tests.conformance.rules import RULES


@pytest.mark.parametrize("name", CASES)
def test_operator(name, record_property):
    """All rules in one test: a test for each would be tens of thousands, at a cost of their own."""
    broken, left_out = [], Counter()
    for rule, check in {**RULES, "gives what MXNet gave": partial(check_mxnet, row=name)}.items():
        try:
            check(CASES[name])
        except pytest.skip.Exception as why:
            left_out[str(why)] += 1
        except Exception as error:
            error.add_note(f"rule: {rule}")
            broken.append(error)
    if left_out:
        record_property("count: rules left out", dict(left_out))
    if broken:
        raise ExceptionGroup(f"{name}: {len(broken)} rules", broken)


def test_every_operator_has_a_row():
    assert [op.__name__ for op in ops.ALL if not any(c.op is op for c in CASES.values())] == []


@pytest.mark.parametrize("op", ops.ALL)
def test_every_operator_says_what_it_does(op):
    first = (op.__dict__.get("__doc__") or "").split("\n")[0]
    assert len(first) > 10, f"{op.__name__} has no docstring of its own"


@pytest.mark.parametrize(
    "name", ["elemwise_add", "_plus", "ElementWiseSum", "concat", "split", "identity", "max_axis"]
)
def test_operators_are_found_by_name_and_alias(name):
    op = ops.find_op(name)
    assert name in (op.op_name, *op.aliases)


def test_a_misspelt_operator_is_an_error_that_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"no operator 'transpos'\. Did you mean 'transpose'"):
        ops.find_op("transpos")


def test_two_operators_of_one_name_are_refused():
    class exp(ops.exp):
        pass

    with pytest.raises(DefinitionError, match="are called 'exp'"):
        ops._table((ops.exp, exp))


def run(op, *inputs, **attrs):
    """The first output of a call as a program makes it."""
    parsed = parse_attrs(op, attrs)
    arrays = [np.asarray(x, "float32") if not isinstance(x, np.ndarray) else x for x in inputs]
    shapes = tuple(x.shape for x in arrays)
    outs = (shapes[0],) if op.same_shape else op.infer_shape(parsed, *shapes)[1]
    kinds = op.infer_type(parsed, *(x.dtype for x in arrays))[1]
    made = [np.zeros(s, k) for s, k in zip(outs, kinds)]
    kernel = CPU.choose(op, parsed, shapes, outs, kinds[0] if not arrays else arrays[0].dtype)
    work = CPU.empty(kernel.workspace)
    bind_call(kernel, np, op, parsed, arrays, made, work=work, shapes=(shapes, outs))()
    return made[0]


DATA = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
HALVES = [0.5, 1.5, -0.5, -1.5, 2.5]

FACTS = {
    "round goes away from zero": (ops.round, [HALVES], {}, [1, 2, -1, -2, 3]),
    "round of the number below a half": (
        ops.round,
        [[np.nextafter(np.float32(0.5), np.float32(0))]],
        {},
        [0],
    ),
    "rint goes down": (ops.rint, [HALVES], {}, [0, 1, -1, -2, 2]),
    "remainder has the divisor's sign": (ops.broadcast_mod, [[5, -5, 7], [-3, 3, -2]], {}, [-1, 1, -1]),
    "remainder of 0 is 0": (ops.broadcast_mod, [[5, -5, 0], [0]], {}, [0, 0, 0]),
    "remainder by the number 0 is 0": (ops._mod_scalar, [[5, -5]], {"scalar": 0}, [0, 0]),
    "whole numbers divide towards 0": (ops.elemwise_div, [np.array([7, -7]), np.array([2, 2])], {}, [3, -3]),
    "and by a number": (ops._div_scalar, [np.array([7, -7])], {"scalar": 2}, [3, -3]),
    "a number is cut for whole numbers": (ops._plus_scalar, [np.array([1, 2])], {"scalar": 1.5}, [2, 3]),
    "mean of whole numbers": (ops.mean, [np.array([-1, -1, 0])], {}, [0]),
    "reductions over all have shape (1,)": (ops.sum, [DATA], {}, [21]),
    "norm over rows": (ops.norm, [[[3, 4], [0, 0]]], {"axis": 1}, [5, 0]),
    "argmax of a flattened array": (ops.argmax, [DATA], {}, [5]),
    "argmax names the first": (ops.argmax, [[1, 2, 2]], {"axis": 0}, [1]),
    "argmin along an inner axis": (ops.argmin, [DATA], {"axis": 0}, [0, 0, 0]),
    "sum without the named axes": (ops.sum, [DATA], {"axis": 1, "exclude": True}, [5, 7, 9]),
    "take clips": (ops.take, [DATA, [-1, 1.7, 9]], {}, [[1, 2, 3], [4, 5, 6], [4, 5, 6]]),
    "take wraps": (ops.take, [DATA, [-1, 3]], {"mode": "wrap"}, [[4, 5, 6], [4, 5, 6]]),
    "Embedding clips": (
        ops.Embedding,
        [[-1, 5, 0.9], DATA],
        {"input_dim": 2, "output_dim": 3},
        [[1, 2, 3], [4, 5, 6], [1, 2, 3]],
    ),
    "one_hot cuts, and out of range is a row of zeros": (
        ops.one_hot,
        [[1, -1, 5, 2.7]],
        {"depth": 3},
        [[0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]],
    ),
    "pick clips": (ops.pick, [DATA, [-1, 7]], {}, [1, 6]),
    "pick wraps": (ops.pick, [DATA, [-1, -5]], {"mode": "wrap"}, [3, 5]),
    "where chooses rows": (ops.where, [[0, 1], DATA, -DATA], {}, [[-1, -2, -3], [4, 5, 6]]),
    "slice with None": (ops.slice, [DATA], {"begin": (None, 1), "end": (None, None)}, [[2, 3], [5, 6]]),
    "slice backwards": (
        ops.slice,
        [DATA],
        {"begin": (-1, None), "end": (None, None), "step": (1, -1)},
        [[6, 5, 4]],
    ),
    "slice beyond the end": (ops.slice, [DATA], {"begin": (1,), "end": (5,)}, [[4, 5, 6]]),
    "slice_axis from the end": (
        ops.slice_axis,
        [DATA],
        {"axis": 1, "begin": -2, "end": None},
        [[2, 3], [5, 6]],
    ),
    "repeat": (ops.repeat, [[[1, 2], [3, 4]]], {"repeats": 2, "axis": 1}, [[1, 1, 2, 2], [3, 3, 4, 4]]),
    "tile": (ops.tile, [[[1, 2], [3, 4]]], {"reps": 2}, [[1, 2, 1, 2], [3, 4, 3, 4]]),
    "Cast cuts": (ops.Cast, [[1.7, -1.7, 2.5]], {"dtype": "int32"}, [1, -1, 2]),
    "dot of vectors": (ops.dot, [[1, 2, 3], [1, 1, 1]], {}, [6]),
    "clip": (ops.clip, [[1, 2, 3, 4]], {"a_min": 2, "a_max": 3}, [2, 2, 3, 3]),
}


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    op, inputs, attrs, want = FACTS[fact]
    with np.errstate(all="ignore"):
        got = run(op, *inputs, **attrs)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "op, shapes, attrs, want",
    [
        (ops.Reshape, [(2, 3, 4, 5)], {"shape": (0, -1)}, (2, 60)),
        (ops.Reshape, [(2, 3, 4, 5)], {"shape": (0, -1), "reverse": True}, (4, 30)),
        (ops.Reshape, [(2, 3, 4, 5)], {"shape": (-2,)}, (2, 3, 4, 5)),
        (ops.Reshape, [(2, 3, 4, 5)], {"shape": (-3, -3)}, (6, 20)),
        (ops.Reshape, [(2, 3, 4, 5)], {"shape": (-4, -1, 1, -2)}, (2, 1, 3, 4, 5)),
        (ops.Reshape, [(10, 5, 4)], {"shape": (-1, 0), "reverse": True}, (50, 4)),
        (ops.Reshape, [(2, 3, 4)], {"target_shape": (2, 0)}, (2, 12)),
        (ops.Reshape, [(2, 3, 4)], {"target_shape": (0, 0), "keep_highest": True}, (2, 12)),
        (ops.squeeze, [(1, 1)], {}, (1,)),
        (ops.expand_dims, [(2, 3)], {"axis": -3}, (1, 2, 3)),
        (ops.sum, [(2, 3)], {"keepdims": True}, (1, 1)),
        (ops.argmax, [(2, 3)], {"keepdims": True}, (1, 1)),
        (ops.tile, [(2, 3)], {"reps": (2, 2, 2)}, (2, 4, 6)),
        (ops.dot, [(2, 3, 4), (4, 5, 6)], {}, (2, 3, 5, 6)),
        (ops.dot, [(4, 2, 3), (4, 5, 6)], {"transpose_a": True}, (2, 3, 5, 6)),
        (ops.dot, [(2, 3, 4), (6, 5, 4)], {"transpose_b": True}, (2, 3, 6, 5)),
        (ops.broadcast_axis, [(1, 2, 1)], {"axis": (0, 2), "size": (3, 4)}, (3, 2, 4)),
    ],
)
def test_shape(op, shapes, attrs, want):
    assert op.infer_shape(parse_attrs(op, attrs), *shapes)[1][0] == want


@pytest.mark.parametrize(
    "op, shapes, attrs, text",
    [
        (ops.broadcast_add, [(2, 3), (3, 2)], {}, "do not broadcast"),
        (ops.Reshape, [(2, 3)], {"shape": (4, -1)}, "does not fit"),
        (ops.Reshape, [(2, 3)], {"shape": (-1, -1)}, "may have one -1"),
        (ops.Reshape, [(2, 3)], {"shape": (0, 0, 0)}, "more axes than data"),
        (ops.Reshape, [(2, 3)], {"shape": (-4, 2)}, "two numbers must follow"),
        (ops.Reshape, [(2, 3)], {"shape": (-5, 2)}, "code -5 has no meaning"),
        (ops.Reshape, [(2, 3)], {}, "needs the parameter 'shape'"),
        (ops.transpose, [(2, 3)], {"axes": (0, 2)}, "each of the 2 axes"),
        (ops.SliceChannel, [(2, 3)], {"num_outputs": 2}, "num_outputs=2 must divide axis 1"),
        (ops.Concat, [(2, 3), (3, 3)], {"num_args": 2}, "arg1 .* must equal arg0"),
        (ops.dot, [(2, 3), (4, 5)], {}, "got 3 and 4"),
        (ops.batch_dot, [(2, 3, 4), (3, 4, 5)], {}, "equal batch axes"),
        (ops.sum, [(2, 3)], {"axis": 2}, "axis 2 is not one"),
        (ops.sum, [(2, 3)], {"axis": (1, -1)}, "names an axis twice"),
        (ops.slice_axis, [(2, 3)], {"axis": 0, "begin": 0, "end": 5}, "is not a part of axis 0"),
        (ops.squeeze, [(2, 1)], {"axis": 0}, "must have length 1"),
        (ops.broadcast_to, [(2, 3)], {"shape": (2, 4)}, "only axes of length 1"),
        (ops.pick, [(2, 3), (3,)], {}, r"index must be \(2,\)"),
        (ops.where, [(3,), (2, 3), (2, 3)], {}, "condition must be"),
        (ops.expand_dims, [(2, 3)], {"axis": 3}, "axis 3"),
    ],
)
def test_shapes_that_do_not_fit_are_named(op, shapes, attrs, text):
    with pytest.raises(ShapeError, match=text):
        op.infer_shape(parse_attrs(op, attrs), *shapes)


def test_mixed_dtypes_are_an_error():
    with pytest.raises(DTypeError, match="one dtype"):
        ops.elemwise_add.infer_type(None, np.dtype("float32"), np.dtype("float64"))


def test_a_real_function_of_whole_numbers_is_an_error():
    with pytest.raises(DTypeError, match="floating type, got int32"):
        ops.exp.infer_type(None, np.dtype("int32"))


@pytest.mark.parametrize(
    "op, attrs, text",
    [
        (ops.norm, {"ord": 3}, "'ord' must be 1 or 2"),
        (ops.slice, {"begin": "(1, x)", "end": "(2, 3)"}, "'begin' must be whole numbers or None"),
        (ops.take, {"mode": "clap"}, "Did you mean 'clip'"),
        (ops.clip, {"a_min": 1}, "needs the parameter 'a_max'"),
    ],
)
def test_parameters_that_make_no_sense_are_named(op, attrs, text):
    with pytest.raises(OpAttributeError, match=text):
        parse_attrs(op, attrs)


def test_take_can_refuse_indices_out_of_range():
    with pytest.raises(OperatorError, match=r"must be in \[0, 2\), got 0 to 5"):
        run(ops.take, DATA, [0, 5], mode="raise")


@pytest.mark.parametrize("op", [ops.broadcast_maximum, ops.broadcast_minimum])
def test_of_equal_elements_the_left_gets_the_gradient(op):
    given = {"d_out": np.full(3, 5.0), "lhs": np.ones(3), "rhs": np.ones(3)}
    got, _ = Call.of(Case(op, {}, [(3,), (3,)])).execute(op.grad_op, given)
    assert got["d_lhs"].tolist() == [5, 5, 5] and got["d_rhs"].tolist() == [0, 0, 0]


def test_every_maximum_gets_the_whole_gradient():
    x = mx.nd.array([1.0, 2.0, 2.0])
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.max(x) * 3
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 3, 3]


def test_the_gradient_of_a_zero_norm_is_zero():
    x = mx.nd.zeros(3)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.norm(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("length", [4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("op", [ops.argmax, ops.argmin])
def test_positions_along_long_axes_are_numpys(op, length):
    data = np.random.default_rng(0).integers(0, 50, (2, length, 3)).astype(np.float32)
    find = np.argmax if op is ops.argmax else np.argmin
    np.testing.assert_array_equal(run(op, data, axis=1), find(data, axis=1))


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    from mxlite.ops.random.philox import RandomStream

    attrs = parse_attrs(ops.RandomNormal, {"loc": 1.0, "scale": 2.0, "shape": (200_000,)})
    out = np.empty(200_000, np.float32)
    work = np.empty(ops.RandomNormal.workspace(attrs, (), ((200_000,),), out.dtype), np.uint8)
    ops.RandomNormal.forward(np, attrs, out=out, rng=RandomStream(np.array([1, 0], np.uint64), 0), work=work)
    z = (out.astype(float) - 1) / 2
    n = len(z)
    assert abs(z.mean()) < 4 / n**0.5
    assert abs((z**2).mean() - 1) < 4 * (2 / n) ** 0.5
    assert abs((z**3).mean()) < 4 * (15 / n) ** 0.5
    assert abs((z**4).mean() - 3) < 4 * (96 / n) ** 0.5
