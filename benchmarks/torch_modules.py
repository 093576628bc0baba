"""Modules of PyTorch of 45 families, imported and trained by mxlite beside PyTorch.

    python benchmarks/torch_modules.py            writes results/<date>-torch-modules.md
    python benchmarks/torch_modules.py --quick    prints only

The list is that of tests/formats/torch/modules: small modules, one a family. Nothing is timed. The exit
status is 1 unless all hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from harness import heading, markdown, RESULTS
from harness.machine import write_page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from mxlite import MXLiteError
from tests.formats.torch.modules import LIST, NETWORKS
from tests.formats.torch.peer import beside, names_kept, trained

SEED = 7
STEPS = 5
MOST = 1e-4  # the largest error of a gradient, relative to the parameter's largest

ABOUT = f"""\
Gradient: the largest difference from PyTorch's gradient, relative to the largest number of that parameter's
gradient (at least a tenth of the largest of all gradients), over all parameters, in float32, at equal
parameters and inputs, for random gradients of the outputs. Loss: PyTorch's at the first and the last of
{STEPS} steps of gradient descent with momentum, and the largest difference of mxlite's over these steps,
relative to PyTorch's (at least 1). Names: every parameter and moving average has its name in `state_dict`.

"""


class Row(NamedTuple):
    """A module beside PyTorch; `failure` says why it is not."""

    name: str
    parameters: int = 0
    gradient: float = 0.0
    names: bool = False
    losses: tuple[tuple[float, float], ...] = ()
    failure: str = ""

    @property
    def apart(self) -> float:
        """The largest difference of the losses."""
        return max(abs(a - b) / max(abs(b), 1) for a, b in self.losses)

    @property
    def holds(self) -> bool:
        return not self.failure and self.names and self.gradient <= MOST and self.apart <= MOST

    def cells(self) -> tuple[object, ...]:
        if self.failure:
            return (self.name, "", "", "", "", "", self.failure.split("\n")[0])
        first, last = self.losses[0][1], self.losses[-1][1]
        losses = (f"{first:.4f} to {last:.4f}", f"{self.apart:.1e}")
        kept = "kept" if self.names else "not kept"
        return (self.name, f"{self.parameters:,}", f"{self.gradient:.1e}", *losses, kept, "")


def measure(name: str) -> Row:
    torch.manual_seed(SEED)
    module, inputs = NETWORKS[name]()
    try:
        found = beside(module, inputs)
        losses = trained(module, inputs, STEPS)
    except (MXLiteError, AssertionError) as error:
        return Row(name, failure=f"{type(error).__name__}: {error}")
    return Row(
        name,
        sum(p.numel() for p in module.parameters()),
        max(found.gradients.values()),
        names_kept(module, found.args, found.aux),
        tuple(losses),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rows = [measure(name) for name in LIST]
    held = sum(row.holds for row in rows)
    worst = max((row.gradient for row in rows if not row.failure), default=0.0)
    columns = ("module", "parameters", "gradient", "loss", "apart", "names", "failure")
    text = heading("Modules of PyTorch", {"torch": torch.__version__}, "in the same process") + "\n" + ABOUT
    text += (
        f"{held} of {len(rows)} hold: errors of at most {MOST:.0e} and names kept. The largest error of a "
    )
    text += f"gradient is {worst:.1e}.\n\n" + markdown(columns, [row.cells() for row in rows])
    write_page(text, None if options.quick else RESULTS, "torch-modules")
    return 0 if held == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
