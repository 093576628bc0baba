"""Loggers of mxlite's modules, below `mxlite`.

`logging.info` gives the root logger a handler if it has none, and a later call of
`logging.basicConfig(level=logging.INFO)` then has no effect. So mxlite does not call it. But MXNet's programs
count on that handler when they only call `logging.getLogger().setLevel(logging.INFO)`: if a level lets a line
through that no handler would show, one is added.
"""

from __future__ import annotations

import logging
from typing import Any


class Log:
    """The part of `logging.Logger` that writers of log lines use."""

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(name)

    def debug(self, text: str, *args: Any) -> None:
        """Log a line for debugging."""
        self._write(logging.DEBUG, text, args)

    def info(self, text: str, *args: Any) -> None:
        """Log a line about progress."""
        self._write(logging.INFO, text, args)

    def warning(self, text: str, *args: Any) -> None:
        """Log a line that the user should read."""
        self._write(logging.WARNING, text, args)

    def error(self, text: str, *args: Any) -> None:
        """Log a line about a failure."""
        self._write(logging.ERROR, text, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logger, name)

    def _write(self, level: int, text: str, args: tuple[Any, ...]) -> None:
        if not self.logger.isEnabledFor(level):
            return
        if level < logging.WARNING and not self.logger.hasHandlers():
            logging.basicConfig()  # warnings are shown without
        self.logger.log(level, text, *args, stacklevel=3)


_modules = Log("mxlite.module")


def logger_of(logger: Any) -> Any:
    """The logger meant by `logger=`: MXNet's default is the module `logging`, which means the usual one."""
    return _modules if logger is logging or logger is None else logger
