"""Write docs/gpu_kernels.md: operators with kernels on a GPU, and those that run on the host.

python scripts/write_gpu_docs.py            writes the page
python scripts/write_gpu_docs.py --check    exits with 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gpu_kernels.md"
sys.path.insert(0, str(ROOT))

from mxlite import ops  # noqa: E402
from mxlite.backends.gpu import kernels, planning_backend  # noqa: E402

INTRO = """\
# Operators on the GPU

<!-- Made by scripts/write_gpu_docs.py from the rows of kernels: change those, then run it. -->

{count} of {all} operators have kernels in `mxlite/backends/gpu/kernels/`; a row may still leave a type or a
shape to the host. A plan (`executor.debug_str()`) names the kernel of every node: `cuda ...`, or `host: ...`
for what is copied to the host, computed there and copied back, outside of CUDA graphs. Operators with only
one of the two directions are marked.

| kernels | what they are | operators |
| --- | --- | --- |
"""


def page() -> str:
    """The page as it is now."""
    backend = planning_backend()
    device, table = backend.device, set(backend.kernels)
    lines, known = [], set()
    for full in kernels.modules():
        name, module = kernels.own_name(full), importlib.import_module(full)
        own = {op.forward_op or op for op in module.rows(device)}
        listed = sorted({op for op in ops.ALL if op in own}, key=lambda op: op.op_name)
        known |= set(listed)
        title = " ".join((module.__doc__ or "").split("\n\n")[0].split()).replace("|", "/")
        cells = ", ".join(f"`{op.op_name}`{mark(op, table)}" for op in listed)
        lines.append(f"| `{name}` | {title} | {cells} |")
    hosted = sorted(op.op_name for op in ops.ALL if op not in known)
    text = INTRO.format(count=len(known), all=len(ops.ALL)) + "\n".join(lines) + "\n"
    return text + "\n## On the host\n\n" + ", ".join(f"`{n}`" for n in hosted) + "\n"


def mark(op: Any, table: set[Any]) -> str:
    """Mark of an operator that lacks a direction."""
    if op not in table:
        return " (backward)"
    gradient = op.grad_op
    return " (forward)" if gradient is not None and gradient not in table else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    made = page()
    if parser.parse_args().check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
