"""Roles of a symbol's arguments in a module: fed by batches, held as states, or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core import BindError, nearest
from ..core.wanted import wanted_names


@dataclass(frozen=True)
class ArgumentNames:
    """Names by role: batches feed `data` and `label`, `states` keep what they are given, all others are
    `parameters`; the `fixed` ones are not trained.
    """

    data: list[str]
    label: list[str]
    states: list[str]
    fixed: list[str]
    parameters: list[str]

    @classmethod
    def of(
        cls,
        symbol: Any,
        data: Sequence[str],
        label: Sequence[str] | None,
        states: Sequence[str] | None,
        fixed: Sequence[str] | None,
    ) -> ArgumentNames:
        """The arguments of `symbol`, by names in the form that Module takes; labels that it lacks are left
        out.

        Raises ArgumentError if those are no names, BindError if they are none of its arguments.
        """
        arguments = symbol.list_arguments()
        data = wanted_names("Module: data_names", data)
        label = [n for n in wanted_names("Module: label_names", label) if n in arguments]
        fixed = wanted_names("Module: fixed_param_names", fixed)
        states = wanted_names("Module: state_names", states)
        for kind, names in (("data_names", data), ("fixed_param_names", fixed), ("state_names", states)):
            for n in names:
                if n not in arguments:
                    raise BindError(
                        f"Module: {kind} has {n!r}, which is no argument of the network."
                        f"{nearest(n, arguments) or f' It has {arguments[:12]}.'}"
                    )
        inputs = {*data, *label, *states}
        return cls(data, label, states, fixed, [n for n in arguments if n not in inputs])
