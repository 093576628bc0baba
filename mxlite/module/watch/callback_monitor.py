"""A callback that watches a module: what `_exec_group.execs[0].set_monitor_callback` installs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...ndarray import NDArray


class CallbackMonitor:
    """Monitor that lets `callback(name, array)` see the executors of a module, whichever runs."""

    def __init__(self, callback: Callable[[str, NDArray], Any], watch: Any) -> None:
        self.callback = callback
        self.re_prog = re.compile(watch.pattern)
        self.monitor_all = watch.inputs

    def install(self, exe: Any) -> None:
        """Show that executor to the callback, as to a Monitor."""
        exe.set_monitor_callback(self.callback, self.monitor_all, self.re_prog.pattern)
