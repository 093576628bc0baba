"""The least bytes of a network: lower than the recursion's, by changes of single results."""

import numpy as np

import mxlite as mx
from mxlite.memplan import frontier as module, pool as pools, squeeze
from mxlite.memplan.check import check
from mxlite.memplan.frontier import frontier
from mxlite.memplan.holds import Changes


def problem():
    """A ResNet's, with updates inside the step, which set limits to what runs again."""
    net = mx.models.resnet_cifar(20)
    sgd = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    return net.memory_plan(mx.cpu(), optimizer=sgd, data=(8, 3, 32, 32)).problem


def test_the_least_bytes_are_fewer_than_those_of_recursion(monkeypatch):
    p = problem()
    found = frontier(p)
    monkeypatch.setattr(module, "squeeze", lambda pool, limit: None)
    without = frontier(p)
    assert found.points[-1].live_bytes < 0.97 * without.points[-1].live_bytes
    plan = found.least()
    check(plan)
    assert plan.placed_bytes < without.least().placed_bytes


def test_sums_that_choose_are_of_whole_numbers():
    """Else two processors might add them up in another order, and choose differently."""
    assert squeeze.PARTS**2 * 100_000 < 2**53
    assert isinstance(squeeze.MARK, int)


def test_schedules_that_have_no_room_together_are_costed_in_parts(monkeypatch):
    """One has a bit for each pair of tasks: those of 30,000 tasks took 13 GB, of 75,000 there was no end."""
    p = problem()
    whole = frontier(p).points
    made, most = pools.Pool.held, []
    monkeypatch.setattr(pools, "TOGETHER", 1)

    def held(pool, method, states):
        if method == "squeezed":
            most.append(len(states))
        return made(pool, method, states)

    monkeypatch.setattr(pools.Pool, "held", held)
    assert frontier(p).points == whole
    assert max(most) == 1 and len(most) > 20


def test_some_of_the_changes_are_from_all_over_the_list():
    spans = np.arange(40).reshape(10, 4)
    changes = Changes(np.arange(18).reshape(6, 3), np.array([0, 1, 3, 4, 6, 9, 10]), spans)
    assert changes.some(6).spans.tolist() == spans.tolist()
    few = changes.some(3)
    assert few.ways[:, 0].tolist() == [0, 6, 12] and few.first.tolist() == [0, 1, 2, 5]
    assert few.spans[:, 0].tolist() == [0, 12, 24, 28, 32]
    assert len(changes.some(1)) == 1
