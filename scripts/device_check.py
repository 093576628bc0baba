"""All checks that need a GPU, in one command of less than nine minutes.

    python scripts/device_check.py --out FOLDER               on a machine with a GPU
        python scripts/device_check.py --out FOLDER --emulated    the same code on tests' emulated GPU, small

Each section runs in its own processes with a time limit, so that a fault, a hang or a crash affects that
section alone. Results are printed at once, and written as device_check.json and device_check.md, so that an
interrupted run leaves what it has; device_check_parts has the output of each process. The exit code is 1 if
anything failed, 2 if there is no GPU. --only and --skip select sections; the last one, the benchmark, takes
whatever time is left.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # after all installed packages

from device_sections import run_section, Section, SECTIONS
from device_sections.asking import ask
from device_sections.part import Part, stop
from device_sections.result import Result, Row
from importable import bring

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 8.8
OPENING = 60  # seconds for the driver to report the number of GPUs
KEPT = 0.28  # fraction of the time reserved for later sections: the last is the benchmark
MOST_SAID = 60_000  # last bytes of a process's output that are kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(s.name for s in SECTIONS)
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the results")
    parser.add_argument("--emulated", action="store_true", help="on the emulated GPU of the tests")
    parser.add_argument("--small", action="store_true", help="small sizes (--emulated implies it)")
    parser.add_argument("--only", help=f"some of {names}, with commas between")
    parser.add_argument("--skip", default="", help="sections to leave out")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use beside what is installed")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for everything")
    parser.add_argument("--section", help=argparse.SUPPRESS)  # internal options from here on
    parser.add_argument("--shard", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.small = args.small or args.emulated
    if args.section:
        return run_section(args)
    start = time.monotonic()
    signal.signal(signal.SIGTERM, _stopped)
    known = [s.name for s in SECTIONS]
    only = args.only.split(",") if args.only else known
    for name in (*only, *filter(None, args.skip.split(","))):
        if name not in known:
            parser.error(f"there is no section {name!r}; there are {names}")
    with tempfile.TemporaryDirectory(prefix="device-check-", ignore_cleanup_errors=True) as own:
        if args.wheels is not None:
            bring(args.wheels, Path(own) / "site")
        if not args.emulated and (why := no_cache()):
            print(f"{why}: what is compiled is kept for this run alone", flush=True)
            os.environ["MXLITE_CACHE_DIR"] = str(Path(own) / "cache")
        if not args.emulated and (why := no_gpu()):
            for name, value in machine().items():
                print(f"{name}: {value}", flush=True)
            print(f"No GPU can be used: {why}", file=sys.stderr)
            return 2
        wanted = [s for s in SECTIONS if s.name in only and s.name not in args.skip.split(",")]
        return check(wanted, args, start)


def no_cache() -> str | None:
    """Reason why the user's cache cannot be used, so that each process would compile for itself; or None."""
    code = "from mxlite.core import config; from mxlite.core.disk import kept\n"
    code += "found = kept.fault(), config.cache_dir()\n"
    code += "print(found[0] or ('' if found[1] else 'there is no cache folder'))"
    asked = ask([sys.executable, "-c", code], OPENING, ROOT)
    return asked.out.strip() or None


def no_gpu() -> str | None:
    """Reason why there is no GPU, or None. Found out in a separate process: the driver may hang."""
    code = "from mxlite.backends.gpu.runtime.cupy_driver import why_none; print(why_none() or '')"
    asked = ask([sys.executable, "-c", code], OPENING, ROOT)
    if asked.code is None:
        return f"the driver has not said within {OPENING} s how many there are."
    if asked.code:
        return f"asking for it {asked.end}"
    return asked.out.strip() or None


def machine() -> dict[str, str]:
    """Facts about the machine that are known without opening the device."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    facts = "name,driver_version,memory.total,memory.used,compute_mode"
    try:
        asked = ask(["nvidia-smi", f"--query-gpu={facts}", "--format=csv,noheader"], 15)
        found["nvidia-smi"] = asked.end if asked.code is None else (asked.out or asked.err).strip()
    except OSError as error:
        found["nvidia-smi"] = str(error)
    return found


def _stopped(number: int, frame: object) -> None:
    """Handler of signals that end the program, such as that of `timeout`: raises what Ctrl+C does."""
    raise KeyboardInterrupt(f"signal {number}")


def check(sections: list[Section], args: argparse.Namespace, start: float | None = None) -> int:
    """Run `sections` in order; 1 if one of their checks failed. `start`: time of the program's start.

    Every error, of this function too, becomes a row, and later sections still run.
    """
    start = time.monotonic() if start is None else start
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "device_check.log").unlink(missing_ok=True)
    result = Result(args.out, args.emulated, machine())
    try:
        for at, section in enumerate(sections):
            left = args.minutes * 60 - (time.monotonic() - start)
            later = sum(s.seconds for s in sections[at + 1 :] if s.least)  # reserved for those
            limit = (
                min(section.seconds, left - min(later, KEPT * args.minutes * 60))
                if at + 1 < len(sections)
                else left
            )
            result.begin(section)
            if limit < section.least:
                found = f"{max(0, limit):.0f} s are left, {section.least} needed"
                result.add({"check": section.name, "verdict": "SKIP", "found": found, "seconds": 0.0})
                continue
            try:
                for row in rows_of(section, limit, args):
                    result.add(row)
            except Exception as error:
                traceback.print_exc()
                found = f"{type(error).__name__}: {error}"
                result.add({"check": "this script", "verdict": "FAIL", "found": found, "seconds": 0.0})
            result.write()
    except KeyboardInterrupt as error:
        found = f"somebody has stopped it: {error or 'Ctrl+C'}"
        result.add({"check": "this script", "verdict": "FAIL", "found": found, "seconds": 0.0})
    result.write()
    counts = result.counts()
    print(", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
    return int(counts["failed"] > 0)


def rows_of(section: Section, limit: float, args: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one section as they arrive, from as many parallel processes as it may have."""
    with tempfile.TemporaryDirectory(prefix="device-check-", ignore_cleanup_errors=True) as folder:
        shards = 1 if args.emulated else section.shards
        paths = [Path(folder) / f"{section.name}-{i}" for i in range(shards)]
        try:
            yield from _rows(section, limit, args, paths)
        finally:
            _keep(args.out / "device_check.log", paths)


def _rows(section: Section, limit: float, args: argparse.Namespace, paths: Sequence[Path]) -> Iterator[Row]:
    shards = len(paths)
    parts = [Part(section, f"{i}/{shards}", limit, args, path) for i, path in enumerate(paths)]
    end = time.monotonic() + limit
    try:
        while any(p.is_running for p in parts) and time.monotonic() < end:
            time.sleep(0.1)
            for part in parts:
                yield from part.new_rows()
    finally:
        stop(parts)
    for part in parts:
        yield from part.new_rows()
        if part.code:
            which = "its process" if shards == 1 else f"process {part.shard}"
            yield {"check": which, "verdict": "FAIL", "found": part.end(limit), "seconds": 0.0}


def _keep(log: Path, paths: Sequence[Path]) -> None:
    """Append the end of the output of a section's processes to `log`."""
    try:
        with open(log, "a", encoding="utf-8") as file:
            for path in paths:
                said = path.with_suffix(".log")
                text = said.read_text(errors="replace")[-MOST_SAID:] if said.exists() else ""
                file.write(f"==== {path.name}\n{text}\n")
    except OSError as error:
        print(f"{log.name} cannot be written: {error}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
