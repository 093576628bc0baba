"""Run the commands in docs/tools.md and write their output after them.

A ```console block holds lines `$ python -m mxlite ...`, each followed by its output; all run in one empty
folder, with numpy's kernels (MXLITE_KERNELS=reference), as a plan's bytes depend on the available kernels.

python scripts/write_tool_docs.py            writes the page
python scripts/write_tool_docs.py --check    exits with 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tools.md"
sys.path[:0] = [str(ROOT)]

from mxlite.cli import main as mxlite  # noqa: E402

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ python -m mxlite "
SURROUNDINGS = {"MXLITE_KERNELS": "reference", "COLUMNS": "100"}  # on every machine and terminal


def page() -> str:
    """The page with every output as it is now."""
    here, before = os.getcwd(), {name: os.environ.get(name) for name in SURROUNDINGS}
    os.environ.update(SURROUNDINGS)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(lambda m: f"```console\n{_run(m[1])}```", PAGE.read_text(encoding="utf-8"))
        finally:
            os.chdir(here)
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def _run(block: str) -> str:
    """The block's commands, each with its output."""
    lines: list[str] = []
    for line in block.splitlines():
        if not line.startswith(PROMPT):
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = mxlite(shlex.split(line.removeprefix(PROMPT)))
        lines.append(line)
        lines += [printed.rstrip() for printed in output.getvalue().splitlines()]
        if code:
            lines.append(f"[exit code {code}]")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    written = page()
    if parser.parse_args().check:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == written else 1)
    PAGE.write_text(written, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {written.count(PROMPT)} commands")


if __name__ == "__main__":
    main()
