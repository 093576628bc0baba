"""Everything that only a GPU can show, in one command of less than nine minutes.

    python scripts/device_check.py --out FOLDER               on a machine with a GPU
    python scripts/device_check.py --out FOLDER --emulated    the same code on tests' emulated GPU, small

Each section runs in processes of its own with a time limit, so that a fault, a hang or a crash costs that
section alone. What was found so far is written after each, as device_check.json and device_check.md; the exit
code is 1 if anything failed, 2 where there is no GPU. --only and --skip choose sections; the last one, the benchmark, takes whatever
time is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device_sections import run_section, Section, SECTIONS

MINUTES = 8.8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(s.name for s in SECTIONS)
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the results")
    parser.add_argument("--emulated", action="store_true", help="on the emulated GPU of the tests")
    parser.add_argument("--small", action="store_true", help="small sizes (--emulated implies it)")
    parser.add_argument("--only", help=f"some of {names}, with commas between")
    parser.add_argument("--skip", default="", help="sections to leave out")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for everything")
    parser.add_argument("--section", help=argparse.SUPPRESS)  # the rest is for our own processes
    parser.add_argument("--shard", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.small = args.small or args.emulated
    if args.section:
        return run_section(args)
    known = [s.name for s in SECTIONS]
    only = args.only.split(",") if args.only else known
    for name in (*only, *filter(None, args.skip.split(","))):
        if name not in known:
            parser.error(f"there is no section {name!r}; there are {names}")
    if not args.emulated and (why := no_gpu()):
        print(f"No GPU can be used: {why}", file=sys.stderr)
        return 2
    wanted = [s for s in SECTIONS if s.name in only and s.name not in args.skip.split(",")]
    return check(wanted, args)


def no_gpu() -> str | None:
    """Why there is none, in a sentence."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from mxlite.backends.gpu.cupy_driver import why_none

    return why_none()


def check(sections: list[Section], args: argparse.Namespace) -> int:
    """Run `sections` one after the other; 1 if a check of theirs failed."""
    start = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for at, section in enumerate(sections):
        left = args.minutes * 60 - (time.monotonic() - start)
        later = sum(s.seconds for s in sections[at + 1 :] if s.least)  # what those are promised
        limit = min(section.seconds, left - min(later, 60)) if at + 1 < len(sections) else left
        began = time.monotonic()
        if limit < section.least:
            rows = [_row(section.name, "SKIP", f"{max(0, limit):.0f} s are left, {section.least} needed")]
        else:
            rows = run(section, limit, args)
        seconds = round(time.monotonic() - began, 1)
        found.append({"section": section.name, "title": section.title, "seconds": seconds, "rows": rows})
        for row in rows:
            print(f"{row['verdict']:4}  {section.name}: {row['check']}: {short(row['found'])}", flush=True)
        write(args.out, found, time.monotonic() - start, args)
    verdicts = [row["verdict"] for section in found for row in section["rows"]]
    print(
        f"{verdicts.count('PASS')} passed, {verdicts.count('FAIL')} failed, {verdicts.count('SKIP')} skipped"
    )
    return int("FAIL" in verdicts)


def run(section: Section, limit: float, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one section, from as many processes at once as it may have."""
    shards = 1 if args.emulated else section.shards
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for i in range(shards):
            rows, log = Path(folder) / f"{i}.rows", open(Path(folder) / f"{i}.log", "w+")
            command = [sys.executable, str(Path(__file__).resolve()), "--section", section.name]
            command += ["--rows", str(rows), "--shard", f"{i}/{shards}", "--out", str(args.out.resolve())]
            command += ["--seconds", f"{limit * 0.9 - 5:.0f}"]
            command += [f"--{flag}" for flag in ("emulated", "small") if getattr(args, flag)]
            # A session of its own: what it has started itself ends with it.
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **section.env},
            )  # fmt: skip
            processes.append((process, rows, log))
        end = time.monotonic() + limit
        result: list[dict[str, Any]] = []
        for i, (process, rows, log) in enumerate(processes):
            try:
                code: object = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                code = f"stopped after {limit:.0f} s"
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            own = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
            log.seek(0)
            lines = [x.strip() for x in log.read()[-4000:].splitlines() if x.strip()]
            log.close()
            if code != 0:
                which = "its process" if shards == 1 else f"process {i}"
                own.append(
                    _row(which, "FAIL", f"ended with {code}: {' / '.join(lines[-1:] + lines[-9:-1])[:1500]}")
                )
            result += own
        return result


def _row(check: str, verdict: str, found: Any) -> dict[str, Any]:
    return {"check": check, "verdict": verdict, "found": found, "seconds": 0.0}


def short(found: Any, most: int = 160) -> str:
    text = found if isinstance(found, str) else json.dumps(found, default=str)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def write(out: Path, found: list[dict[str, Any]], seconds: float, args: argparse.Namespace) -> None:
    """device_check.json with everything, device_check.md for reading."""
    about = {"date": time.strftime("%Y-%m-%d"), "seconds": round(seconds, 1), "emulated": args.emulated}
    whole = json.dumps({**about, "sections": found}, indent=1, default=str)
    (out / "device_check.json").write_text(whole + "\n", encoding="utf-8")
    where = "the tests' emulated GPU: a test of the script itself" if args.emulated else "a GPU"
    lines = ["# Device check", "", f"{about['date']}, on {where}; {seconds:.0f} s.", ""]
    for section in found:
        lines += [f"## {section['title']} ({section['seconds']} s)", ""]
        lines += ["| check | verdict | found |", "| --- | --- | --- |"]
        lines += [
            f"| {short(r['check'], 110)} | {r['verdict']} | {short(r['found'], 400)} |".replace("\\|", "|")
            for r in ({**r, "found": _cell(r["found"])} for r in section["rows"])
        ]
        lines.append("")
    (out / "device_check.md").write_text("\n".join(lines), encoding="utf-8")


def _cell(found: Any) -> str:
    return short(found, 4000).replace("|", "/")


if __name__ == "__main__":
    sys.exit(main())
