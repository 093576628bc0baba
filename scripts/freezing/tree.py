"""An imported checkout of mxlite: the one place that names its internals."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace


def internals(tree: Path) -> SimpleNamespace:
    """All internals of mxlite and of its tests that the script uses, in this one place.

    If a refactoring moves something, add the new place next to the old: the same script records both trees.
    """
    tests = tree / "tests"
    needed = [next(iter(sorted(tests.rglob(name))), None) for name in ("cases.py", "conformance.py")]
    folders = [p.parent for p in needed if p] + sorted({p.parent for p in tests.rglob("*.py")})
    sys.path[:0] = [str(tree)]
    sys.path += dict.fromkeys(map(str, folders))
    import mxlite

    assert Path(mxlite.__file__).is_relative_to(tree), f"{mxlite.__file__} is not in {tree}"
    conformance = import_module("conformance")
    return SimpleNamespace(
        mx=mxlite,
        cases=import_module("cases").CASES,
        call=conformance.Call.of,
        takes=conformance.takes,
        operators=conformance.operators,  # the operator and its gradient
        stages=conformance.stages,  # those, with inputs to run on
        kernels_of=conformance.kernels_of,
        planning_backend=import_module("mxlite.backends.gpu").planning_backend,
        backend=import_module("mxlite.backends").Backend,
        gpu_table=import_module("mxlite.backends.gpu.kernels").table,
        emulated_device=import_module("emulated_device").EmulatedDevice,
    )
