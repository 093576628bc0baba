"""What scripts that compare mxlite with MXNet's wheel have in common."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from harness.machine import mxnet_python


def options(text: str) -> argparse.ArgumentParser:
    """A parser that knows the wheel and the folder of a page; `text` says what the script does."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--wheel", default=mxnet_python(), help="a Python with MXNet")
    parser.add_argument("--output", type=Path, help="folder of the page of the outcomes")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; an error without a wheel."""
    given = parser.parse_args()
    if not given.wheel:
        parser.error("Which Python has MXNet? Name it with --wheel or MXLITE_MXNET_PYTHON.")
    return given


def make_alias(folder: Path) -> None:
    """Make a folder for `sys.path` where `import mxnet` gives mxlite."""
    command = [sys.executable, "-m", "mxlite", "alias", "--into", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def versions(python: str) -> dict[str, str]:
    """Versions of the wheel and what it runs with."""
    show = "import mxnet, numpy, sys; print(sys.version.split()[0], numpy.__version__, mxnet.__version__)"
    found = subprocess.check_output([python, "-c", show], text=True).split()
    return dict(zip(("python", "numpy", "mxnet"), found))
