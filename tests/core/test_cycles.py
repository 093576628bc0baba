"""No file of mxlite imports another that imports it, by whatever way, inside functions too."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import mxlite

ROOT = Path(mxlite.__file__).parent

# Text is read by patterns, since the syntax trees of all files would take half a minute.
FOR_ANNOTATIONS = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)
IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
NAME = re.compile(r"(\w+)(?: as \w+)?")


def modules() -> dict[str, Path]:
    """The modules of mxlite by their dotted names."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if path.name == "__init__.py" else parts)] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a module imports by relative imports, the only ones that mxlite has of itself."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for dots, module, names in IMPORT.findall(FOR_ANNOTATIONS.sub("", path.read_text())):
        start = package.split(".")[: package.count(".") + 2 - len(dots)]
        base = ".".join([*start, module] if module else start)
        given = NAME.findall(re.sub(r"#.*", "", names))
        found |= {full if (full := f"{base}.{a}") in known else base for a in given}
    if path.name == "__init__.py":  # a package gathers what is inside
        found = {m for m in found if not m.startswith(f"{name}.")}
    return found - {name}


def test_there_is_no_import_cycle():
    known = modules()
    graph = {name: imported(name, path, known) for name, path in known.items()}
    assert "mxlite.ndarray.ndarray" in graph["mxlite.ndarray.operators.creation"]
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle
