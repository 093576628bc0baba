"""The tests' exact reference solver, loaded from its file; None if ortools is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent.parent / "tests" / "memplan" / "exact_schedule.py"


def reference() -> Any:
    """The module with `solve`, or None."""
    if importlib.util.find_spec("ortools") is None:
        return None
    name = "exact_schedule"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FILE)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
