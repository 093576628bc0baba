"""Measurement: faults stay in their process, and nothing runs beside a measurement."""

import pytest

from mxlite.backends.tune.measure import Measurer, MOST_S, Patience
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


@pytest.mark.parametrize("serial", [False, True])
def test_a_crash_a_hang_and_wrong_numbers_are_outcomes(planted, serial):
    schedules = [GOOD, *(Schedule(k, 1) for k in ("crash", "nan", "hang", "off", "unknown")), GOOD]
    with Measurer(1, serial, cores=cores_here()[:2]) as measurer:
        found = measurer.measure(TASK, schedules)
    assert [o.schedule for o in found] == schedules
    assert [o.timed is not None for o in found] == [True, False, False, False, False, False, True]
    assert found[0].timed.seconds > 0 and found[0].timed.cold > 0
    for outcome, word in zip(found[1:], ("crash", "not finite", "hang", "differs", "no schedule")):
        assert word in outcome.failure and outcome.seconds == float("inf")


def test_nothing_is_built_while_another_schedule_is_timed(monkeypatch):
    asked = []
    ask = Worker.ask

    def noted(worker, what, *rest):
        assert what == "build" or not any(w.busy for w in workers)
        asked.append(what)
        ask(worker, what, *rest)

    monkeypatch.setattr(Worker, "ask", noted)
    with Measurer(1, cores=cores_here()[:2]) as measurer:
        workers = [measurer._timer, *measurer._builders]
        found = measurer.measure(TASK, list(TASK.space(BACKEND).legal[:3]))
    assert asked == ["build"] * 3 + ["time"] * 3
    assert all(o.timed for o in found)


def test_patience_follows_what_others_took():
    patience = Patience()
    assert patience.limit_s == MOST_S
    for took in (1.0, 1.2, 1.1):
        patience.add(took)
    assert patience.limit_s == pytest.approx(4.4)
