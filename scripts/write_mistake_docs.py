"""Run the mistakes in docs/mistakes.md and write mxlite's message after each.

The page's first ```python block is a prologue shared by all; each later one is followed by a ```text block
with what it raises or logs. They run in one empty folder, with numpy's kernels, as bytes depend on the
kernels.

python scripts/write_mistake_docs.py            writes the page
python scripts/write_mistake_docs.py --check    exits with 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mistakes.md"
sys.path[:0] = [str(ROOT)]

import mxlite as mx  # noqa: E402
from mxlite.core.errors import MXLiteError  # noqa: E402

BEGINNING = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MISTAKE = re.compile(r"^```python\n([^`]*)^```\n\n```text\n.*?^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 3
MOST_COLUMNS = 110


class Silent(Exception):
    """A mistake of the page that raises or logs nothing, or not an error of ours."""


def page() -> str:
    """The page with every message as it is now. Raises Silent."""
    text = PAGE.read_text(encoding="utf-8")
    beginning = BEGINNING.search(text)
    assert beginning is not None
    shared = compile(beginning[1], "beginning", "exec")

    def written(mistake: re.Match[str]) -> str:
        return f"```python\n{mistake[1]}```\n\n```text\n{_wrapped(said(shared, mistake[1]))}```"

    with _empty_folder(), mx.sym.NameManager():  # automatic names count from 0
        return text[: beginning.end()] + MISTAKE.sub(written, text[beginning.end() :])


def said(beginning: object, program: str) -> str:
    """Outcome of the program: its error with its class, or what it logs."""
    names: dict[str, object] = {"__name__": "mistake"}
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(f"log: {record.getMessage()}")  # type: ignore[method-assign]
    logger = logging.getLogger("mxlite")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        exec(beginning, names)  # type: ignore[call-overload]
        exec(compile(program, "mistake", "exec"), names)
    except MXLiteError as error:
        text = re.sub(r" \(called at [^)]*\)", "", str(error))
        return "\n".join([*logged, f"{type(error).__name__}: {text}"])
    except Exception as error:
        raise Silent(f"{program!r}: {type(error).__name__}: {error}") from error
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
    if not logged:
        raise Silent(f"{program!r}: nothing is said.")
    return "\n".join(logged)


def _wrapped(message: str) -> str:
    """The first lines of a message, wrapped between words."""
    import textwrap

    lines = message.splitlines()
    more = ["..."] if len(lines) > MOST_LINES else []
    folded = [part for line in lines[:MOST_LINES] for part in textwrap.wrap(line, MOST_COLUMNS)]
    return "".join(f"{line}\n" for line in [*folded, *more])


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    before, kernels = os.getcwd(), os.environ.get("MXLITE_KERNELS")
    os.environ["MXLITE_KERNELS"] = "reference"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            del os.environ["MXLITE_KERNELS"]
            if kernels is not None:
                os.environ["MXLITE_KERNELS"] = kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    written = page()
    if parser.parse_args().check:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == written else 1)
    PAGE.write_text(written, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(MISTAKE.findall(written))} mistakes")


if __name__ == "__main__":
    main()
