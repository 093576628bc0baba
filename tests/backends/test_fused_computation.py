"""Parts of a fused computation: some of its outputs, and one made of the others, against the whole."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.backends.fused.computation import ComputationAttrs, FusedComputation, FusedComputationGradient
from mxlite.te.computation import Computation, pruned, Tensor

SHAPE = (3, 7)
FLOAT32 = np.dtype("f")
STEPS = ("add", "mul", "sub", "max", "tanh", "sigmoid", "abs")


def attrs_of(outputs: list[Tensor], count: int, shape: tuple[int, ...] = SHAPE) -> ComputationAttrs:
    """The attributes of a node with these outputs, of `count` inputs."""
    nodes, numbers = pruned(outputs[0].t, [x.number for x in outputs])
    kinds = (FLOAT32,) * len(outputs)
    return ComputationAttrs(nodes, numbers, (shape,) * len(outputs), kinds, (FLOAT32,) * count)


def drawn(seed: int) -> tuple[ComputationAttrs, list[np.ndarray]]:
    """A computation of some steps, several of which are outputs, and its inputs."""
    rng = np.random.default_rng(seed)
    t = Computation()
    values = [t.input("arg0", SHAPE), t.input("arg1", SHAPE), t.input("arg2", (1, SHAPE[1]))]
    values += [t.constant(0.5), t.number(2.0)]
    first = len(values)
    for _ in range(10):
        name = STEPS[rng.integers(len(STEPS))]
        count = 2 if name in ("add", "mul", "sub", "max") else 1
        values.append(t(name, *(values[i] for i in rng.integers(0, len(values), count))))
    outputs = [values[i] for i in first + rng.permutation(len(values) - first)[: rng.integers(2, 5)]]
    return attrs_of(outputs, 3), [rng.standard_normal(s).astype("f") for s in (SHAPE, SHAPE, (1, 7))]


def computed(a: ComputationAttrs, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs by the reference kernel."""
    outs = tuple(np.full(s, 77, d) for s, d in zip(a.shapes, a.made))
    work = np.empty(FusedComputation.workspace(a, (), (), FLOAT32), "uint8")
    FusedComputation.forward(np, a, *inputs, outs=outs, work=work)
    return list(outs)


@pytest.mark.parametrize("seed", range(40))
def test_an_output_made_of_the_others_has_the_same_bits(seed):
    whole, inputs = drawn(seed)
    results = computed(whole, inputs)
    for which, want in enumerate(results):
        part, places = whole.part([which], from_others=True)
        assert len(part.given) == len(places) and len(part.outputs) == 1
        given = [*inputs, *results]
        (got,) = computed(part, [given[i] for i in places])
        np.testing.assert_array_equal(got, want)
        assert len(inputs) + which not in places or whole.outputs.count(whole.outputs[which]) > 1


@pytest.mark.parametrize("seed", range(40))
def test_some_outputs_have_the_bits_that_they_have_with_the_others(seed):
    whole, inputs = drawn(seed)
    results = computed(whole, inputs)
    for which in ([0], [1], [1, 0]):
        part, places = whole.part(which)
        assert max(places, default=0) < len(inputs)
        for i, got in zip(which, computed(part, [inputs[k] for k in places])):
            np.testing.assert_array_equal(got, results[i])


def test_a_part_reads_the_inputs_that_it_needs():
    t = Computation()
    x, y, z = (t.input(f"arg{i}", SHAPE) for i in range(3))
    whole = attrs_of([x + z * t.constant(2.0), y], 3)
    first, places = whole.part([0])
    assert places == (0, 2) and len(first.given) == 2
    second, places = whole.part([1])
    assert places == (1,) and second.nodes == (("input", "arg0", SHAPE),) and second.outputs == (0,)
    same, places = whole.part([0, 1])
    assert same == whole and places == (0, 1, 2)


def test_others_are_read_where_they_save_steps():
    t = Computation()
    s, e = t.tanh(t.input("arg0", SHAPE)), t.sigmoid(t.input("arg1", SHAPE))
    whole = attrs_of([s, e, s * e], 2)
    part, places = whole.part([2], from_others=True)
    assert sorted(places) == [2, 3] and [n[0] for n in part.nodes if n[0] != "input"] == ["mul"]
    part, places = whole.part([0], from_others=True)
    assert places == (0,) and [n[0] for n in part.nodes] == ["input", "tanh"]


def test_only_inputs_of_full_size_are_given_away():
    t = Computation()
    x, y, row = t.input("arg0", SHAPE), t.input("arg1", SHAPE), t.input("arg2", (1, SHAPE[1]))
    a = attrs_of([t.tanh(x * y) + row * 0.5, x - y], 3)
    assert FusedComputation.in_place_options(a) == {"output0": ("arg0", "arg1"), "output1": ("arg0", "arg1")}
    assert not FusedComputationGradient.recomputable and FusedComputation.recomputable


def test_what_is_read_in_another_place_too_is_not_given_away():
    t = Computation()
    x, again = t.input("arg0", (4, 4)), t.input("arg0", (16, 1, 1))
    a = attrs_of([t.broadcast(x, (16, 4, 4)) + again], 1, (16, 4, 4))
    assert FusedComputation.in_place_options(a) == {"output0": ()}
