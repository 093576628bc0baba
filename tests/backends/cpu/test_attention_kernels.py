"""Generated attention: its gradients may lie over what they are gradients of."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.runtime import threads
from mxlite.memplan import check
from tests.backends.cpu.fast_kernels import only
from tests.cases.layers import _attention
from tests.conformance.conformance import Call, check_in_place

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not there")

CASES = {
    "blocks of queries and keys": _attention(1, 2, 150, 270, 16),
    "causal, heads share keys": _attention(2, 4, 130, 130, 8, g=2, causal=True),
    "wide values": _attention(1, 3, 70, 40, 4, v=9),
    "mask": _attention(1, 2, 70, 140, 8, mask=(1, 1, 70, 140), kind="bool"),
    "length": _attention(3, 2, 20, 30, 8, use_length=True),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_same_over_their_arrays(name, dtype):
    case = replace(CASES[name], dtype=dtype)
    before = threads.set_num_threads(3)
    try:
        with only("compiled"):
            call = Call.of(case)
            grad = case.op.grad_op
            kernel = CPU.choose(grad, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
            assert kernel.name == "compiled attention"
            assert set(kernel.in_place_options(grad, call.attrs)) == {"d_query", "d_key", "d_value"}
            assert not grad.in_place_options(call.attrs), "the reference needs arrays of its own"
            check_in_place(case)
    finally:
        threads.set_num_threads(before)


def test_backward_takes_no_more_than_its_arrays_and_scratch():
    """Of query, key, value, out and the gradient that arrives, none is there twice."""
    shape = (2, 4, 96, 32)
    data = mx.sym.var("data", shape=shape)
    parts = [
        mx.sym.FullyConnected(data, num_hidden=32, flatten=False, name=n) for n in ("query", "key", "value")
    ]
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.sin(mx.sym.scaled_dot_product_attention(*parts))))
    plan = net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD())
    check(plan)
    problem = plan.problem.leanest  # with as few threads as a plan may choose
    task = next(t for t in problem.tasks if "attention" in t.op and "backward" in t.op)
    arrays, sums = 5 * 4 * prod(shape), 4 * prod(shape[:3])
    assert problem.task_bound == (arrays + sums + task.workspace, problem.tasks.index(task))
