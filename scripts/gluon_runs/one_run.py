"""Runs one program in this process, with mxlite or with the wheel, and keeps its losses.

python -m gluon_runs.one_run FILE LOSSES DRAWS KEEP STEPS ARGUMENT ...     as gluon_programs.py starts it

LOSSES gets a JSON line for each backward pass: the sum of the means of its heads. FILE is a program, or a
page of the tutorials: then its cells of Python run one after the other, and an array that a cell ends with
counts as well. After STEPS backward passes (0: any number) the program is stopped.
"""

from __future__ import annotations

import ast
import importlib
import json
import random
import re
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
from mxnet_suites import stand_ins

from . import third_party
from .draws import Draws

_CELL = re.compile(r"^```\{?\.?python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class _Enough(BaseException):
    """The program has made as many steps as were asked for."""


class _Losses:
    """Writes a line for each backward pass."""

    def __init__(self, mx, file: Path, steps: int) -> None:
        self._out, self._steps, self._inside = open(file, "w", buffering=1), steps, False
        self.count = 0
        mx.nd.NDArray.backward = self._watched(mx.nd.NDArray.backward)
        mx.autograd.backward = self._watched(mx.autograd.backward)

    def say(self, heads) -> None:
        """Keep the sum of the means of these arrays."""
        print(json.dumps(sum(float(h.asnumpy().astype("float64").mean()) for h in heads)), file=self._out)

    def _watched(self, backward):
        def run(heads, *args, **kwargs):
            if self._inside:
                return backward(heads, *args, **kwargs)
            if self._steps and self.count == self._steps:
                raise _Enough
            self._inside = True
            try:
                backward(heads, *args, **kwargs)
            finally:
                self._inside = False
            self.count += 1
            self.say(heads if isinstance(heads, (list, tuple)) else [heads])

        return run


def _cells(file: Path, losses: _Losses) -> None:
    """Run the cells of a page, as a notebook does, up to one that wants a network of the web."""
    names = {"__name__": "__main__"}
    for number, text in enumerate(_CELL.findall(file.read_text())):
        if "pretrained=True" in text:
            return
        text = re.sub(r"^(\s*)[!%].*", r"\1pass", text, flags=re.MULTILINE)
        tree = ast.parse(text, f"cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            if hasattr(value, "asnumpy"):
                losses.say([value])


def _local(mx) -> None:
    """Files stay as they are, whatever their hash; every device is the CPU; nothing is fetched."""
    mx.gpu = lambda number=0: mx.cpu(number)
    vars(mx.context)["gpu"] = mx.gpu
    if mx.__name__ == "mxnet":
        for name in ("utils", "data.vision.datasets", "contrib.data.text"):
            importlib.import_module(f"mxnet.gluon.{name}").check_sha1 = lambda *_: True
    digits = mx.io.MNISTIter
    mx.io.MNISTIter = lambda *_, **options: digits(*_, **options | {"shuffle": False})  # the orders differ
    mx.test_utils.get_mnist_ubyte = mx.test_utils.get_cifar10 = lambda *_, **__: None


def main() -> None:
    file, losses, draws, keep, steps, *arguments = sys.argv[1:]
    file = Path(file)
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(file.parent))
    for folder in (file.parent.parent, file.parent.parent.parent):
        sys.path.append(str(folder))
    stand_ins.install()
    third_party.install()
    import mxnet as mx

    _local(mx)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    mx.random.seed(7)
    drawn = Draws(Path(draws), keep == "1")
    drawn.install(mx)
    record = _Losses(mx, Path(losses), int(steps))
    sys.argv = [str(file), *arguments]
    try:
        if file.suffix == ".md":
            _cells(file, record)
        else:
            runpy.run_path(str(file), run_name="__main__")
    except _Enough:
        pass
    mx.nd.waitall()
    drawn.write()
    print("finished")


if __name__ == "__main__":
    main()
