"""`mx.mon.Monitor`: statistics of outputs, weights and gradients of a network during training."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import sqrt
from typing import Any

from ...core import StateError
from ...core.log import Log
from ...core.wanted import wanted, wanted_function, whole
from ...ndarray import NDArray, norm

_log = Log(__name__)


def root_mean_square(array: NDArray) -> NDArray:
    """The root of the mean square of all elements, (1,)."""
    return norm(array) / sqrt(array.size)


class Monitor:
    """Every `interval` batches, `stat_func(array)` of each array whose name `pattern` matches from its start.

        monitor = mx.mon.Monitor(100, pattern=".*weight|.*output")
        module.fit(..., monitor=monitor)            # or install, then tic and toc_print around each batch

    Names are those of arguments, of states, `fc1_output` for what nodes give, `bn1_mean` and `bn1_var` (1 /
    std) for the statistics of BatchNorm, `fc1_backward_output1` for the gradient of what fc1 reads in second
    place; with `monitor_all` also `fc1_data` for what nodes read, `relu1_input0` where MXNet has no name for
    it.
    MXNet also lists gradients that nobody asked for, such as those of the data and the label, whose arrays
    hold no gradient there; they are not listed here.
    stat_func gives an NDArray or a list of them; by default the root of the mean square. `sort`: by name,
    instead of in the order of the network.

    Watched arrays are kept in memory for as long as the monitor is installed, and the plan counts them, so a
    selective pattern is cheaper than a general one.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.interval = whole("Monitor: interval", interval, 1)
        self.stat_func = (
            root_mean_square if stat_func is None else wanted_function("Monitor: stat_func", stat_func)
        )
        self.re_prog = re.compile(
            wanted("Monitor: pattern", pattern, "a regular expression", str, re.Pattern)
        )
        self.sort = sort
        self.monitor_all = monitor_all
        self.activated = False
        self.step = 0
        self.exes: list[Any] = []
        self.queue: list[tuple[int, str, Any]] = []

    def install(self, exe: Any) -> None:
        """Watch an executor, which is planned anew for that. A module has install_monitor."""
        wanted("Monitor.install: exe", exe, "an Executor", has=("set_monitor_callback",))
        exe.set_monitor_callback(self.stat_helper, self.monitor_all, self.re_prog.pattern)
        if exe not in self.exes:
            self.exes.append(exe)

    def stat_helper(self, name: str, array: NDArray) -> None:
        """Callback of executors: record the statistic if this batch counts."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def tic(self) -> None:
        """Call before a batch: starts recording if it is an `interval`-th one."""
        if self.step % self.interval == 0:
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """Call after a batch: (its number from 1, name, numbers as text) for each; [] if it did not count."""
        if not self.activated:
            return []
        for exe in self.exes:
            for name, array in (*exe.arg_dict.items(), *exe.aux_dict.items()):
                self.stat_helper(name, array)
        self.activated = False
        queue, self.queue = self.queue, []
        if self.sort:
            queue.sort(key=lambda entry: entry[1])
        return [(step, name, _text(name, stat)) for step, name, stat in queue]

    def toc_print(self) -> None:
        """Log the result of `toc`."""
        for step, name, text in self.toc():
            _log.info("Batch: %7d %-30s %s", step, name, text)


def _text(name: str, stat: Any) -> str:
    """Each number or array, followed by a tab."""
    values = stat if isinstance(stat, list) else [stat]
    if wrong := [v for v in values if not isinstance(v, NDArray)]:
        raise StateError(
            f"Monitor: stat_func gave {type(wrong[0]).__name__} for {name!r}, not an NDArray or several."
        )
    arrays = [v.asnumpy() for v in values]
    return "".join(f"{a[0] if a.shape == (1,) else a}\t" for a in arrays)
