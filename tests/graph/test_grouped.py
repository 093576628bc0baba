"""Kernels that take their arrays in named tuples."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.base import Backend, ChosenKernel, connected
from mxlite.backends.call import bind_call
from mxlite.core.errors import DefinitionError
from mxlite.graph.grouped import grouped
from mxlite.graph.opdef import NoAttrs, Op, Signature


class Factors(NamedTuple):
    left: Any
    right: Any
    addend: Any = None


class Sums(NamedTuple):
    total: Any
    count: Any = None


class Slopes(NamedTuple):
    d_left: Any
    d_right: Any


class Clash(NamedTuple):
    data: Any


class scaled(Op):
    """``out = data * left * right + addend``, and the number of its elements."""

    inputs = ("data", *Factors._fields)
    outputs = Sums._fields

    @classmethod
    def input_names(cls, a):
        return cls.inputs[:3]

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, (shapes[0], (1,))

    @staticmethod
    @grouped
    def forward(xp, a, data, factors: Factors, *, made: Sums, train):
        assert isinstance(factors, Factors) and isinstance(made, Sums)
        xp.multiply(data, factors.left, out=made.total)
        xp.multiply(made.total, factors.right, out=made.total)
        if factors.addend is not None:
            xp.add(made.total, factors.addend, out=made.total)
        if made.count is not None:
            made.count.fill(data.size)

    @staticmethod
    @grouped
    def backward(xp, a, d_total, data, factors: Factors, *, made: Slopes, d_data):
        for target, other in ((made.d_left, factors.right), (made.d_right, factors.left)):
            if target is not None:
                xp.multiply(d_total, data * other, out=target)
        if d_data is not None:
            xp.multiply(d_total, factors.left * factors.right, out=d_data)


def test_callers_see_a_parameter_for_each_field():
    ins, outs = ("data", "left", "right", "addend"), ("total", "count")
    assert Signature.of(scaled.forward) == Signature(ins, outs, frozenset({"train"}))
    assert scaled.grad_op.inputs == ("d_total", "data", "left", "right", "addend")
    assert scaled.grad_op.outputs == ("d_left", "d_right", "d_data")
    assert str(inspect.signature(scaled.forward)) == (
        "(xp, a, data, left, right, addend=None, *, total, count=None, train)"
    )
    assert scaled.forward.__name__ == "forward" and scaled.forward.kernel.__code__.co_argcount == 4


def test_arrays_may_be_given_in_order_or_by_name_and_left_out():
    x, total = np.arange(3.0), np.empty(3)
    scaled.forward(np, None, x, 2.0, 3.0, 1.0, total=total, train=True)
    assert total.tolist() == [1, 7, 13]
    count = np.empty(1)
    scaled.forward(np, None, x, right=3.0, left=2.0, total=total, count=count, train=True)
    assert total.tolist() == [0, 6, 12] and count == 3


def test_a_default_before_a_parameter_without_one_has_no_effect():
    @grouped
    def kernel(xp, a, factors: Factors, data, *, out):
        return factors, data

    assert str(inspect.signature(kernel)) == "(xp, a, left, right, addend, data, *, out)"
    assert kernel(np, None, 1, 2, 3, 4, out=None) == ((1, 2, 3), 4)


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_bound_call_makes_its_groups_once(is_connected):
    made = []

    def run(factors, sums):
        np.multiply(factors.left, factors.right, out=sums.total)

    @grouped
    def kernel(xp, a, data, factors: Factors, *, sums: Sums, train):
        made.append((factors, sums))
        return (lambda: run(factors, sums)) if is_connected else run(factors, sums)

    signature = Signature.of(kernel)
    chosen = connected(kernel, 0, "it") if is_connected else ChosenKernel(kernel, 0, "it", signature)
    assert chosen.signature == signature
    total = np.zeros(2)
    call = bind_call(chosen, np, scaled, NoAttrs(), [np.ones(2), np.ones(2), np.full(2, 3.0)], [total, None])
    call()
    call()
    assert total.tolist() == [3, 3]
    assert all(f is made[0][0] and s is made[0][1] for f, s in made)
    assert made[0][0].addend is None and made[0][1].count is None


def test_a_connected_kernel_gets_copies_of_arrays_in_another_order():
    @grouped
    def connect(xp, a, data, factors: Factors, *, sums: Sums, train):
        assert all(x.flags.c_contiguous for x in (data, factors.left, factors.right, sums.total))
        return lambda: xp.multiply(factors.left, factors.right, out=sums.total)

    left, total = np.arange(6.0).reshape(3, 2).T, np.zeros((3, 2)).T
    ins = [np.ones((2, 3)), left, np.full((2, 3), 2.0)]
    bind_call(connected(connect, 0, "it"), np, scaled, NoAttrs(), ins, [total, None])()
    assert (total == 2 * left).all()


def test_the_reference_kernel_and_its_gradient_run_in_a_program():
    backend = Backend("numpy", np)
    shapes = ((3,), (3,), (3,)), ((3,), (1,))
    x, left, right = np.arange(3.0), np.full(3, 2.0), np.full(3, 5.0)
    d_left, d_data = np.empty(3), np.empty(3)
    kernel = backend.choose(scaled.grad_op, NoAttrs(), *shapes, x.dtype)
    bind_call(kernel, np, scaled.grad_op, NoAttrs(), [np.ones(3), x, left, right], [d_left, None, d_data])()
    assert d_left.tolist() == [0, 5, 10] and d_data.tolist() == [10, 10, 10]


def test_what_a_call_lacks_or_has_too_much_is_named():
    with pytest.raises(TypeError, match="'right'"):
        scaled.forward(np, None, 1, 2, total=0, train=True)
    with pytest.raises(TypeError, match="'data'"):
        scaled.forward(np, None, left=1, right=2, total=0, train=True)
    with pytest.raises(TypeError, match="'other'"):
        scaled.forward(np, None, 1, 2, 3, total=0, train=True, other=1)
    for given, rest in (((1, 2, 3, 4, 5), {}), ((1, 2), {"data": 1})):
        with pytest.raises(TypeError, match=r"'data', 'left', 'right', 'addend'.* once each"):
            scaled.forward(np, None, *given, **rest, total=0, train=True)


def test_a_group_is_as_immutable_as_a_tuple():
    seen = []

    @grouped
    def kernel(xp, a, factors: Factors, *, out):
        seen.append(factors)

    kernel(np, None, 1, 2, out=None)
    with pytest.raises(AttributeError):
        seen[0].left = 3


def test_wrong_declarations_are_refused():
    class Local(NamedTuple):
        data: Any

    def none(xp, a, data, *, out):
        """Nothing."""

    def hidden(xp, a, x: Local, *, out):
        """Nothing."""

    def twice(xp, a, data, x: Clash, *, out):
        """Nothing."""

    def many(xp, a, x: Clash, *args, out):
        """Nothing."""

    for kernel, text in (
        (none, "no parameter that a NamedTuple"),
        (hidden, "no parameter that a NamedTuple"),
        (twice, "two parameters 'data'"),
        (many, "any number of arrays"),
    ):
        with pytest.raises(DefinitionError, match=rf"{kernel.__name__}.*{text}"):
            grouped(kernel)


def test_an_operator_without_a_field_s_input_is_refused():
    with pytest.raises(DefinitionError, match=r"forward takes \['right', 'addend'\]"):
        type("wrong", (Op,), {"inputs": ("data", "left"), "outputs": Sums._fields, "forward": scaled.forward})


def test_operators_with_groups_keep_the_names_of_their_arrays():
    help_of = mx.sym.RNN.__doc__ + str(inspect.signature(mx.sym.RNN))
    assert "sequence_length" in help_of and "parameters" in help_of
