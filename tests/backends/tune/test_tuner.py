"""The tuner: what it measures next, what it believes, and schedules of several parts that are joined."""

import pytest

from mxlite.backends.tune.measure import Outcome
from mxlite.backends.tune.records import RecordFile
from mxlite.backends.tune.tuner import BATCH, PATIENCE, Tuner
from mxlite.backends.tune.worker import Timed
from mxlite.core.machine_code import native
from tests.backends.tune.tasks import BACKEND, task_of

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

TASK = task_of("FullyConnected", (37, 90), (50, 90), num_hidden=50, no_bias=True, backward=True)
PART = len(TASK.space(BACKEND).default.knobs) // 2
"""Knobs of each of two products."""


class Planned:
    """Measures what a function says, in seconds."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, []

    def measure(self, task, schedules):
        self.asked += schedules
        found = [self.seconds(s) for s in schedules]
        return [Outcome(s, t and Timed(t, t, "", t)) for s, t in zip(schedules, found)]

    def in_turns(self, task, schedules, turns):
        return [self.measure(task, [s] * turns) for s in schedules]


def tuned(tmp_path, seconds, **options):
    with RecordFile(str(tmp_path / "records")) as file:
        measurer = Planned(seconds)
        tuner = Tuner([TASK], BACKEND, file, measurer, by_model=False, **options)
        tuner.run(60)
        return tuner.tasks[0], measurer.asked, [r for r in file.rows() if r.confirmed]


def test_the_best_schedules_of_two_parts_are_joined(tmp_path):
    usual = TASK.space(BACKEND).default

    def seconds(s):
        own, other = s.knobs[:PART], s.knobs[PART:]
        return 1e-3 - 3e-4 * (own != usual.knobs[:PART]) - 2e-4 * (other != usual.knobs[PART:])

    found, asked, rows = tuned(tmp_path, seconds)
    assert found.best.knobs[:PART] != usual.knobs[:PART] and found.best.knobs[PART:] != usual.knobs[PART:]
    assert found.after_s == pytest.approx(5e-4)
    assert found.best in {r.schedule for r in rows}
    assert asked[0] == usual


def test_a_task_is_left_when_nothing_is_faster_and_not_tuned_when_it_is_short(tmp_path):
    found, asked, rows = tuned(tmp_path, lambda s: 1e-3)
    assert found.best is None and not rows and len(asked) == 1 + BATCH * PATIENCE - BATCH
    found, asked, _ = tuned(tmp_path, lambda s: 1e-6)
    assert len(asked) == 1


def test_what_is_faster_once_is_not_believed(tmp_path):
    times = {}

    def seconds(s):
        times[s] = times.get(s, 0) + 1
        return 5e-4 if times[s] == 1 and s != TASK.space(BACKEND).default else 1e-3

    found, _, rows = tuned(tmp_path, seconds)
    assert found.best is None and not rows


def test_schedules_that_fail_are_never_chosen(tmp_path):
    usual = TASK.space(BACKEND).default
    found, _, rows = tuned(tmp_path, lambda s: 1e-3 if s == usual else None)
    assert found.best is None and found.failures > 0 and not rows
    assert found.joined() == []
