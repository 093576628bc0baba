"""Networks of 45 families, exported by PyTorch's two exporters to ONNX, imported and trained by mxlite.

    python benchmarks/onnx_zoo.py                  writes results/<date>-onnx-zoo.md
    python benchmarks/onnx_zoo.py --only REGEX     prints only

The list is that of tests/formats/torch/modules: small networks, one a family, with small inputs. Nothing is
timed. The exit status is 1 if fewer than 30 networks train from the files of either exporter.
"""

from __future__ import annotations

import argparse
import copy
import functools
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import heading, markdown, RESULTS
from harness.machine import write_page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import onnx
import onnxscript
import torch

from mxlite import MXLiteError
from tests.formats.onnx_peer import newer, older, settled, trained_as
from tests.formats.torch.modules import LIST

MOST = 1e-4  # the largest error of what trains
WANTED = 30
COLUMNS: dict[str, Callable[..., Any]] = {
    "older, opset 8": functools.partial(older, opset=8),
    "older, opset 10": functools.partial(older, opset=10),
    "older, opset 17": older,
    "newer": newer,
}
JUDGED = ("older, opset 17", "newer")

ABOUT = f"""\
Each cell: the nodes of the file, and the largest error beside PyTorch of the outputs, of the gradients of all
parameters for random gradients of the outputs, and of the outputs after a step of gradient descent, in
float32, relative to the largest number (of a gradient at least a tenth of the largest of all). A network
trains where this is at most {MOST:.0e}; "-": the exporter refuses. Before opset 11 a bilinear interpolation
has other places than PyTorch's, and a file never has `detach`, `padding_idx` or the numbers drawn.

"""


def cell(name: str, export: Callable[..., Any]) -> tuple[str, bool, bool]:
    """What to show, whether mxlite refuses the file, and whether it trains."""
    module, inputs = settled(name)
    try:
        model = export(copy.deepcopy(module), inputs)
    except Exception:  # of many kinds: PyTorch's exporters raise what they like
        return "-", False, False
    try:
        worst = max(trained_as(module, inputs, model))
    except MXLiteError as error:
        return f"refused: {str(error).splitlines()[0][:80]}", True, False
    except AssertionError:
        return f"{len(model.graph.node)}: a parameter is not in the file", False, False
    return f"{len(model.graph.node)}: {worst:.0e}", False, worst <= MOST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="regular expression of names; prints only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _keep_registry()
    rows, trains, refused = [], dict.fromkeys(COLUMNS, 0), 0
    for name in LIST:
        if re.search(options.only, name):
            cells = [cell(name, export) for export in COLUMNS.values()]
            rows.append([name, *(shown for shown, _, _ in cells)])
            refused += sum(no for _, no, _ in cells)
            for column, (_, _, yes) in zip(COLUMNS, cells):
                trains[column] += yes
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    versions = {p.__name__: p.__version__ for p in (torch, onnx, onnxscript)}
    text = heading("Networks by way of ONNX", versions, "in the same process") + "\n" + ABOUT
    text += "".join(f"- {column}: {n} of {len(rows)} train\n" for column, n in trains.items())
    text += f"- files that mxlite refuses: {refused}\n\n" + markdown(("network", *COLUMNS), rows)
    write_page(text, None if options.only else RESULTS, "onnx-zoo")
    return int(min(trains[c] for c in JUDGED) < min(WANTED, len(rows)))


def _keep_registry() -> None:
    """The newer exporter parses the source of some 500 functions at each export: here once."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))


if __name__ == "__main__":
    sys.exit(main())
