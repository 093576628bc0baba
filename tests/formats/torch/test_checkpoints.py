"""Checkpoints that mxlite plans for PyTorch's own steps: they fit, as predicted, and change no number."""

import copy
from functools import partial

import pytest

pytest.importorskip("torch", reason="these steps are PyTorch's")

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import profile, ProfilerActivity

import mxlite as mx
from mxlite.core import ArgumentError
from mxlite.formats.building import NotSupportedError
from mxlite.formats.torch import Applied, StepPlan
from mxlite.formats.torch.checkpoints.rehearsal import rehearse
from mxlite.formats.torch.checkpoints.selective import Kept
from tests.formats.torch.modules.language import GPT, tokens

pytestmark = pytest.mark.torch


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o), nn.Dropout(0.2)

    def forward(self, x):
        return self.drop(torch.tanh(self.bn(self.conv(x))))


class Convolutions(nn.Module):
    """Early blocks keep much, late ones little."""

    def __init__(self):
        super().__init__()
        sizes = ((3, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 32, 2))
        self.blocks = nn.ModuleList(Block(*size) for size in sizes)
        self.head = nn.Linear(32, 4)

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), y)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = GPT(64, 32, 2, 4, 32)

    def forward(self, x, y):
        return F.cross_entropy(self.net(x).flatten(0, 1), y.flatten())


def made(kind):
    torch.manual_seed(3)
    if kind is Convolutions:
        return kind(), (torch.randn(8, 3, 16, 16), torch.randint(0, 4, (8,)))
    return kind(), (tokens(16, 32, count=64), tokens(16, 32, count=64))


def measured_peak(module, inputs, optimizer):
    """Bytes that PyTorch's allocator counts in a step, and those that were there before."""

    def step():
        optimizer.zero_grad()
        module(*inputs).backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    states = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    there = {t.untyped_storage() for t in (*module.parameters(), *module.buffers(), *inputs, *states)}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    live, most = 0, 0
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most + sum({s.data_ptr(): s.nbytes() for s in there}.values())


@pytest.mark.parametrize("kind", [Convolutions, Language])
def test_the_peak_is_as_planned_with_and_without_checkpoints(kind):
    module, inputs = made(kind)
    momentum = 0.9 if kind is Language else 0.0
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=momentum, fused=True)
    whole = mx.torch.plan(module, inputs, optimizer=optimizer)
    assert whole.regions == {} and whole.extra_time == 0
    assert measured_peak(module, inputs, optimizer) == pytest.approx(whole.peak_bytes, rel=0.1)
    budget = int(0.7 * whole.peak_bytes)
    plan = mx.torch.plan(module, inputs, optimizer=optimizer, budget=budget)
    assert plan.peak_bytes <= budget and plan.keep_all_peak_bytes == whole.peak_bytes
    assert 0 < len(plan.regions) < 5 and 0 < plan.extra_time < 0.34
    mx.torch.apply(module, plan)
    assert measured_peak(module, inputs, optimizer) == pytest.approx(plan.peak_bytes, rel=0.1)


def test_blocks_that_keep_little_are_not_recomputed():
    module, inputs = made(Convolutions)
    every = tuple(f"blocks.{i}" for i in range(5))

    least = rehearse(module, inputs, regions=dict.fromkeys(every, ())).peak_bytes
    plan = mx.torch.plan(module, inputs, budget=least)
    assert plan.peak_bytes <= least and set(plan.regions) < set(every)
    assert "blocks.0" in plan.regions and "blocks.4" not in plan.regions


def test_numbers_stay_as_they_were():
    module, inputs = made(Convolutions)
    other = copy.deepcopy(module)
    whole = mx.torch.plan(module, inputs)
    plan = mx.torch.plan(module, inputs, budget=int(0.6 * whole.peak_bytes))
    with mx.torch.apply(module, plan) as applied:
        assert applied.regions == tuple(plan.regions) and len(plan.regions) > 1
        for net in (module, other, copy.deepcopy(module)):
            torch.manual_seed(5)
            net(*inputs).backward()
            assert net.blocks[0].bn.num_batches_tracked == 1
        part = module.get_submodule(next(iter(plan.regions)))
        assert isinstance(part, Block) and type(part) is not Block
    assert all(type(block) is Block for block in module.blocks)
    for (name, ours), theirs in zip(module.named_parameters(), other.parameters()):
        assert torch.equal(ours.grad, theirs.grad), name
    for (name, ours), theirs in zip(module.named_buffers(), other.buffers()):
        assert torch.equal(ours, theirs), name
    mx.torch.apply(module, plan)
    with torch.no_grad():
        module.eval()(*inputs)
    assert mx.torch.apply(module, mx.torch.plan(module, inputs)).regions == ()
    assert all(type(block) is Block for block in module.blocks)


class Drops(nn.Module):
    """Random numbers are drawn three times; the second call writes in place."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        x = F.dropout(torch.tanh(self.first(F.dropout(x, 0.5)).mul_(2)), 0.25)
        return F.dropout(self.second(x), 0.5)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(Drops(), Drops())

    def forward(self, x):
        return self.parts(x).square().mean()


def kept_calls(module, inputs, part, wanted):
    """The calls of a submodule whose operators have one of these names, all or the first of each."""
    seen = rehearse(module, inputs, regions={})
    numbers = seen.calls_of(seen.spans[part])
    calls = [Kept(i, seen.calls[n].operator, "") for i, n in enumerate(numbers) if seen.calls[n].writes]
    return tuple(c for i, c in enumerate(calls) if any(c.operator.startswith(f"aten.{w}.") for w in wanted))


@pytest.mark.parametrize(
    "wanted",
    [("addmm", "mul_"), ("empty_like", "bernoulli_", "div_"), ("addmm",), ("mul_",), ("bernoulli_",)],
)
def test_what_a_region_keeps_changes_no_number(wanted):
    """Random numbers after kept ones are drawn again equally. A part of what writes a tensor is not kept."""
    torch.manual_seed(3)
    module, x = Stack(), torch.randn(8, 16)
    other = copy.deepcopy(module)
    kept = kept_calls(module, x, "parts.0", wanted)
    assert {c.operator.split(".")[1] for c in kept} == {*wanted}
    if "div_" in wanted:
        kept = kept[:3]  # the first mask alone: the others are drawn again
    Applied(module, {"parts.0": kept, "parts.1": ()})
    for net in (module, other):
        torch.manual_seed(5)
        loss = net(x)
        loss.backward(retain_graph=True)
        loss.backward()  # a graph that was retained is run again in full
    for (name, ours), theirs in zip(module.named_parameters(), other.parameters()):
        assert torch.equal(ours.grad, theirs.grad), name


def test_what_a_region_keeps_is_not_run_again():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += str(func) == "aten.addmm.default"
            return func(*args, **(kwargs or {}))

    torch.manual_seed(3)
    module, x = Stack(), torch.randn(8, 16)
    for wanted, products in (((), 8), (("addmm",), 7), (("addmm", "mul_"), 6)):  # mul_ writes the first
        kept = kept_calls(module, x, "parts.0", wanted)
        with Applied(module, {"parts.0": kept, "parts.1": ()}), Counting() as counting:
            module(x).backward()
        assert counting.count == products


def test_an_argument_that_is_given_twice_is_one_again():
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.MultiheadAttention(8, 2, 0.3, batch_first=True)

        def forward(self, x):
            return self.part(x, x, x)[0].square().mean()

    module, x = Attending(), torch.randn(2, 5, 8)  # projects once where query, key and value are one object
    gradients = []
    for regions in ({}, {"part": ()}):
        with Applied(module, regions):
            torch.manual_seed(1)
            module.zero_grad()
            module(x).backward()
            gradients.append([p.grad.clone() for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients))


def test_a_region_that_changes_is_refused():
    class Second(nn.Linear):
        again = False

        def forward(self, x):
            self.again = not self.again
            return super().forward(x + x if self.again else x.tanh()).sigmoid()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Second(4, 4)

        def forward(self, x):
            out = self.part(x)
            self.out = out.detach()
            return out

    module, x = Net(), torch.randn(2, 4)
    with Applied(module, {"part": (Kept(0, "aten.add.Tensor", "part"),)}):
        with pytest.raises(mx.MXLiteError, match="part does not repeat itself: its call 0 was of aten"):
            module(x).sum().backward()
    kept = kept_calls(module.train(), x, "part", ("sigmoid",))
    with Applied(module, {"part": kept}):
        loss = module(x).sum()
        module.out.zero_()
        with pytest.raises(mx.MXLiteError, match="part kept the result of aten"):
            loss.backward()


def test_what_does_not_fit_is_refused_with_what_does():
    module, inputs = made(Convolutions)
    with pytest.raises(mx.MemoryBudgetError, match=r"Convolutions does not fit 100.00 KiB") as raised:
        mx.torch.plan(module, inputs, budget="100KiB")
    least = raised.value.least_feasible_bytes
    plan = mx.torch.plan(module, inputs, budget=least)
    assert plan.peak_bytes <= least
    assert "recomputed: blocks.0" in str(plan) and "peak, keeping all" in str(plan)


def test_mxlites_own_plan_has_the_states_of_the_optimizer():
    module, x = nn.Linear(16, 16), torch.randn(4, 16)
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    for make, states in ((sgd, 0), (partial(sgd, momentum=0.9), 1), (adam, 2)):
        plan = mx.torch.plan(module, x, optimizer=make(module.parameters(), lr=0.1))
        rates = plan.mxlite.problem.fixed_bytes["optimizer"] - states * plan.breakdown["arguments"]
        assert 0 <= rates < 64 and plan.breakdown["optimizer"] // plan.breakdown["arguments"] == states
    assert plan.summary() in str(plan) and plan.mxlite.summary() in str(plan)
    plan = mx.torch.plan(module, x, optimizer=torch.optim.Adagrad(module.parameters()))
    assert "SGD, Adam, AdamW of torch.optim, and not with Adagrad" in str(plan)
    with pytest.raises(mx.MemoryBudgetError, match=r"Linear does not .* mx\.from_torch, it needs [\d.]+ KiB"):
        mx.torch.plan(module, x, budget=100)


def test_other_plans_and_modules_are_refused():
    module, inputs = made(Convolutions)
    plan = StepPlan({"blocks.0": ()}, 0, 0, 0.0, {})
    with pytest.raises(ArgumentError, match=r"Linear has no submodule 'blocks\.0'"):
        mx.torch.apply(nn.Linear(2, 2), plan)
    with pytest.raises(ArgumentError, match=r"takes a plan of mx.torch.plan, .*got MemoryPlan"):
        mx.torch.apply(module, mx.torch.plan(module, inputs).mxlite)

    class Asking(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(NotSupportedError, match="A step of Asking cannot be rehearsed without numbers"):
        mx.torch.plan(Asking(2, 2), torch.randn(1, 2))
