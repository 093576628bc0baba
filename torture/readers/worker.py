"""A process that reads corrupted files within limits: python -m torture.readers.worker [NAME SEED …]

Answers each line `NAME SEED` of its input with one line of JSON. A case is limited to SECONDS of CPU time,
after which the system ends the process, and to additional address space of the file's size times TIMES plus
SPARE bytes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

SECONDS = 10
TIMES, SPARE = 20, 200 * 2**20


def main() -> int:
    warnings.simplefilter("ignore")
    name, *seeds = sys.argv[1:] or [""]
    folder = Path(mkdtemp(prefix="mxlite-readers-"))
    try:
        os.environ["MXLITE_CACHE_DIR"] = str(folder / "own-cache")
        _serve(folder, [f"{name} {seed}" for seed in seeds] or sys.stdin)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _serve(folder: Path, lines: Iterable[str]) -> None:
    import logging

    logging.disable()
    from torture.readers.kinds import READERS

    begun = set()
    for line in lines:
        name, seed = line.split()
        reader = READERS[name]
        if name not in begun:  # compile code and start thread pools with a sound file first
            begun.add(name)
            for data in reader.seeds()[:6]:
                judged(reader, data, folder / "sound", spare=2**40)
        began = time.process_time()
        data = reader.case(int(seed))
        before = time.process_time()
        verdict = judged(reader, data, folder / "case")
        ended = time.process_time()
        took = ended - before
        if took > SECONDS and verdict in ("", "refused"):
            verdict = f"took {took:.1f} s"
        print(json.dumps({"verdict": verdict, "cpu": took, "total": ended - began}), flush=True)


def judged(reader: Any, data: bytes, folder: Path, spare: int = SPARE) -> str:
    """Empty if it was read and used, "refused", or the unexpected error."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    used = int(time.process_time()) + SECONDS + 2
    resource.setrlimit(resource.RLIMIT_CPU, (used, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (taken + TIMES * len(data) + spare, resource.RLIM_INFINITY))
    try:
        reader.use(data, folder)
        return ""
    except reader.refusals as error:
        str(error)
        return "refused"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        own = [f for f in where if "/mxlite/" in f.filename] or list(where)
        last = own[-1]
        place = f"{last.filename.partition('/mxlite/')[2] or last.filename}:{last.lineno}"
        return f"{type(error).__name__}: {str(error)[:150]} at {place}"
    finally:
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
            resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
