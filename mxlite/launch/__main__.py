"""Runs a program as a rank of a job, or starts the job first: python -m mxlite.launch [-n RANKS] PROGRAM
[ARG …]

    python -m mxlite.launch -n 4 train.py --epochs 3                4 ranks on this machine, by its mpiexec
    mpiexec -n 4 python -m mxlite.launch train.py --epochs 3        the same; mpirun and srun likewise

An exception in one rank ends all of them, and so does exit with another status than 0.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..comm import Communicator, join
from ..core import config
from ..core.errors import MissingFileError, MXLiteError
from . import job


def main(given: Sequence[str] | None = None) -> None:
    """The command."""
    try:
        asked = _asked(given)
        comm = join()
    except MXLiteError as error:
        sys.exit(f"mxlite.launch: {error}")
    _run(comm, asked.program, asked.arguments)


def _asked(given: Sequence[str] | None) -> argparse.Namespace:
    """The program to be run, and its arguments. Does not return where the job is still to be started."""
    parser = argparse.ArgumentParser(
        prog="python -m mxlite.launch",
        description="Runs a Python program as a rank of a job; with -n it starts the job on this machine.",
    )
    parser.add_argument("-n", "--ranks", type=_ranks, help="start so many ranks with mpiexec")
    parser.add_argument("program", help="the Python file to be run by every rank")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    asked = parser.parse_args(given)
    if not Path(asked.program).is_file():
        raise MissingFileError(f"There is no file {asked.program!r} to run.")
    if asked.ranks is not None and not config.is_rank():
        _start(asked.ranks, [asked.program, *asked.arguments])
    return asked


def _ranks(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"a number from 1 to 4096, not {text!r}")
    return int(text)


def _start(ranks: int, command: Sequence[str]) -> None:
    """Run mpiexec, the one installed beside this Python if there is one. Does not return."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise MXLiteError(
            "There is no mpiexec to start ranks with. Install it with: pip install 'mxlite[mpi]'"
        )
    line = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mxlite.launch", *command]
    if not hasattr(os, "pidfd_open"):  # it is a system whose processes cannot be watched
        os.execv(mpiexec, line)
    sys.exit(job.run(line, ranks))


def _run(comm: Communicator, program: str, arguments: Sequence[str]) -> None:
    """Run `program` as `python program` would, as a rank of the job."""
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0) and comm.size > 1:
            what = f"rank {comm.rank} ended by sys.exit({end.code!r}) in step {comm.step}. The job ends."
            print(f"mxlite: {what}", file=sys.stderr, flush=True)
            comm.abort(end.code if isinstance(end.code, int) else 1)
        raise


if __name__ == "__main__":
    main()
