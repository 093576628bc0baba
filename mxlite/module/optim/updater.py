"""An optimizer with the states of all parameters: `updater(index, grad, weight)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.disk import schema
from ...core.errors import FormatError, RangeError
from ...core.wanted import wanted
from ...ndarray import NDArray
from ...ndarray.files.stored import FileSource, StoredArray
from ..saved.statefile import Packed, stored_state
from . import states as state_trees
from .optimizer_base import Optimizer


class Updater:
    """Updates weights and keeps one state per index, made at its first update.

    `states[index]` is what the optimizer's `create_state` gave: None, an NDArray, or a tuple of such. `part`
    is (rank, ranks) where the states are parts that this rank keeps of those of large weights.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = wanted("Updater: optimizer", optimizer, "an Optimizer", Optimizer)
        self.states: dict[Any, Any] = {}
        self._loaded: set[Any] = set()  # states of a file that have met no weight yet
        self.part: tuple[int, int] | None = None

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
        return b"".join(self.packed(dump_optimizer).pieces())

    def packed(self, dump_optimizer: bool = False) -> Packed:
        """The result of `get_states`, a piece at a time: for a file."""
        part = {} if self.part is None else {"part": [*self.part]}
        return Packed(
            part
            | {
                "optimizer": type(self.optimizer).__name__.lower(),
                "progress": self.optimizer.progress(),
                "settings": self.optimizer.settings() if dump_optimizer else None,
                "master_last": self.optimizer.master_last,
                "states": [[index, _tree(state)] for index, state in self.states.items()],
            }
        )

    def set_states(self, states: bytes) -> None:
        """Continue from `get_states` of the same kind of optimizer: bitwise as if it had never stopped.

        FormatError if the bytes are not ours (MXNet's pickles are refused), damaged, or of another optimizer.
        Nothing is changed then. Whether a state fits its weight shows at the weight's first update, which
        raises FormatError where it does not.
        """
        wanted("The optimizer state", states, "bytes", bytes, bytearray, memoryview)
        self.take_states(FileSource.of(states, "The optimizer state"))

    def take_states(
        self, source: FileSource, into: Mapping[Any, Any] | None = None, names: Sequence[str] = ()
    ) -> None:
        """`set_states` of bytes in a file, which are read a piece at a time.

        With `into`, arrays of the states by index, their values change instead of `states`. Raises
        FormatError, naming a parameter, if one has another form in the file; nothing is changed then.
        """
        tree = stored_state(source)
        mine = type(self.optimizer).__name__.lower()
        if not isinstance(tree, dict) or not {"optimizer", "progress", "settings", "states"} <= set(tree):
            raise FormatError("These bytes hold a state, but not an optimizer's.")
        if tree["optimizer"] != mine:
            raise FormatError(f"The states were saved by {tree['optimizer']!r}; this optimizer is {mine!r}.")
        _STATES(tree["states"], "The optimizer state is corrupt: its 'states'")
        if tree.get("part") != (None if self.part is None else [*self.part]):
            raise FormatError(
                f"The file has {_in_words(tree.get('part'))}, but wanted are {_in_words(self.part)}. Each "
                f"rank saves its own and takes its own back; with Module(shard='none') all keep whole states."
            )
        loaded = {index: _untree(state) for index, state in tree["states"]}
        if self.optimizer.master_last and not tree.get("master_last", False):
            # Written when float32 weights came first: for these optimizers only such states are tuples.
            loaded = {i: s[::-1] if isinstance(s, tuple) else s for i, s in loaded.items()}
        pairs: list[tuple[Any, Any]] = []
        for index, held in (into or {}).items():
            pairs += state_trees.pairs(loaded.get(index), held, names[index])
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
            self.states, self._loaded = {i: _read(s) for i, s in loaded.items()}, set(loaded)


def _in_words(part: Any) -> str:
    """The content of a file of states, or the one wanted."""
    if part is None:
        return "the whole states of the optimizer"
    own = [*part] if isinstance(part, tuple) else part
    _PART(own, "The optimizer state is corrupt: its 'part'")
    return f"the parts of states that rank {own[0]} of {own[1]} keeps"


def get_updater(optimizer: Optimizer) -> Updater:
    """The function `updater(index, grad, weight)` that MXNet's examples and key-value stores use."""
    return Updater(optimizer)


def _moved(state: Any, context: Any) -> Any:
    """The state on the weight's device: loaded states are on the CPU."""
    if isinstance(state, NDArray):
        return state.as_in_context(context)
    return tuple(_moved(s, context) for s in state) if isinstance(state, tuple) else state


def _tree(state: Any) -> Any:
    return [_tree(s) for s in state] if isinstance(state, (tuple, list)) else state


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


_PART = schema.row(schema.whole(), schema.whole(1))
_STATES = schema.several(schema.row(schema.key, _state))
