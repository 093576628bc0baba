"""The least bytes of a network: lower than the recursion's, by changes of single results."""

import mxlite as mx
from mxlite.memplan import frontier as module, squeeze
from mxlite.memplan.check import check
from mxlite.memplan.frontier import frontier


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
