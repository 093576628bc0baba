"""Spaces: legal by construction, and no schedule of a nest changes a bit."""

import numpy as np
import pytest

from mxlite.backends.tune.space import FEATURES, Schedule
from mxlite.backends.tune.task import Task
from mxlite.backends.tune.worker import Bench
from mxlite.core.machine_code import native
from tests.backends.tune.tasks import BACKEND, task_of

compiled = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

NESTS = [
    task_of("LayerNorm", (37, 300), (300,), (300,), backward=True),
    task_of("softmax", (5, 70)),
    task_of("sum", (130, 90), axis=0),
    task_of("softmax", (3, 40, 65), axis=1, backward=True),
]


@compiled
@pytest.mark.parametrize("task", NESTS, ids=lambda t: t.request.op.op_name)
def test_every_schedule_of_a_nest_gives_the_same_bits(task):
    bench = Bench(task, BACKEND)
    own = [s for s in bench.space.legal if s.kernel != "reference"]
    assert len(own) >= 3 and own[0] == bench.space.default
    with BACKEND.running(1):
        results = [bench.results(bench.connected(bench.kernel(s))) for s in own[:: max(1, len(own) // 25)]]
    for found in results[1:]:
        for a, b in zip(found, results[0]):
            np.testing.assert_array_equal(a, b)


def convolution(channels: int, size: int, filters: int, kernel: int, stride: int = 1, backward: bool = False):
    """Of two images with channels last."""
    options = dict(kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(kernel // 2,) * 2, num_filter=filters)
    shapes = (2, size, size, channels), (filters, channels, kernel, kernel)
    return task_of("_convolution_channels_last", *shapes, no_bias=True, backward=backward, **options)


PRODUCTS = [
    task_of("FullyConnected", (37, 90), (50, 90), (50,), num_hidden=50),
    task_of("FullyConnected", (37, 90), (50, 90), num_hidden=50, no_bias=True, backward=True),
    task_of("dot", (37, 90), (90, 1)),
    task_of("dot", (3, 90), (90, 70), threads=2),
]
CONVOLUTIONS = [
    convolution(64, 9, 32, 3, backward=True),
    convolution(32, 6, 64, 3),
    convolution(32, 6, 48, 1, backward=True),
    convolution(3, 12, 16, 5, 2),
]
ATTENTION = [
    task_of("scaled_dot_product_attention", *[(1, 2, 70, 16)] * 3, backward=backward)
    for backward in (False, True)
]


@compiled
@pytest.mark.parametrize(
    "task", [*PRODUCTS, *CONVOLUTIONS, *ATTENTION], ids=lambda t: f"{t.request.op.op_name}-{t.request.inputs}"
)
def test_schedules_of_all_ways_compute_the_same(task):
    bench = Bench(task, BACKEND)
    ways = {}
    for s in bench.space.legal:  # knobs of the first part, and of the second
        ways.setdefault((s.kernel, s.knobs[:1], s.knobs[len(s.knobs) // 2 :][:1]), []).append(s)
    assert len(ways) > 2
    for k, some in enumerate(ways.values()):
        for s in {some[k % len(some)], some[-1]}:
            bench.check(s)


@compiled
@pytest.mark.parametrize("task", [NESTS[0], PRODUCTS[1], CONVOLUTIONS[0]], ids=lambda t: t.name)
def test_a_space_is_enumerated_once_and_described_in_numbers(task):
    space = task.space(BACKEND)
    assert len(set(space.legal)) == len(space.legal) and space.legal == task.space(BACKEND).legal
    rows = {tuple(space.features(s)) for s in space.legal}
    assert len(rows) == len(space.legal)  # a model can tell all of them apart
    assert all(len(row) == FEATURES and np.isfinite(row).all() for row in rows)
    assert all(Schedule.of(s.row()) == s for s in space.legal)


@compiled
def test_knobs_that_a_space_has_not_are_refused():
    space = NESTS[0].space(BACKEND)
    assert space.kernel(Schedule(space.default.kernel, 1, (3, 1, 0) * 2)) is None  # no such knobs
    assert space.kernel(Schedule("a library of somebody", 1)) is None
    assert space.kernel(Schedule(space.default.kernel, 7, space.default.knobs)) is None
    for task, good, wrong in (
        (PRODUCTS[0], (3, 14, 2, 4, 64, 28, 64, 1, 1, 0, 0, 0, 0), {0: 4, 1: 30, 4: 96, 5: 27, 8: 2}),
        (
            CONVOLUTIONS[1],
            (1, 4, 32, 32, 16, 64, *[0] * 8),
            {0: 9, 1: 3, 2: 24, 3: 96, 4: 0, 5: 1 << 19, 7: 1},
        ),
    ):
        space = task.space(BACKEND)
        name = space.default.kernel
        assert space.kernel(Schedule(name, 1, good)) is not None
        for place, value in wrong.items():
            knobs = (*good[:place], value, *good[place + 1 :])
            assert space.kernel(Schedule(name, 1, knobs)) is None, (place, value)
        assert space.kernel(Schedule(name, 1, good[:-1])) is None
        assert space.kernel(Schedule(name, 1, (*good, 0))) is None


def test_libraries_and_the_reference_are_candidates_with_the_threads_of_the_task_or_one():
    space = task_of("FullyConnected", (64, 96), (32, 96), (32,), threads=2, num_hidden=32).space(BACKEND)
    assert list(space.candidates)[-1] == "reference" or len(space.candidates) == 1
    assert {s.knobs[:1] for s in space.legal} >= {(0,), (3,)} or not native.available()
    assert {s.threads for s in space.legal if s.kernel == space.default.kernel} == {1, 2}


@pytest.mark.parametrize(
    "row",
    [None, [], ["k", 1], ["k", 0, []], ["k", True, []], ["k", 1, [-1]], ["k", 1, [1.0]], ["k", 1, [1 << 40]]]
    + [["k" * 999, 1, []], ["k", 1, [0] * 999], [1, 1, []], ["k", 1, {}]],
)
def test_what_is_no_schedule_is_refused(row):
    assert Schedule.of(row) is None


def test_tasks_reach_another_process_whole():
    for task in NESTS:
        there = Task.unpacked(task.packed())
        assert there == task and there.key == task.key
    assert Schedule.of(Schedule("k", 2, (1, 4)).row()) == Schedule("k", 2, (1, 4))
