"""Trainings killed, interrupted or with a full disk at random moments, then resumed, equal bit by bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

from mxlite.core import MXLiteError
from mxlite.module.saved import resume
from torture.allowance import Allowance, Outcome

CASES = 200
SMALL = 3
_OF_FILES = ("FileError", "MissingFileError")
LONGEST_S = 120.0  # of one training; a longer one hangs
SETTINGS = 24  # networks and optimizers
KINDS = ("kill", "write", "interrupt", "full", "read-only", "deleted")
_TREE = Path(__file__).resolve().parents[2]


class Whole(NamedTuple):
    """An uninterrupted training: the digest of its weights, the bytes of its checkpoint, its seconds."""

    digest: str
    nbytes: int
    seconds: float


class Trainings:
    """A process that forks one child for each training."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_TREE)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torture.trainings"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_TREE,
            env=environment,
        )

    def run(self, folder: Path, seed: int, stop: tuple[int, float] | None = None, fault: Any = None) -> str:
        """Train; `stop`: a signal after so many seconds. Returns "done", "killed", "hangs", or an error."""
        process, errors = self.process, folder.parent / "error"
        assert process.stdin is not None and process.stdout is not None
        errors.unlink(missing_ok=True)
        asked = {"seed": seed, "prefix": str(folder / "run"), "fault": fault, "errors": str(errors)}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        child = int(process.stdout.readline())
        hung = threading.Event()

        def end() -> None:
            hung.set()
            os.kill(child, signal.SIGKILL)

        timers = [threading.Timer(LONGEST_S, end)]
        if stop is not None:
            timers.append(threading.Timer(stop[1], _send, (child, stop[0])))
        for timer in timers:
            timer.start()
        status = int(process.stdout.readline())
        for timer in timers:
            timer.cancel()
            timer.join()
        if hung.is_set():
            return "hangs"
        if os.WIFSIGNALED(status):
            return "killed" if os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGINT) else f"signal {status}"
        return "done" if status == 0 else errors.read_text()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def _send(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        pass


def run(allowance: Allowance) -> Outcome:
    """A case is one training, stopped one to three times: SIGKILL at some time or at calls that write,
    Ctrl-C, a full disk, one that becomes read-only, a deleted folder."""
    failures: list[str] = []
    stops: Counter[str] = Counter()
    cases = 0
    trainings, whole = Trainings(), dict[int, Whole]()
    try:
        for seed in allowance:
            with TemporaryDirectory() as folder:
                try:
                    found = _case(trainings, Path(folder), seed, whole, stops)
                except OSError as error:  # raised by this process itself
                    found = [repr(error)]
            failures += [f"{line} (seed {seed})" for line in found]
            cases += 1
    finally:
        trainings.close()
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(stops.items()))
    return Outcome(cases, failures, f"stopped: {told}; each resumed to the bits of an uninterrupted run")


def _whole(trainings: Trainings, folder: Path, setting: int) -> Whole:
    folder.mkdir()
    began = monotonic()
    if (ended := trainings.run(folder, setting)) != "done":
        raise OSError(f"an uninterrupted training ended with {ended}")
    seconds = monotonic() - began
    return Whole((folder / "run.digest").read_text(), (folder / "run.resume").stat().st_size, seconds)


def _case(
    trainings: Trainings, folder: Path, seed: int, known: dict[int, Whole], stops: Counter[str]
) -> list[str]:
    draw, setting = random.Random(seed), seed % SETTINGS
    if setting not in known:
        known[setting] = _whole(trainings, folder / "whole", setting)
    whole, cut = known[setting], folder / "cut"
    cut.mkdir()
    found: list[str] = []
    for _ in range(draw.randint(1, 3)):
        kind = draw.choice(KINDS)
        stop, fault = None, None
        if kind in ("kill", "interrupt"):
            stop = (signal.SIGKILL if kind == "kill" else signal.SIGINT, draw.uniform(0, 1.1) * whole.seconds)
        elif kind == "full":
            fault = ("full", draw.randint(0, whole.nbytes))
        else:
            fault = ("kill" if kind == "write" else kind, draw.randint(1, 18))
        ended = trainings.run(cut, setting, stop, fault)
        stops[kind] += ended != "done"
        expected = {"interrupt": ("KeyboardInterrupt", "killed"), "kill": ("killed",), "write": ("killed",)}
        if ended != "done" and not ended.startswith(expected.get(kind, _OF_FILES)):
            found.append(f"{kind} {stop or fault}: the training ended with {ended}")
        elif ended.startswith(_OF_FILES) and str(cut / "run.") not in ended:
            found.append(f"{kind}: the error does not name the file: {ended}")
        cut.mkdir(exist_ok=True)
        try:
            resume.load(str(cut / "run"))
        except (MXLiteError, OSError) as error:
            found.append(f"after {kind} the last checkpoint does not load: {error}")
    if (ended := trainings.run(cut, setting)) != "done":
        return [*found, f"what was stopped could not be resumed: {ended}"]
    if (cut / "run.digest").read_text() != whole.digest:
        found.append("the resumed training has other weights")
    if left := [p.name for p in cut.iterdir() if p.name not in ("run.resume", "run.digest")]:
        found.append(f"temporary files stay: {left}")
    return found
