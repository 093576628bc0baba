"""Expressions cut to some of their outputs, and outputs made of the others, against the whole ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxlite.te.expression import evaluate, Expression, Writer

STEPS = ("add", "mul", "sub", "max", "tanh", "sigmoid", "abs")


def drawn(seed: int) -> tuple[Expression, tuple[float, ...], list[np.ndarray]]:
    """An expression of some steps, several of which are outputs, its constants and its inputs."""
    rng = np.random.default_rng(seed)
    w = Writer()
    values: list[Any] = [w.input() for _ in range(3)]
    values += [w.constant(0.5), w.number(2.0)]
    first = len(values)
    for _ in range(10):
        name = STEPS[rng.integers(len(STEPS))]
        count = 2 if name in ("add", "mul", "sub", "max") else 1
        values.append(w(name, *(values[i] for i in rng.integers(0, len(values), count))))
    outputs = [values[i] for i in first + rng.permutation(len(values) - first)[: rng.integers(2, 5)]]
    return *w.expression(outputs), [rng.standard_normal(7).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("seed", range(40))
def test_an_output_made_of_the_others_has_the_same_bits(seed):
    whole, constants, inputs = drawn(seed)
    results = evaluate(whole, constants, inputs, np.float32)
    for which, want in enumerate(results):
        part, places = whole.from_others(which)
        assert part.num_inputs == len(places) and len(part.outputs) == 1
        given = [*inputs, *results]
        (got,) = evaluate(part, constants, [given[i] for i in places], np.float32)
        np.testing.assert_array_equal(np.broadcast_to(got, (7,)), np.broadcast_to(want, (7,)))
        assert whole.num_inputs + which not in places or whole.outputs.count(whole.outputs[which]) > 1


def test_others_are_read_where_they_save_steps():
    w = Writer()
    a, b = w.input(), w.input()
    t, s = w("tanh", a), w("sigmoid", b)
    whole, _ = w.expression([t, s, t * s])
    part, places = whole.from_others(2)
    assert places == (2, 3) and [step[0] for step in part.steps] == ["mul"]
    part, places = whole.from_others(0)
    assert places == (0,) and [step[0] for step in part.steps] == ["tanh"]
