"""An optimizer with the states of all parameters: `updater(index, grad, weight)`."""

from __future__ import annotations

from typing import Any

from ..core.errors import FormatError
from ..core.wanted import wanted
from ..ndarray import array, NDArray
from .optimizer_base import Optimizer
from .statefile import pack_state, unpack_state


class Updater:
    """Updates weights and keeps one state per index, made at its first update.

    `states[index]` is what the optimizer's `create_state` gave: None, an NDArray, or a tuple of such.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = wanted("Updater: optimizer", optimizer, "an Optimizer", Optimizer)
        self.states: dict[Any, Any] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one weight in place, or lists of weights one by one. `index` is an int or a name."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not len(index) == len(grad) == len(weight):
            raise ValueError(
                f"One gradient and one weight for each index: got {len(index)} indices, "
                f"{len(grad)} gradients, {len(weight)} weights."
            )
        for i, g, w in zip(index, grad, weight):
            if i not in self.states:
                self.states[i] = self.optimizer.create_state_multi_precision(i, w)
            else:
                self.states[i] = _moved(self.states[i], w.context)
            self.optimizer.update_multi_precision(i, w, g, self.states[i])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """States, update counts and the learning-rate schedule's position as bytes (see statefile.py).

        With `dump_optimizer` also the optimizer's own numbers (rates, momentum, ...), which `set_states` then
        restores. Never a pickle. Waits for the states.
        """
        return pack_state(
            {
                "optimizer": type(self.optimizer).__name__.lower(),
                "progress": self.optimizer.progress(),
                "settings": self.optimizer.settings() if dump_optimizer else None,
                "states": [[index, _tree(state)] for index, state in self.states.items()],
            }
        )

    def set_states(self, states: bytes) -> None:
        """Continue from `get_states` of the same kind of optimizer: bitwise as if it had never stopped.

        FormatError if the bytes are not ours (MXNet's pickles are refused), damaged, or of another optimizer.
        Nothing is changed then.
        """
        tree = unpack_state(states, "The optimizer state")
        mine = type(self.optimizer).__name__.lower()
        if not isinstance(tree, dict) or not {"optimizer", "progress", "settings", "states"} <= set(tree):
            raise FormatError("These bytes hold a state, but not an optimizer's.")
        if tree["optimizer"] != mine:
            raise FormatError(f"The states were saved by {tree['optimizer']!r}; this optimizer is {mine!r}.")
        try:
            loaded = {index: _untree(state) for index, state in tree["states"]}
        except (TypeError, ValueError) as error:
            raise FormatError(f"The optimizer state is corrupt: {error}.") from None
        before = self.optimizer.settings()
        if tree["settings"] is not None:
            self.optimizer.set_settings(tree["settings"])
        try:
            self.optimizer.set_progress(tree["progress"])
        except FormatError:
            self.optimizer.set_settings(before)
            raise
        self.states = loaded


def get_updater(optimizer: Optimizer) -> Updater:
    """The function `updater(index, grad, weight)` that MXNet's examples and key-value stores use."""
    return Updater(optimizer)


def _moved(state: Any, context: Any) -> Any:
    """The state on the weight's device: loaded states come to the CPU."""
    if isinstance(state, NDArray):
        return state.as_in_context(context)
    return tuple(_moved(s, context) for s in state) if isinstance(state, tuple) else state


def _tree(state: Any) -> Any:
    return [_tree(s) for s in state] if isinstance(state, (tuple, list)) else state


def _untree(tree: Any) -> Any:
    if tree is None:
        return None
    if isinstance(tree, list):
        return tuple(_untree(t) for t in tree)
    return array(tree, dtype=tree.dtype)
