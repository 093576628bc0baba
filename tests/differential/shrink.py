"""A failing case made small: nodes are dropped or become variables, settings become the plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic

from .draw import Case
from .network import Network, Value, Variable

Fails = Callable[[Case], bool]


def shrunk(case: Case, fails: Fails, seconds: float = 30.0) -> Case:
    """A case that still fails and of which no single part can be left out, or what was reached by then."""
    ends = monotonic() + seconds
    found = True
    while found:
        found = False
        for simpler in (*_settings(case), *_networks(case)):
            if monotonic() > ends:
                return case
            if _fails(simpler, fails):
                case, found = simpler, True
                break
    return case


def _fails(case: Case, fails: Fails) -> bool:
    try:
        return fails(case)
    except Exception:  # the oracle cannot run it: not the failure that is looked for
        return False


def _settings(case: Case) -> Iterator[Case]:
    """The case in a plainer setting."""
    s = case.setting
    for plain in (
        dict(engine="naive"), dict(threads=1), dict(budget="none"), dict(requests={}), dict(rounds=1),
        dict(amp=None, loss_scale=None), dict(small=False),
    ):  # fmt: skip
        if any(getattr(s, name) != value for name, value in plain.items()):
            yield replace(case, setting=replace(s, **plain))


def _networks(case: Case) -> Iterator[Case]:
    """The case with one output less, or with one call that is a variable or one of its inputs instead."""
    net = case.network
    if len(net.outputs) > 1:
        for i in range(len(net.outputs)):
            yield replace(case, network=replace(net, outputs=net.outputs[:i] + net.outputs[i + 1 :]).pruned())
    if len(net.outputs) == 1 and case.setting.how in ("train", "infer"):
        for call in net.calls[:-1]:
            yield replace(case, network=replace(net, outputs=(Value(call.name),)).pruned())
    for call in net.calls:
        yield replace(case, network=_without(net, call.name))
    for call in net.calls:
        like = [v for v in call.inputs if net.shape_of(v) == call.shapes[0]]
        if like and len(call.shapes) == 1:
            yield replace(case, network=_instead(net, call.name, {Value(call.name): like[0]}))


def _without(net: Network, name: str) -> Network:
    """What the call gives are variables."""
    call = next(c for c in net.calls if c.name == name)
    new = [Variable(f"{name}_{i}", s, "data") for i, s in enumerate(call.shapes)]
    made = _instead(net, name, {Value(name, i): Value(v.name) for i, v in enumerate(new)})
    return replace(made, variables=(*made.variables, *new), data=made.data | {v.name for v in new}).pruned()


def _instead(net: Network, name: str, by: dict[Value, Value]) -> Network:
    """Without the call `name`; who reads it reads other values."""
    calls = tuple(
        replace(c, inputs=tuple(by.get(v, v) for v in c.inputs)) for c in net.calls if c.name != name
    )
    return replace(net, calls=calls, outputs=tuple(dict.fromkeys(by.get(v, v) for v in net.outputs))).pruned()
