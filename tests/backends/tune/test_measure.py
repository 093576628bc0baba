"""Measurement: faults stay in their process, outliers are found, and so is how many may run at once."""

import pytest

from mxlite.backends.tune import measure
from mxlite.backends.tune.control import Degree, double_mad, MOST_S, Patience, to_repeat
from mxlite.backends.tune.measure import Measurer
from mxlite.backends.tune.process import cores_here, Worker
from mxlite.backends.tune.space import Schedule
from tests.backends.tune.tasks import BACKEND, task_of

TASK = task_of("softmax", (5, 70))
GOOD = TASK.space(BACKEND).default


@pytest.fixture
def planted(monkeypatch):
    """Workers with kernels that crash, hang, or compute something else, under these names."""
    monkeypatch.setattr(Worker, "module", "tests.backends.tune.planted_worker")
    monkeypatch.setattr(Patience, "limit_s", 3.0)


def test_a_crash_a_hang_and_wrong_numbers_are_outcomes(planted):
    schedules = [GOOD, *(Schedule(k, 1) for k in ("crash", "nan", "hang", "off", "unknown")), GOOD]
    with Measurer(1, cores=cores_here()[:2]) as measurer:
        found = measurer.measure(TASK, schedules)
    assert [o.schedule for o in found] == schedules
    assert [o.timed is not None for o in found] == [True, False, False, False, False, False, True]
    assert found[0].timed.seconds > 0 and found[0].timed.cold > 0
    for outcome, word in zip(found[1:], ("crash", "not finite", "hang", "differs", "no schedule")):
        assert word in outcome.failure and outcome.seconds == float("inf")


def test_no_more_is_measured_at_once_than_there_are_cores():
    for threads, cores, most in ((1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 8, 3), (4, 64, measure.MOST_WORKERS)):
        assert Measurer(threads, cores=range(cores)).degree.most == most
    assert Measurer(1, serial=True, cores=range(8)).degree.most == 1


def test_fewer_run_at_once_while_that_disturbs_and_more_where_it_does_not():
    degree = Degree(6)
    for _ in range(9):
        degree.learn([0.2, 0.0, 0.3])
    assert degree.now == 1
    degree.learn([])
    assert degree.now == 1
    for _ in range(9):
        degree.learn([0.01, 0.3, 0.02])
    assert degree.now == 6


def test_outliers_are_those_of_their_own_side():
    far = double_mad([1.0, 1.1, 1.2, 1.3, 1.4, 3.0, 9.0])
    assert far[0] < 3 and far[-1] > 3 and far[3] == 0
    assert double_mad([]) == [] and double_mad([2.0, 2.0, 2.0]) == [0.0] * 3
    seconds = [1.0, 1.02, 1.01, 0.5, 1.03, 1.02, 1.01, 7.0, 1.0, 1.02]
    assert to_repeat(seconds) == [3, 7]  # one in five: the fastest, and the outlier
    assert to_repeat([1.0]) == [0] and to_repeat([]) == []


def test_patience_follows_what_others_took():
    patience = Patience()
    assert patience.limit_s == MOST_S
    for took in (1.0, 1.2, 1.1):
        patience.add(took)
    assert patience.limit_s == pytest.approx(4.4)
