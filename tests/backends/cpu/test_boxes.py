"""Operators that only move elements, as generated code: every bit is where the reference puts it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite.core.machine_code import native
from mxlite.ops import find_op
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

CASES = [
    ("slice", {"begin": "(1,None,0)", "end": "(None,0,40)", "step": "(1,-2,3)"}, (5, 6, 41)),
    ("slice", {"begin": "(0,1)", "end": "(300,2001)"}, (300, 2003)),
    ("_slice_assign_scalar", {"begin": "(1,2)", "end": "(4,9)", "scalar": 1.0}, (5, 33)),
    ("reverse", {"axis": (0, 2)}, (3, 4, 37)),
    ("roll", {"shift": (3, 2), "axis": (0, 2)}, (5, 4, 9)),
    ("tile", {"reps": (2, 3, 2)}, (3, 5, 7)),
    ("repeat", {"repeats": 3, "axis": 1}, (4, 9, 5)),
    ("repeat", {"repeats": 2}, (2, 500)),
    ("transpose", {"axes": (2, 0, 3, 1)}, (3, 4, 5, 6)),
    ("depth_to_space", {"block_size": 2}, (2, 12, 5, 7)),
    ("space_to_depth", {"block_size": 3}, (2, 4, 6, 9)),
    ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0), "constant_value": 1.0}, (2, 3, 4, 5)),
    ("Pad", {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 2, 3, 0)}, (2, 3, 4, 5)),
    ("diag", {"k": -1}, (7,)),
    ("slice_axis", {"axis": 1, "begin": 2, "end": 9}, (3, 17, 5)),
    ("Crop", {"num_args": 1, "h_w": (3, 4), "offset": (1, 2)}, (2, 3, 6, 7)),
    ("_image_flip_left_right", {}, (3, 8, 5, 3)),
    ("_image_crop", {"x": 1, "y": 2, "width": 3, "height": 4}, (2, 8, 9, 3)),
    ("im2col", {"kernel": (3, 3), "pad": (1, 1)}, (2, 3, 6, 7)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "bool"])
@pytest.mark.parametrize("name, attrs, shape", CASES)
def test_every_bit_is_where_the_reference_puts_it(name, attrs, shape, dtype):
    op = find_op(name)
    if name == "im2col" and dtype in ("int32", "bool"):
        dtype = "float16"
    call = Call.of(Case(op, attrs, [shape]), dtype=dtype)
    assert fast_kernels.kernel_name(call, "compiled").startswith("compiled ")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    made = {}
    for direction, given in (("data", call.shapes[0][0]), ("d_out", call.shapes[1][0])):
        chosen = call.op if direction == "data" else call.op.grad_op
        assert chosen is not None
        input_name = call.names()[0][0] if direction == "data" else direction
        x = np.random.default_rng(7).integers(0, 2 if dtype == "bool" else 100, given).astype(kind)
        for kernels in ("compiled", "reference"):
            with fast_kernels.only(kernels):
                made[kernels], _ = call.execute(chosen, {input_name: x})
        for n, want in made["reference"].items():
            np.testing.assert_array_equal(made["compiled"][n].view(np.uint8), want.view(np.uint8), n)
