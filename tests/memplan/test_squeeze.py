"""The least bytes of a network: lower than the recursion's, by changes of single results."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.memplan.check import check
from mxlite.memplan.problem import Problem, Task, Value
from mxlite.memplan.remat import frontier as module, pool as pools, squeeze
from mxlite.memplan.remat.frontier import frontier
from mxlite.memplan.remat.holds import Changes
from mxlite.memplan.remat.schedule import Runs


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
    made, most = pools.CandidatePool.held, []
    monkeypatch.setattr(pools, "TOGETHER", 1)

    def held(pool, method, states):
        if method == "squeezed":
            most.append(len(states))
        return made(pool, method, states)

    monkeypatch.setattr(pools.CandidatePool, "held", held)
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


def crossing():
    """The last stage of a U-Net: what comes up and what crosses over are joined, then come two layers."""
    sizes = dict(data=4, u=4, s=8, up=8, cat=16, d=8, e=8, f=8, out=1)
    sizes |= dict(df=8, dw2=1, de=8, dd=8, dw1=1, dcat=16, du=4, ds=8)
    at = {name: v for v, name in enumerate(sizes)}
    fixed = ("data", "dw2", "dw1", "du", "ds")
    calls = [
        ("u", "data"), ("s", "data"), ("up", "u"), ("cat", "up", "s"), ("d", "cat"), ("e", "d"), ("f", "e"),
        ("out", "f"), ("df", "f", "out"), ("dw2", "e", "df"), ("de", "df"), ("dd", "d", "de"),
        ("dw1", "cat", "dd"), ("dcat", "dd"), ("du", "u", "dcat"), ("ds", "s", "dcat"),
    ]  # fmt: skip
    over = {"e": "d", "dd": "de"}
    tasks = tuple(
        Task(
            f"make {out}",
            "op",
            tuple(at[i] for i in ins),
            (at[out],),
            ((at[out], at[over[out]]),) if out in over else (),
            seconds=1.0,
        )
        for out, *ins in calls
    )
    values = tuple(Value(name, size << 20, name in fixed) for name, size in sizes.items())
    return Problem(tasks, values, 8, {"inputs": 4 << 20})


@pytest.mark.parametrize("detours, least", [(0, 40), (squeeze.DETOURS, 33)])
def test_two_changes_together_help_where_each_alone_does_harm(monkeypatch, detours, least):
    """What is joined is made again where its gradient is fullest. To hold it fills what comes before."""
    monkeypatch.setattr(squeeze, "DETOURS", detours)
    pool = pools.CandidatePool(crossing())
    again = {"e": (1,), "up": (4,), "cat": (4,)}
    names = [task.name.removeprefix("make ") for task in pool.problem.tasks[:8]]
    here = squeeze._spot(pool, pool.holds.of([Runs(tuple(again.get(n, ()) for n in names))]))
    below = here
    while below is not None:
        here, below = below, squeeze._below(pool, below, 10**9)
    assert here.live.max() == least << 20
    runs = pool.holds.runs(here.state, 0)
    assert pool.evaluator.one(runs)[0] == least << 20


def test_no_more_starts_are_made_ready_than_the_limit_has_visits_for(monkeypatch):
    """Of 75,000 tasks one takes half a minute."""
    p = problem()
    pool = pools.CandidatePool(p)
    monkeypatch.setattr(module, "squeeze", lambda pool, limit: None)
    pool.points = list(frontier(p).points)
    assert len(squeeze._starts(pool)) > 1
    made, looked = [], []
    states, changes = pool.states, pool.holds.changes
    monkeypatch.setattr(pool, "states", lambda points: made.append(1) or states(points))
    monkeypatch.setattr(pool.holds, "changes", lambda *args, **which: looked.append(which) or changes(*args))
    squeeze.squeeze(pool, 1)
    assert len(made) == 1 and not looked
    squeeze.squeeze(pool, len(p.tasks) + 1)
    assert len(made) == 2 and 0 < len(looked) <= squeeze.STAGES and not any(looked)
