"""Corrections of files from older versions of MXNet, applied node by node while a file is read.

Versions are numbers: major * 10000 + minor * 100 + patch. A file without a version is from 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph import Entry, Op
from .attribute import HIDDEN
from .compose import created_input
from .json_writer import VERSION

OLDEST = 800


def move_hidden_keys(
    attrs: Mapping[str, str], op: type[Op] | None, inputs: Sequence[Entry], version: int
) -> dict[str, str]:
    """Before 1.9.1: `lr_mult` becomes `__lr_mult__`; on an operator, `weight_lr_mult` goes to that input.

    It stays where it is if there is no such input, or the input is not a variable.
    """
    if version >= VERSION:
        return dict(attrs)
    known = dict(zip(op.inputs, inputs)) if op is not None else {}
    kept: dict[str, str] = {}
    for key, value in attrs.items():
        hidden = next((h for h in HIDDEN if key == h or key.endswith(f"_{h}")), None)
        if hidden is None:
            kept[key] = value
        elif key == hidden:
            kept[f"__{key}__"] = value
        else:
            entry = known.get(key.removesuffix(f"_{hidden}"))
            if entry is not None and entry.node.op is None:
                entry.node.annotations[f"__{hidden}__"] = value
            else:
                kept[key] = value
    return kept


def missing_inputs(
    op: type[Op],
    name: str,
    names: Sequence[str],
    inputs: list[Entry],
    given: Mapping[str, str],
    annotations: Mapping[str, str],
    version: int,
) -> list[Entry]:
    """Before 0.9.0 auxiliary states were not stored: the trailing inputs are created."""
    if version >= 900:
        return inputs
    return inputs + [created_input(op, name, key, given, annotations) for key in names[len(inputs) :]]


def set_initial_values(op: type[Op], names: Sequence[str], inputs: Sequence[Entry], version: int) -> None:
    """Before 0.9.4 variables did not say how their operator wants them initialized."""
    if version >= 904 or not op.initial:
        return
    for key, entry in zip(names, inputs):
        if key in op.initial and entry.node.op is None:
            entry.node.annotations.setdefault("__init__", op.initial[key])


def without_changed_defaults(given: dict[str, str], op: type[Op], version: int) -> dict[str, str]:
    """Before 0.9.5 `axis=-1` of argmax and argmin meant all axes."""
    if version < 905 and op.op_name in ("argmax", "argmin") and given.get("axis") == "-1":
        return {k: v for k, v in given.items() if k != "axis"}
    return given
