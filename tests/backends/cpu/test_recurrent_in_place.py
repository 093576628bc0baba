"""A recurrent layer's gradient in data, where the gradient of its results or its data lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxlite import ops
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from tests.backends.cpu.fast_kernels import only
from tests.cases.sequence import _rnn
from tests.conformance.conformance import Call, check_in_place

HIDDEN, STEPS, BATCH = 32, 12, 5


def layers(both=False, **attrs):
    width = 2 * HIDDEN if both else HIDDEN
    attrs = {"mode": "lstm", "state_size": HIDDEN, "bidirectional": both, **attrs}
    return replace(_rnn((STEPS, BATCH, width), ops.RnnKeepingGates, **attrs), dtype="float32")


def donors(case):
    call = Call.of(case)
    return case.op.grad_op.in_place_options(call.attrs)


@pytest.mark.parametrize("kinds", ["reference", "onednn,compiled"])
@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize("count", [1, 3])
def test_one_direction_gives_the_same_bits_in_place(kinds, mode, count):
    case = layers(mode=mode, num_layers=count, p=0.2)
    assert donors(case) == {"d_data": ("d_out", "data")}
    with only(kinds):
        call = Call.of(case)
        kernel = CPU.choose(case.op.grad_op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
        tuned = kinds != "reference" and usable() and library() is not None
        assert ("compiled" in kernel.name) == tuned
        check_in_place(case)


def test_two_directions_need_both_until_the_end():
    assert donors(layers(both=True)) == {}
    assert donors(replace(layers(), op=ops.RNN)) == {}
