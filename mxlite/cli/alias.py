"""`mxlite alias`: `import mxnet` gives mxlite, in this environment."""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path
from typing import Any

from ..core import alias
from .words import show


def add(commands: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        "alias", help="make `import mxnet` give mxlite in this environment"
    )
    command.add_argument("--remove", action="store_true", help="take it away again")
    command.add_argument(
        "--into", metavar="FOLDER", help="a folder of sys.path (default: this Python's site-packages)"
    )
    return command


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.into or sysconfig.get_paths()["purelib"])
    if arguments.remove:
        gone = alias.remove(folder)
        show(f"removed {gone}" if gone else f"{alias.package_in(folder).parent} is not there")
    else:
        show(f"wrote {alias.write(folder)}: `import mxnet as mx` gives mxlite where {folder} is on sys.path")
    return 0
