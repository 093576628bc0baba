"""What binding is asked for: checked once, before anything is lowered, and the same under whatever name."""

from dataclasses import replace

import pytest

import mxlite as mx
from mxlite.core import bfloat16
from mxlite.core.errors import BudgetError, DTypeError
from mxlite.executor import BindRequest
from mxlite.executor.plan.candidates import Candidates
from tests.networks.small_networks import mlp

SHAPES = {"data": (8, 20)}


@pytest.mark.parametrize(
    "options, error",
    [
        (dict(strategy="shared"), mx.BindError),
        (dict(streams=0), mx.BindError),
        (dict(memory_budget="much"), BudgetError),
        (dict(amp="float8"), DTypeError),
        (dict(loss_scale=8), mx.BindError),
        (dict(amp="float16", loss_scale="dynamic"), mx.BindError),
        (dict(offload=True), mx.BindError),
        (dict(optimizer="sgd"), mx.BindError),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(options, error):
    with pytest.raises(error):
        BindRequest(mlp().graph, None, SHAPES, **options)


def test_a_request_that_is_changed_is_checked_again():
    asked = BindRequest(mlp().graph, None, SHAPES, memory_budget="1KiB", amp="bf16", loss_scale=4)
    assert (asked.budget, asked.amp, asked.scale.value) == (1024, bfloat16, 4.0)
    other = replace(asked, memory_budget="2KiB", optimizer=mx.optimizer.SGD())
    assert (other.budget, other.scale, other.rule is None) == (2048, asked.scale, False)
    with pytest.raises(mx.BindError):
        replace(asked, amp=None)


def test_candidates_are_alike_where_they_offer_the_same_steps():
    def of(**options):
        options = {"memory_budget": 2**30, **options}
        return Candidates.of_inputs(BindRequest(net.graph, mx.cpu(), SHAPES, **options))

    net = mlp()
    assert of().is_like(of(streams=2))
    assert of(optimizer=mx.optimizer.SGD()).is_like(of(optimizer=mx.optimizer.SGD()))
    for other in (dict(optimizer=mx.optimizer.SGD()), dict(amp="bf16"), dict(offload="auto"), dict(watch=1)):
        assert not of().is_like(of(**other))
    assert not of(memory_budget=None).is_like(of(memory_budget=None))


def test_an_executor_keeps_what_it_was_bound_with_and_no_array():
    exe = mlp().simple_bind(mx.cpu(), memory_budget="1GiB", streams=3, **SHAPES)
    asked = exe._request
    assert (asked.budget, asked.streams, asked.shapes) == (2**30, 3, SHAPES)
    again = exe.reshape(data=(4, 20))
    assert (again._request.budget, again._request.shapes) == (2**30, {"data": (4, 20)})
    assert not any(isinstance(value, mx.nd.NDArray) for value in vars(asked).values())
