"""mx.log: loggers that write one letter of the level, the time and the place in front of each line."""

from __future__ import annotations

import logging
import sys
from logging import (
    CRITICAL as CRITICAL,
    DEBUG as DEBUG,
    ERROR as ERROR,
    INFO as INFO,
    NOTSET as NOTSET,
    WARNING as WARNING,
)

_FORM = "%(letter)s%(asctime)s %(process)d %(pathname)s:%(funcName)s:%(lineno)d] %(message)s"
_LETTERS = {DEBUG: "D", INFO: "I", WARNING: "W", ERROR: "E", CRITICAL: "C"}
_COLOURS = {DEBUG: "\x1b[32m", INFO: "\x1b[32m", WARNING: "\x1b[33m", ERROR: "\x1b[31m", CRITICAL: "\x1b[31m"}
_USUAL = "\x1b[0m"


class _Formatter(logging.Formatter):
    def __init__(self, is_coloured: bool) -> None:
        super().__init__(_FORM, "%m%d %H:%M:%S")
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        record.letter = _LETTERS.get(record.levelno, "U")
        text = super().format(record)
        if not self._is_coloured:
            return text
        colour = _COLOURS.get(record.levelno, _COLOURS[DEBUG])
        head, _, rest = text.partition("] ")
        return f"{colour}{head}]{_USUAL} {rest}"


def get_logger(
    name: str | None = None, filename: str | None = None, filemode: str | None = None, level: int = WARNING
) -> logging.Logger:
    """The logger `name`, which writes lines of `level` and above to a file or, coloured, to a terminal.

    filemode: 'a', to add to the file, if it is not given. A logger has one such handler, whoever asks again.
    """
    logger = logging.getLogger(name)
    if name is not None and not any(isinstance(h.formatter, _Formatter) for h in logger.handlers):
        handler: logging.Handler
        if filename:
            handler = logging.FileHandler(filename, filemode or "a")
        else:
            handler = logging.StreamHandler()
        handler.setFormatter(_Formatter(is_coloured=not filename and sys.stderr.isatty()))
        logger.addHandler(handler)
        logger.setLevel(level)
    return logger


getLogger = get_logger
