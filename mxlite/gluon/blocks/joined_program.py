"""Joined programs: a network, its loss and its trainer's update, bound as one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TYPE_CHECKING

from ...executor import BindRequest, simple_bind
from ...graph import state_name
from ...module.optim import states
from ...ndarray import NDArray
from ...symbol import BlockGrad, Group, MakeLoss, Symbol, Variable
from .nested import flat, nested

if TYPE_CHECKING:
    from .deferred_call import DeferredCall


class JoinedProgram:
    """The executor of a step like that of `call`. The optimizer's states are those of the trainer's updater.

    `rule`: the update inside; for another one, another program is made.
    """

    def __init__(self, call: DeferredCall) -> None:
        assert call.loss is not None
        trainer = call.trainer
        self._trainer = trainer
        self.rule = trainer.optimizer.update_rule()
        self.loss = call.loss[0]
        self._held = call.held
        self._trained = {n: p for n, p in call.parameters.items() if p.grad_req != "null"}
        symbol = _joined(call)
        given = [*zip(call.trace.inputs, call.inputs), *zip(_labels(call), call.labels)]
        names = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
        arrays = {n: a for n, a in (*given, *call.held.items()) if n in names}
        types = {n: a.dtype for n, a in arrays.items()}
        self._number = {n: trainer.number_of(p) for n, p in self._trained.items()}
        for name, i in self._number.items():
            have = list(_flat(trainer.updater.states.get(i)))
            if len(have) == len(self.rule.states) and all(isinstance(a, NDArray) for a in have):
                arrays |= {state_name(name, s): a for s, a in zip(self.rule.states, have)}
        request = BindRequest(
            symbol.graph,
            call.context,
            {n: a.shape for n, a in given if n in names},
            grad_req={n: "write" if n in self._trained else "null" for n in symbol.list_arguments()},
            type_dict=types,
            optimizer=trainer.optimizer,
            **call.calls.options,
        )
        self.executor = simple_bind(request, arrays=arrays)
        self._states = states.of_fused_step(self.executor, trainer.optimizer, self._number)
        self._numbers = tuple(self._number[n] for n in self.executor.updated)

    def serves(self, call: DeferredCall) -> bool:
        """True if a step like that of `call` is this one."""
        assert call.loss is not None
        trained = {n for n, p in call.parameters.items() if p.grad_req != "null"}
        return (
            call.loss[0] is self.loss
            and call.trainer is self._trainer
            and trained == self._trained.keys()
            and all(call.held[n] is a for n, a in self._held.items())
            and self.rule == call.trainer.optimizer.update_rule()
        )

    def step(self) -> list[NDArray]:
        """Run a step; the loss and the outputs of the network."""
        have = self._trainer.updater.states
        for name, i in self._number.items():
            mine = self._states[i]
            if i in have:
                for old, new in states.pairs(have[i], mine, name) if have[i] is not mine else ():
                    if old is not new:
                        old.copyto(new)
            have[i] = mine
        optimizer = self._trainer.optimizer
        rows = optimizer.hypers(self._numbers)
        return self.executor.step(rows if rows.ndim == 2 else rows.reshape(-1, self.rule.rates))


def _labels(call: DeferredCall) -> list[str]:
    return [f"label{i}" for i in range(len(call.labels))]


def _joined(call: DeferredCall) -> Symbol:
    """The symbol of the loss of a network's outputs, and of these."""
    assert call.loss is not None
    calls, key, _ = call.loss
    labels = map(Variable, _labels(call))
    outputs = list(call.trace.symbol)
    given = [next(labels) if place is None else outputs[place] for place in call.places]
    (loss,), _ = flat(calls.block.composed(*nested(given, key[1])))
    return Group([MakeLoss(loss), *map(BlockGrad, outputs)])


def _flat(state: Any) -> Iterator[Any]:
    """The arrays of a parameter's state, in the order of the rule's."""
    if isinstance(state, (tuple, list)):
        for part in state:
            yield from _flat(part)
    elif state is not None:
        yield state
