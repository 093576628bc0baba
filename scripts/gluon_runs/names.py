"""Lists the public names of Gluon in this process, with their signatures, as JSON.

python -m gluon_runs.names own|all     as gluon_names.py starts it, for the wheel and for mxlite
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path

MODULES = """
    gluon gluon.nn gluon.rnn gluon.loss gluon.data gluon.data.vision gluon.data.vision.transforms
    gluon.utils gluon.model_zoo.vision gluon.contrib.nn gluon.contrib.data
    gluon.contrib.data.text
""".split()


def _signature(value) -> list | None:
    """Names and defaults of what a function takes by position or name, then "*" if it takes any number
    more; None if Python does not know.
    """
    try:
        found = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    plain = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY, p.KEYWORD_ONLY)]
    named = [(p.name, None if p.default is p.empty else _text(p.default)) for p in plain if p.name != "self"]
    return named + [("*", None) for p in found if p.kind == p.VAR_POSITIONAL]


def _text(default) -> str:
    """A default as text, with ~ for the home folder, and without addresses."""
    return re.sub(r" at 0x\w+", "", repr(default)).replace(str(Path.home()), "~").replace("mxlite.", "mxnet.")


def names(own_methods: bool) -> dict[str, list | None]:
    """Dotted name -> signature, of functions, classes (what they are made with) and their methods: those that
    the class itself defines, or those that it inherits as well.
    """
    found: dict[str, list | None] = {}
    for place in MODULES:
        module = importlib.import_module(f"mxnet.{place}")
        own = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        for name in own:
            value = getattr(module, name, None)
            if not getattr(value, "__module__", "").startswith(("mxnet.gluon", "mxlite.")):
                continue
            if inspect.isclass(value):
                found[f"{place}.{name}"] = _signature(value.__init__)
                for method in vars(value) if own_methods else dir(value):
                    inner = inspect.getattr_static(value, method)
                    if not method.startswith("_"):
                        found[f"{place}.{name}.{method}"] = (
                            _signature(inner) if inspect.isfunction(inner) else None
                        )
            elif inspect.isfunction(value):
                found[f"{place}.{name}"] = _signature(value)
    return found


if __name__ == "__main__":
    print(json.dumps(names(sys.argv[1] == "own")))
