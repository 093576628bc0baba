"""The command line: commands, and errors as one line."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from ..core.errors import MXLiteError, PlanError
from . import alias, diff, doctor, explain, fit_batch, frontier, plan, tune
from .words import show

COMMANDS = (plan, frontier, fit_batch, explain, diff, doctor, tune, alias)
LONGEST_MESSAGE = 800  # characters; names in it come out of files

_LONG_WORD = re.compile(r"\S{160,}")  # a name, perhaps a malicious one

BAD = 2  # exit code of bad usage or input
STOPPED = 130  # as shells have it for Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. `argv` are the arguments without the program's name."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said why, or printed the help
        return stop.code if isinstance(stop.code, int) else BAD
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # names may have what a terminal has no letters for
            sys.stdout.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = _warn
            code: int = arguments.run(arguments)
            if sys.stdout is not None:  # closed by whoever started this
                sys.stdout.flush()
            return code
    except BrokenPipeError:  # as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BAD
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        if arguments.traceback:
            traceback.print_exc()
        return _say(error)


def _say(error: Exception) -> int:
    """Print what went wrong as one line of text."""
    if isinstance(error, OSError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    elif isinstance(error, MXLiteError) and not isinstance(error, PlanError):
        text = str(error)
    else:
        kind = type(error).__name__
        text = f"{kind}: {error}. A bug in mxlite, or a file made to break it; --traceback shows where."
    text = _LONG_WORD.sub(lambda word: f"{word[0][:60]}...{word[0][-20:]}", " ".join(text.split()))
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[:LONGEST_MESSAGE]}..."
    show(f"mxlite: error: {text}", aside=True)
    return BAD


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    show(f"mxlite: warning: {' '.join(str(message).split())}", aside=True)


def _parser() -> argparse.ArgumentParser:
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog="mxlite",
        description="What a training step takes in memory, before anything is allocated.",
        epilog="Exit code: 0 it fits, 1 it does not, 2 bad usage or input.",
    )
    parser.add_argument("--version", action="version", version=f"mxlite {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        command = module.add(commands)
        command.set_defaults(run=module.run)
        command.add_argument("--traceback", action="store_true", help="show where an error arose")
    return parser
