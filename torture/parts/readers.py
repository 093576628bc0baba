"""corrupted files in 10 s and 20 x file + 200 MB: errors of mxlite's own, or a usable result

Readers: see torture/readers/kinds/. `python -m torture.readers.worker READER SEED` reproduces one case.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from torture.allowance import Allowance, Outcome

CASES = 1_000_000
SMALL = 48
PATIENCE = 90  # seconds by the wall clock, on a busy machine
STRETCH = 200  # cases of a reader before the turn of the one that has had the least time
_TREE = Path(__file__).resolve().parents[2]
CHEAP = ("arrays", "csv", "libsvm", "mnist", "timings", "embedding")  # some cases of these run in `make test`


class Worker:
    """A process of `torture.readers.worker`; restarted if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = TemporaryDirectory(prefix="mxlite-readers-", ignore_cleanup_errors=True)

    def judge(self, reader: str, seed: int) -> dict:
        """Result of the case: `verdict`, `cpu` seconds of reading, and `total` ones with making the file."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{reader} {seed}\n".encode())
            process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._line(process)
        if answer is None:
            process.kill()
            with process:  # closes the pipes
                status = process.wait()
            self._process = None
            ended = "was still at it" if status == -9 else f"ended the process with status {status}"
            verdict = f"{ended} after {PATIENCE} s or less"
            return {"verdict": verdict, "cpu": 0.0, "total": 0.0, "late": status == -9}
        return answer

    def close(self) -> None:
        """End the process, and delete its files."""
        if self._process is not None:
            self._process.communicate()
            self._process = None
        self._folder.cleanup()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = {
                **os.environ,
                "PYTHONPATH": str(_TREE),
                "TMPDIR": self._folder.name,
                "OMP_NUM_THREADS": "1",
                "MALLOC_ARENA_MAX": "1",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", "torture.readers.worker"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        return self._process

    @staticmethod
    def _line(process: subprocess.Popen[bytes]) -> dict | None:
        """The next answer; None if it does not come."""
        assert process.stdout is not None
        text, ends = b"", monotonic() + PATIENCE
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(ends - monotonic(), 0))
            piece = process.stdout.read(65536) if ready else b""
            if not piece:
                return None
            text += piece
        return json.loads(text)


def run(allowance: Allowance, readers: Sequence[str] = ()) -> Outcome:
    """Run cases of the readers, as much time for each; in a short run only those of the cheap ones."""
    if not readers:
        from torture.readers.kinds import READERS

        readers = CHEAP if allowance.cases <= SMALL else tuple(READERS)
    stretch = max(1, min(STRETCH, allowance.cases // len(readers)))
    worker = Worker()
    counts: Counter[str] = Counter()
    read: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    slowest, seen, failures = 0.0, set(), []
    name = ""
    try:
        for number, seed in enumerate(allowance):
            if number % stretch == 0:
                name = min(readers, key=lambda each: cpu[each])
            answer = worker.judge(name, seed)
            if answer.get("late"):  # or the machine stalled: only repeated timeouts count
                answer = worker.judge(name, seed)
            counts[name] += 1
            cpu[name] += answer["total"]
            slowest = max(slowest, answer["cpu"])
            verdict = answer["verdict"]
            if verdict in ("", "refused"):
                read[name] += not verdict
                continue
            where = verdict.rpartition(" at ")[2]
            if (name, where) not in seen:  # one line per place in the code
                seen.add((name, where))
                failures.append(f"{name} {seed}: {verdict}")
    finally:
        worker.close()
    each = ", ".join(f"{n} {counts[n]} ({read[n]} read, {cpu[n]:.0f} s)" for n in readers)
    return Outcome(sum(counts.values()), failures, f"{each}; slowest {slowest:.1f} s")
