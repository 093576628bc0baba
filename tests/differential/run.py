"""A network run as a setting says, and every number that a user can see of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import Backend, ChosenKernel, registry, Request, Row
from mxlite.backends.control_flow.control import control_kernel
from mxlite.backends.cpu.runtime import threads
from mxlite.backends.fused.update_group import FusedUpdates
from mxlite.backends.gpu import planning_backend
from mxlite.backends.rewrite import Pipeline, Stage
from mxlite.engine import use_engine
from mxlite.ops import ALL

from . import rewrites
from .network import Network
from .setting import Setting
from .values import shaken, ULP, values

RATE, DECAY, MOMENTUM, EPSILON = 0.1, 0.01, 0.9, 0.01
Numbers = dict[str, np.ndarray]

HITS = rewrites.Hits()
"""Of all that ran in this process."""


@dataclass
class Ran:
    """What came of a run: numbers by name, and the operators of the training step, or of inference. `grain`:
    by what numbers that are differences may be off because the two were stored.
    """

    numbers: Numbers
    operators: tuple[str, ...]
    peak_bytes: int
    grain: dict[str, float]


@cache
def backends() -> dict[str, Backend]:
    """Those that a setting may name, and "reference"."""
    own, gpu = registry._cpu(), planning_backend()

    def rewriting(by: Backend) -> Backend:
        """The passes of `by` over reference kernels, but for those that prepack weights: only kernels of
        a library read these. Within a budget nothing is prepacked, so that another kernel would run there.
        """
        optimize = by.optimize()
        passes = tuple(p for p in optimize.passes if p.stage is not Stage.CONSTANTS)
        chosen = Pipeline(passes, optimize.target)
        return Backend(
            "cpu", np, widening(), optimize=lambda: chosen, low_memory=by.low_memory, control=control_kernel
        )

    made = {"cpu": own, "reference": Backend("cpu", np, control=control_kernel)}
    return made | {"cpu passes": rewriting(own), "gpu passes": rewriting(gpu)}


def widening() -> dict[Any, list[Row]]:
    """The reference kernels of updates, with room to widen a gradient of 16 bits: passes leave those narrow
    where a kernel reads them so, and there is no such kernel here."""

    def row(r: Request) -> ChosenKernel | None:
        kernel = Backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype)
        return replace(kernel, workspace=kernel.workspace + 4 * max(prod(s) for s in r.inputs))

    fused = [op for op in ALL if getattr(op, "form", "") == "fused"]
    return {op: [row] for op in (*fused, FusedUpdates)}


@contextmanager
def conditions(setting: Setting) -> Iterator[None]:
    """Inside, programs are bound and run as `setting` says."""
    found, before = backends()[setting.pipeline], registry._cpu
    count = threads.set_num_threads(setting.threads)
    registry._cpu = lambda: found  # type: ignore[assignment]
    hits = HITS.of(setting.pipeline)
    try:
        with use_engine(setting.engine), hits, rewrites.small() if setting.small else nullcontext():
            yield
    finally:
        registry._cpu = before
        threads.set_num_threads(count)


def run(network: Network, setting: Setting) -> Ran:
    """What `network` gives under `setting`."""
    with conditions(setting), mx.util.np_shape(network.zero):
        mx.random.seed(11)
        if setting.how == "module":
            return _Run(network, setting).module()
        made = _Run(network, setting)
        return {"infer": made.infer, "train": made.train, "step": made.step}[setting.how]()


def oracle(setting: Setting) -> Setting:
    """Reference kernels in float64, one operation after the other, without a budget or an update inside."""
    plain = replace(setting, pipeline="reference", dtype="float64", amp=None, loss_scale=None)
    return replace(plain, budget="none", engine="naive", threads=1)


def rough(setting: Setting) -> Setting:
    """The oracle in the types of `setting`."""
    return replace(oracle(setting), dtype=setting.dtype, amp=setting.amp, loss_scale=setting.loss_scale)


def wide(setting: Setting) -> Setting:
    """The passes of `setting` in float64, without a budget."""
    plain = replace(setting, dtype="float64", amp=None, loss_scale=None, budget="none")
    return replace(plain, how="step") if setting.how == "module" else plain  # Module is for float32


class _Run:
    def __init__(self, network: Network, setting: Setting) -> None:
        self.network, self.setting = network, setting
        self.symbol = network.symbol()
        self.numbers: Numbers = {}
        self.grain: dict[str, float] = {}
        self.data = {v.name: v.shape for v in network.variables if v.name in network.data}

    def value(self, name: str, turn: int = 0) -> np.ndarray:
        variable = next(v for v in self.network.variables if v.name == name)
        found = values(variable, self.setting.values + (turn if name in self.data else 0))
        return shaken(found, variable, self.setting) if self.setting.shake else found

    def bound(self, **how: Any) -> Any:
        """An executor with its numbers in it."""
        s = self.setting
        names = (*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states())
        how |= dict(amp=s.amp, loss_scale=s.loss_scale, type_dict=dict.fromkeys(names, s.dtype))
        if s.budget != "none":
            how["memory_budget"] = self.budget(how)
        exe = self.symbol.simple_bind(mx.cpu(), **how, **self.data)
        for name, array in {**exe.arg_dict, **exe.aux_dict}.items():
            array[:] = self.value(name)
        return exe

    def budget(self, how: dict[str, Any]) -> int:
        try:
            return int(self.symbol.memory_plan(mx.cpu(), memory_budget=1, **how, **self.data).peak_bytes)
        except mx.MemoryBudgetError as error:
            least = int(error.least_feasible_bytes)
        if self.setting.budget == "least":
            return least
        free = self.symbol.memory_plan(mx.cpu(), **how, **self.data).peak_bytes
        return (least + max(least, free)) // 2

    def heads(self, exe: Any, turn: int) -> list[Any]:
        rng = np.random.default_rng((5, turn))
        return [mx.nd.array(rng.standard_normal(o.shape), dtype=o.dtype) for o in exe.outputs]

    def note(self, what: str, arrays: Any) -> None:
        for name, array in arrays.items():
            if array is not None:
                self.numbers[f"{what} {name}"] = array.asnumpy()

    def outputs(self, what: str, exe: Any) -> None:
        self.note(what, {str(i): o for i, o in enumerate(exe.outputs)})

    def feed(self, turn: int) -> Numbers:
        return {n: self.value(n, turn) for n in self.data}

    def ran(self, exe: Any, train: bool = True) -> Ran:
        lowered = exe._planned.train if train else exe._planned.infer
        plan = exe.memory_plan
        assert exe.measured_bytes == plan.peak_bytes, (
            f"{exe.measured_bytes} bytes measured, {plan.peak_bytes} planned"
        )
        return Ran(self.numbers, tuple(t.op for t in lowered.problem.tasks), plan.peak_bytes, self.grain)

    def infer(self) -> Ran:
        """Two passes of inference, other data and other parameters in the second."""
        exe = self.bound(grad_req="null")
        exe.forward(is_train=False)
        self.outputs("output", exe)
        for name, array in exe.arg_dict.items():
            array[:] = self.value(name, 1) if name in self.data else self.value(name) * 0.75
        exe.forward(is_train=False)
        self.outputs("second output", exe)
        return self.ran(exe, False)

    def train(self) -> Ran:
        """Passes forward and backward, inference between them."""
        names = self.symbol.list_arguments()
        wanted = {v.name for v in self.network.variables if v.is_trained}
        requests = {n: self.setting.requests.get(n, "write") if n in wanted else "null" for n in names}
        exe = self.bound(grad_req=requests)
        for turn in range(self.setting.rounds):
            for name, array in self.feed(turn).items():
                if name in exe.arg_dict:
                    exe.arg_dict[name][:] = array
            exe.forward(is_train=True)
            self.outputs(f"round {turn} output", exe)
            exe.backward(self.heads(exe, turn))
            self.note(f"round {turn} gradient", exe.grad_dict)
            if turn == 0:
                exe.forward(is_train=False)
                self.outputs("inferred", exe)
        self.note("state", exe.aux_dict)
        return self.ran(exe)

    def step(self) -> Ran:
        """Steps with the update in them; the oracle's are apart, by the formulas of the field."""
        if self.setting.pipeline == "reference":
            return self.by_formula()
        exe = self.bound(optimizer=optimizer(self.setting))
        if not exe.updated:
            return self.by_formula()
        rates = [[RATE, DECAY]] * len(exe.updated)
        for turn in range(self.setting.rounds):
            exe._feed.heads(self.heads(exe, turn))
            exe.step(rates, **self.feed(turn))
            self.outputs(f"round {turn} output", exe)
        self.moved({n: exe.arg_dict[n] for n in exe.updated})
        exe.forward(is_train=False)
        self.outputs("inferred", exe)
        self.note("state", exe.aux_dict)
        return self.ran(exe)

    def moved(self, arrays: Any) -> None:
        """By how much parameters have changed."""
        for name, array in arrays.items():
            start = self.value(name).astype(array.dtype).astype(np.float64)
            end = array.asnumpy().astype(np.float64)
            self.numbers[f"moved {name}"] = (end - start) / RATE
            largest = float(np.abs((start, end)).max(initial=0.0))
            self.grain[f"moved {name}"] = (
                self.setting.rounds * ULP[np.dtype(array.dtype).name] * largest / RATE
            )

    def by_formula(self) -> Ran:
        wanted = [v.name for v in self.network.variables if v.is_trained and v.name not in self.data]
        exe = self.bound(
            grad_req={n: "write" if n in wanted else "null" for n in self.symbol.list_arguments()}
        )
        weights = {n: a for n, a in exe.arg_dict.items() if n in wanted}
        exact = {n: a.asnumpy().astype(np.float64) for n, a in weights.items()}
        states: dict[str, tuple[Any, Any]] = dict.fromkeys(exact, (0.0, 0.0))
        decay, kind = (0.0 if self.setting.how == "module" else DECAY), self.setting.optimizer
        if kind == "adam" and self.setting.how == "step":
            kind = "momentum"
        for turn in range(self.setting.rounds):
            for name, array in self.feed(turn).items():
                exe.arg_dict[name][:] = array
            exe.forward(is_train=True)
            self.outputs(f"round {turn} output", exe)
            exe.backward(self.heads(exe, turn))
            for name, weight in exact.items():
                grad = exe.grad_dict[name].asnumpy().astype(np.float64) + decay * weight
                step, states[name] = _step(kind, grad, states[name], turn + 1)
                weight += step
                weights[name][:] = weight
        self.moved(weights)
        exe.forward(is_train=False)
        self.outputs("inferred", exe)
        self.note("state", exe.aux_dict)
        return self.ran(exe)

    def module(self) -> Ran:
        """The same through Module."""
        s = self.setting
        if s.pipeline == "reference":
            return self.by_formula()
        labels = [v.name for v in self.network.variables if v.name in self.data and "label" in v.name]
        data = [n for n in self.symbol.list_arguments() if n in self.data and n not in labels]
        labels = [n for n in self.symbol.list_arguments() if n in labels]
        mod = mx.mod.Module(self.symbol, data, labels, context=mx.cpu(), amp=s.amp, loss_scale=s.loss_scale)
        given = dict(data_shapes=[(n, self.data[n]) for n in data])
        mod.bind(label_shapes=[(n, self.data[n]) for n in labels] or None, **given)
        states = set(self.symbol.list_auxiliary_states())
        rest = [n for n in self.symbol.list_inputs() if n not in self.data]
        numbers = {n: mx.nd.array(self.value(n)) for n in rest}
        mod.init_params(
            arg_params={n: a for n, a in numbers.items() if n not in states},
            aux_params={n: a for n, a in numbers.items() if n in states},
        )
        mod.init_optimizer(optimizer=optimizer(s))
        for turn in range(s.rounds):
            mod.forward_backward(self.batch(data, labels, turn))
            mod.update()
            self.note(f"round {turn} output", {str(i): o for i, o in enumerate(mod.get_outputs())})
        args, aux = mod.get_params()
        self.moved({n: a for n, a in args.items() if n not in self.data})
        mod.forward(self.batch(data, labels, s.rounds - 1), is_train=False)
        self.note("inferred", {str(i): o for i, o in enumerate(mod.get_outputs())})
        self.note("state", aux)
        return Ran(self.numbers, (), 0, self.grain)

    def batch(self, data: list[str], labels: list[str], turn: int) -> Any:
        fed = self.feed(turn)
        return mx.io.DataBatch(
            [mx.nd.array(fed[n]) for n in data], [mx.nd.array(fed[n]) for n in labels] or None
        )


def optimizer(setting: Setting) -> Any:
    """That of a setting."""
    rates = dict(learning_rate=RATE, rescale_grad=1.0)
    if setting.optimizer == "adam" and setting.how == "module":
        return mx.optimizer.Adam(epsilon=EPSILON, **rates)
    return mx.optimizer.SGD(momentum=0.0 if setting.optimizer == "sgd" else MOMENTUM, **rates)


def _step(kind: str, grad: Any, state: tuple[Any, Any], turn: int) -> tuple[Any, tuple[Any, Any]]:
    """What is added to a parameter, and the optimizer's state then."""
    if kind == "sgd":
        return -RATE * grad, state
    if kind == "momentum":
        new = MOMENTUM * state[0] - RATE * grad
        return new, (new, 0.0)
    mean, square = 0.9 * state[0] + 0.1 * grad, 0.999 * state[1] + 0.001 * grad * grad
    rate = RATE * np.sqrt(1 - 0.999**turn) / (1 - 0.9**turn)
    return -rate * mean / (np.sqrt(square) + EPSILON), (mean, square)
