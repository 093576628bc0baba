"""Bytes that each operator saves for its backward pass, compared with what PyTorch saves.

    python benchmarks/kept.py            writes results/<date>-kept.md
    python benchmarks/kept.py --quick    prints only

Rows are those of tests/conformance/cases.py that name a function of PyTorch, in float32 (float64 if the
function requires it), with a long axis 0.
Nothing is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from harness import heading, markdown, RESULTS
from harness.machine import today

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mxlite.core.dtype import is_floating
from mxlite.core.errors import MXLiteError
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call

ELEMENTS = 20_000

ABOUT = """\
Kept: bytes of the distinct arrays, inputs and outputs included, that must live until backward for the
gradients of all floating inputs. mxlite: what the operator's backward names. PyTorch: what
`saved_tensors_hooks` is given. Both count an array once. "calls" is how many differentiable calls PyTorch
makes for it: only rows with one compare like with like; of the others mxlite's is one operator where PyTorch
composes several.

"""


@dataclass(frozen=True)
class Kept:
    row: str
    op: str
    ours: int
    theirs: int
    calls: int


def measure(row: str, case: Any) -> Kept | None:
    """Saved bytes of both; None if they are not comparable. In float64 if PyTorch's function requires it."""
    op = case.op
    if case.torch is None or op.is_loss or case.dtype != "float64" or not case.shapes:
        return None
    if op.grad_op is None and not op.gradient_is:
        return None
    for kind in ("float32", "float64"):
        for call in calls_of(case, kind):
            try:
                return compare(row, case, call)
            except RuntimeError:  # from PyTorch: unsupported types or shapes
                continue
    raise RuntimeError(f"{row}: PyTorch refuses its own function.")


def compare(row: str, case: Any, call: Call) -> Kept | None:
    import torch

    op = case.op
    names, kinds = call.names()[0], call.dtypes[0]
    rng = np.random.default_rng(0)
    arrays = [
        np.asarray(case.make[n](rng, s) if n in case.make else rng.standard_normal(s)).astype(d)
        for n, s, d in zip(names, call.shapes[0], kinds)
    ]
    tensors = [torch.tensor(x, requires_grad=is_floating(x.dtype)) for x in arrays]
    saved: dict[int, int] = {}

    def pack(t: Any) -> Any:
        storage = t.untyped_storage()
        whole = storage.nbytes()
        saved[storage.data_ptr()] = max(saved.get(storage.data_ptr(), 0), min(whole, t.numel() * t.itemsize))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = case.torch(call.attrs, *tensors)
    outs = list(result) if isinstance(result, tuple | list) else [result]
    if not any(t.requires_grad for t in outs):
        return None
    needs = op.grad_op.input_names(call.attrs) if op.grad_op is not None else ()
    layout = call.layout()
    ours = sum(prod(layout[n][0]) * layout[n][1].itemsize for n in needs if not n.startswith("d_"))
    return Kept(row, op.op_name, ours, sum(saved.values()), calls(outs))


def calls_of(case: Any, kind: str) -> Iterator[Call]:
    """The row with axis 0 made long, and unchanged if that does not fit."""
    first = case.shapes[0]
    if first and prod(first):
        factor = max(1, -(-ELEMENTS // prod(first)))
        names = case.op.input_names(case.parsed)
        shapes = [
            (s[0] * factor, *s[1:]) if s and s[0] == first[0] and n not in case.op.inferred else tuple(s)
            for n, s in zip(names, case.shapes)
        ]
        with suppress(MXLiteError):
            yield Call.of(case, shapes, dtype=kind)
    yield Call.of(case, dtype=kind)


def calls(outs: list[Any]) -> int:
    """Number of nodes of PyTorch's graph that lead to `outs`, leaves not counted."""
    seen: set[Any] = set()
    stack = [t.grad_fn for t in outs if t.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in seen or type(node).__name__ == "AccumulateGrad":
            continue
        seen.add(node)
        stack += [n for n, _ in node.next_functions if n is not None]
    return len(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    import torch

    found = [k for name, case in CASES.items() if (k := measure(name, case)) is not None]
    single = [k for k in found if k.calls == 1]
    text = (
        heading("Bytes kept for backward", {"torch": torch.__version__}, "in the same process") + "\n" + ABOUT
    )
    for title, rows in (
        ("One call in PyTorch", single),
        ("Several calls in PyTorch", [k for k in found if k.calls > 1]),
    ):
        less = sorted({k.op for k in rows if k.ours < k.theirs})
        more = [k for k in rows if k.ours > k.theirs]
        text += (
            f"## {title}\n\n{len(rows)} rows of {len({k.op for k in rows})} operators: mxlite keeps less in "
        )
        text += f"{sum(k.ours < k.theirs for k in rows)} rows ({len(less)} operators), as much in "
        text += f"{sum(k.ours == k.theirs for k in rows)}, more in {len(more)}.\n\n"
        text += markdown(
            ("row", "operator", "mxlite B", "PyTorch B", "ratio", "calls"),
            [(k.row, k.op, f"{k.ours:,}", f"{k.theirs:,}", ratio(k), k.calls) for k in rows],
        )
        text += "\n"
    print(text)
    if not options.quick:
        (RESULTS / f"{today()}-kept.md").write_text(text, encoding="utf-8")


def ratio(k: Kept) -> str:
    if k.ours == k.theirs:
        return "1"
    return f"{k.ours / k.theirs:.2f}" if k.theirs else "only mxlite"


if __name__ == "__main__":
    main()
