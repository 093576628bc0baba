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
        results = [bench._results(bench.connected(bench.kernel(s))) for s in own[:: max(1, len(own) // 25)]]
    for found in results[1:]:
        for a, b in zip(found, results[0]):
            np.testing.assert_array_equal(a, b)


@compiled
def test_a_space_is_enumerated_once_and_described_in_numbers():
    space = NESTS[0].space(BACKEND)
    assert len(set(space.legal)) == len(space.legal) and space.legal == NESTS[0].space(BACKEND).legal
    rows = {tuple(space.features(s)) for s in space.legal}
    assert len(rows) == len(space.legal)  # a model can tell all of them apart
    assert all(len(row) == FEATURES and np.isfinite(row).all() for row in rows)
    assert space.kernel(Schedule(space.default.kernel, 1, (3, 1, 0) * 2)) is None  # no such knobs
    assert space.kernel(Schedule("a library of somebody", 1)) is None
    assert space.kernel(Schedule(space.default.kernel, 7, space.default.knobs)) is None


def test_libraries_and_the_reference_are_candidates_with_the_threads_of_the_task_or_one():
    space = task_of("FullyConnected", (64, 96), (32, 96), (32,), threads=2, num_hidden=32).space(BACKEND)
    assert list(space.candidates)[-1] == "reference" or len(space.candidates) == 1
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
