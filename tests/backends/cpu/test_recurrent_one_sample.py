"""Recurrent layers of one sample: weights that are not packed, and two directions at once."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.recurrent_layers import ForwardLayers
from mxlite.backends.cpu.runtime import threads
from tests.backends.cpu.fast_kernels import close, heads_of, run
from tests.cases.sequence import _rnn
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")

STEPS, WIDTH = 7, 9


@pytest.mark.parametrize("hidden", [4, 33, 150])
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_they_make_what_the_references_make(mode, hidden):
    """For whole vectors of units and for less than one."""
    for both in (False, True):
        case = _rnn((STEPS, 1, WIDTH), mode=mode, state_size=hidden, num_layers=2, bidirectional=both)
        arrays = [x / 4 for x in case.inputs(dtype="float32")]  # else gradients grow from step to step
        heads = heads_of(case, "float32")
        wanted = run(case, "float32", "reference", arrays, heads)
        close(run(case, "float32", "onednn,compiled", arrays, heads), wanted, 3e-5, f"{mode} {both}")


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_bits_are_the_same_on_any_number_of_threads(mode):
    """Also on an odd one, of which one thread has no direction, and waits where the others do."""
    case = _rnn((STEPS, 1, WIDTH), mode=mode, state_size=130, num_layers=2, bidirectional=True)
    arrays = case.inputs(dtype="float32")
    found = []
    for many in (1, 2, 3, 4, 5):
        before = threads.set_num_threads(many)
        try:
            found.append(run(case, "float32", "onednn,compiled", arrays))
        finally:
            threads.set_num_threads(before)
    for other in found[1:]:
        close(other, found[0], 0)


def test_scratch_has_no_packed_weights():
    hidden, kinds = 256, (np.dtype("f"),) * 4
    numbers = []
    for samples in (1, 2):
        case = _rnn((STEPS, samples, WIDTH), ops.RNN, mode="lstm", state_size=hidden)
        call = Call.of(case, dtype="float32")
        layers = ForwardLayers(call.attrs, call.shapes[0][0], kinds, False, False)
        numbers.append(layers.work_bytes())
    assert numbers[1] - numbers[0] > 4 * 4 * hidden * hidden
