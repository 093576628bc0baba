"""An optimizer with the states of all parameters: `updater(index, grad, weight)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...comm import current
from ...core.disk import schema
from ...core.errors import FormatError, RangeError, StateError
from ...core.wanted import wanted
from ...ndarray import NDArray
from ...ndarray.files.stored import FileSource, StoredArray
from ..saved.shards import ArrayPart, Shard, verify
from ..saved.statefile import pack_state, stored_state
from . import states as state_trees
from .optimizer_base import Optimizer


class Updater:
    """Updates weights and keeps one state per index, made at its first update.

    `states[index]` is what the optimizer's `create_state` gave: None, an NDArray, or a tuple of such. Arrays
    of an index in `shared` are this rank's parts of arrays of the shape given there.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = wanted("Updater: optimizer", optimizer, "an Optimizer", Optimizer)
        self.states: dict[Any, Any] = {}
        self._loaded: set[Any] = set()  # states of a file that have met no weight yet
        self.shared: dict[Any, tuple[int, ...]] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one weight in place, or lists of weights one by one. `index` is an int or a name."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not len(index) == len(grad) == len(weight):
            raise RangeError(
                f"One gradient and one weight for each index: got {len(index)} indices, "
                f"{len(grad)} gradients, {len(weight)} weights."
            )
        for i, g, w in zip(index, grad, weight):
            if i not in self.states:
                self.states[i] = self.optimizer.create_state_multi_precision(i, w)
            else:
                if i in self._loaded:
                    fresh = self.optimizer.create_state_multi_precision(i, w)
                    state_trees.check(self.states[i], fresh, self.optimizer.idx2name.get(i, i))
                    self._loaded.discard(i)
                self.states[i] = _moved(self.states[i], w.context)
            self.optimizer.update_multi_precision(i, w, g, self.states[i])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """States, update counts and the learning-rate schedule's position as bytes (see statefile.py).

        With `dump_optimizer` also the optimizer's own numbers (rates, momentum, ...), which `set_states` then
        restores. Never a pickle. Waits for the states.
        """
        if self.shared:
            raise StateError(
                f"Ranks share these states: this one has a part of those of {len(self.shared)} weights. "
                f"save_optimizer_states, called on all ranks, writes all of them."
            )
        return pack_state(self.tree(dump_optimizer))

    def tree(self, dump_optimizer: bool = False) -> dict[str, Any]:
        """The content of `get_states`, with Shards where ranks share states: for a file."""
        return {
            "optimizer": type(self.optimizer).__name__.lower(),
            "progress": self.optimizer.progress(),
            "settings": self.optimizer.settings() if dump_optimizer else None,
            "master_last": self.optimizer.master_last,
            "states": [[i, _tree(state, self.shared.get(i))] for i, state in self.states.items()],
        }

    def set_states(self, states: bytes) -> None:
        """Continue from `get_states` of the same kind of optimizer: bitwise as if it had never stopped.

        FormatError if the bytes are not ours (MXNet's pickles are refused), damaged, or of another optimizer.
        Nothing is changed then. Whether a state fits its weight shows at the weight's first update, which
        raises FormatError where it does not.
        """
        wanted("The optimizer state", states, "bytes", bytes, bytearray, memoryview)
        self.take_states(stored_state(FileSource.of(states, "The optimizer state")))

    def take_states(
        self, tree: Any, into: Mapping[Any, Any] | None = None, names: Sequence[str] = ()
    ) -> None:
        """`set_states` of the tree of a file, whose arrays are read a piece at a time.

        With `into`, arrays of the states by index, their values change instead of `states`. Raises
        FormatError, naming a parameter, if one has another form in the file; nothing is changed then.
        """
        mine = type(self.optimizer).__name__.lower()
        if not isinstance(tree, dict) or not {"optimizer", "progress", "settings", "states"} <= set(tree):
            raise FormatError("These bytes hold a state, but not an optimizer's.")
        if tree["optimizer"] != mine:
            raise FormatError(f"The states were saved by {tree['optimizer']!r}; this optimizer is {mine!r}.")
        _STATES(tree["states"], "The optimizer state is corrupt: its 'states'")
        loaded = {index: _untree(state) for index, state in tree["states"]}
        if self.optimizer.master_last and not tree.get("master_last", False):
            # Written when float32 weights came first: for these optimizers only such states are tuples.
            loaded = {i: s[::-1] if isinstance(s, tuple) else s for i, s in loaded.items()}
        for index, shape in self.shared.items():
            loaded[index] = _part(loaded.get(index), shape, self.optimizer.idx2name.get(index, index))
        pairs: list[tuple[Any, Any]] = []
        for index, held in (into or {}).items():
            pairs += state_trees.pairs(loaded.get(index), held, names[index])
        verify([array for array, _ in pairs])
        read = {i: _read(s) for i, s in loaded.items()} if into is None else {}
        before = self.optimizer.settings()
        if tree["settings"] is not None:
            self.optimizer.set_settings(tree["settings"])
        try:
            self.optimizer.set_progress(tree["progress"])
        except FormatError:
            vars(self.optimizer).update(before)
            raise
        for stored, held in pairs:
            stored.copyto(held)
        if into is None:
            self.states, self._loaded = read, set(loaded)


def get_updater(optimizer: Optimizer) -> Updater:
    """The function `updater(index, grad, weight)` that MXNet's examples and key-value stores use."""
    return Updater(optimizer)


def _moved(state: Any, context: Any) -> Any:
    """The state on the weight's device: loaded states are on the CPU."""
    if isinstance(state, NDArray):
        return state.as_in_context(context)
    return tuple(_moved(s, context) for s in state) if isinstance(state, tuple) else state


def _tree(state: Any, shared: tuple[int, ...] | None = None) -> Any:
    """A state as lists; its arrays as parts of arrays of the shape `shared`, if that is given."""
    if isinstance(state, (tuple, list)):
        return [_tree(s, shared) for s in state]
    return Shard(state, shared) if isinstance(state, NDArray) and shared is not None else state


def _part(state: Any, shape: tuple[int, ...], name: Any) -> Any:
    """This rank's parts of the arrays of a state in a file. FormatError unless these are of `shape`."""
    if isinstance(state, tuple):
        return tuple(_part(s, shape, name) for s in state)
    if not isinstance(state, StoredArray):
        return state
    if state.shape != shape:
        raise FormatError(f"The optimizer state of {name!r} must be {shape}, but it is {state.shape}.")
    return ArrayPart(state, current().rank, current().size)


def _untree(tree: Any) -> Any:
    if isinstance(tree, list):
        return tuple(_untree(t) for t in tree)
    return tree


def _read(state: Any) -> Any:
    """A state with the arrays of a file read."""
    if isinstance(state, tuple):
        return tuple(_read(s) for s in state)
    return state.array() if isinstance(state, StoredArray) else state


def _state(value: Any, where: str) -> Any:
    """A state in the form that `_tree` gives; nested no deeper than a state file is."""
    if isinstance(value, list):
        return schema.several(_state)(value, where)
    if isinstance(value, StoredArray):
        return schema.array("fiubV")(value, where)
    if value is None or isinstance(value, (bool, str)):
        return value
    return schema.real()(value, where)


_STATES = schema.several(schema.row(schema.key, _state))
