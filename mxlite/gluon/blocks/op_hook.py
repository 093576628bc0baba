"""OpHook: what `HybridBlock.register_op_hook` has registered, as a monitor of bound programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...symbol import Symbol


class OpHook(NamedTuple):
    """A function of a name, an operator's name and an array, and True if it is shown inputs as well."""

    callback: Callable[..., Any]
    monitor_all: bool

    def watch(self, executor: Any, symbol: Symbol) -> None:
        """Let the executor of a symbol show it what operators compute."""
        operators = {n.name: n.op.op_name for n in symbol.graph.nodes if n.op is not None}

        def show(name: str, array: Any) -> None:
            node = name
            while node and node not in operators:  # fc1_output, bn1_running_mean
                node = node.rpartition("_")[0]
            if node:  # else a variable, which MXNet does not show
                self.callback(name, operators[node], array)

        executor.set_monitor_callback(show, self.monitor_all)
