"""Computations inside others, over domains that refine theirs."""

from __future__ import annotations

import pytest

from mxlite.core.errors import ShapeError
from mxlite.te.computation import Computation
from mxlite.te.inclusion import common_marks, included, marks_of, Refinement


def test_domains_have_one_that_refines_both_where_their_axes_end_at_places_that_divide_each_other():
    marks = common_marks([marks_of((8, 64, 512)), marks_of((512, 1, 512, 1, 1))])
    assert marks is not None and sorted(marks) == [1, 512, 512 * 64, 512 * 64 * 8]
    assert common_marks([marks_of((40, 60)), marks_of((60, 40))]) is None


def test_shapes_and_axes_of_a_domain_in_one_that_refines_it():
    seen = Refinement((512, 1, 512, 1, 1), marks_of((8, 64, 512)))
    assert seen.lengths == (8, 64, 512)
    assert seen.shape((512, 1, 1, 1, 1)) == (8, 64, 1)
    assert seen.shape((512, 1, 1)) == (1, 1, 512)
    assert seen.axes([-5]) == [-3, -2] and seen.axes([-3]) == [-1]


def test_a_computation_is_written_over_the_axes_of_another():
    one = Computation()
    x = one.input("x", (6, 4))
    total = one.sum(x * one.index(x, 1), (0,))
    t = Computation()
    data = t.exp(t.input("data", (2, 3, 4)))
    made = included(t, one.nodes, lambda name, shape: data, Refinement((6, 4), marks_of((2, 3, 4))))
    assert made[total.number].shape == (1, 1, 4)
    assert t.nodes[made[total.number].number][0] == "reduce_sum"


def test_positions_are_none_along_several_axes_and_elements_are_picked_from_arrays():
    one = Computation()
    x = one.input("x", (6, 4))
    one.index(x, 0)
    t = Computation()
    data = t.exp(t.input("data", (2, 3, 4)))
    with pytest.raises(ShapeError, match="positions"):
        included(t, one.nodes, lambda name, shape: data, Refinement((6, 4), marks_of((2, 3, 4))))
    one = Computation()
    one.pick(one.input("x", (6, 4)), one.input("i", (6, 1)), 1)
    t = Computation()
    data = t.exp(t.input("data", (6, 4)))
    with pytest.raises(ShapeError, match="pick"):
        included(t, one.nodes, lambda name, shape: data if name == "x" else t.input(name, shape))
