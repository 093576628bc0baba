"""Write docs/operators.md from the declarations in mxlite/ops and the first row of each in the tests' table.

python scripts/write_operator_docs.py            writes the page
python scripts/write_operator_docs.py --check    exits with 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from math import prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "operators.md"
sys.path[:0] = [str(ROOT)]

from mxlite import ops  # noqa: E402
from mxlite.backends.cpu.kernels import table  # noqa: E402
from mxlite.graph.opdef import Op  # noqa: E402
from tests.conformance.cases import CASES  # noqa: E402
from tests.conformance.conformance import Call  # noqa: E402

INTRO = """\
# Operators

<!-- Made by scripts/write_operator_docs.py from the operators' declarations: change those, then run it. -->

All {count} operators, by the file that declares them. Each is `mx.sym.NAME` and `mx.nd.NAME` (names that
begin with `_contrib_`, `_linalg_`, `_random_`, `_sample_` are also in `contrib`, `linalg` and `random`
there); names that begin with another underscore are what Python's operators and mxlite itself use.
`help(mx.sym.NAME)` tells shapes, formulas and sources in full.

- **inputs → outputs**: *italic* inputs are states that the operator changes; outputs in brackets are hidden,
  made only for backward. `...` stands for any number.
- **backward keeps**: the arrays that stay alive until backward, beside the gradients that arrive. *nothing*
  where the gradient needs none or *is* the arriving one; a dash where there is no gradient at all.
- **in place**: what may be written over what; the planner decides whether it is.
- **again**: whether the gradient can be differentiated again (`autograd.grad(create_graph=True)`).
- **example**: shapes of one call, its floating-point operations forward / backward, bytes read and written in
  forward, and scratch forward / backward in float32. Planning counts the same for yours.

## Types

Arrays of one call must have one type, unless the table or the operator's help says otherwise (indices,
labels, statistics of 16-bit data in float32); two that differ are a `DTypeError` that names both,
never a silent conversion. `Cast` (`astype`) converts, `amp_multicast` brings several to one. Numbers take
the type of the array they meet: `int32_array + 1.5` adds 1. float16 and bfloat16 are summed up in float32.
Comparisons answer in the type of what they compare (0 or 1), as in MXNet; `logical_*` of bool arrays answers
in bool.

An axis may have length 0, and an array no axes. Where a user writes a *shape*, 0 means "to be found out", as
in MXNet's programs, unless `mx.util.np_shape()` is active. Reductions over all axes give shape (1,).

"""


def page() -> str:
    rows = {}
    for case in CASES.values():
        rows.setdefault(case.op, case)
    parts = [INTRO.format(count=len(ops.ALL))]
    for family in ops.FAMILIES:
        declared = [op for op in ops.ALL if op.__module__ == family.__name__]
        if not declared:
            continue
        title = inspect.cleandoc(family.__doc__ or "").split("\n")[0].rstrip(".:")
        parts.append(f"## {family.__name__.rpartition('.')[2]}\n\n{title}.\n\n")
        head = (
            "operator", "inputs → outputs", "parameters", "backward keeps", "in place", "again",
            "example", "kernels",
        )  # fmt: skip
        parts.append("| " + " | ".join(head) + " |\n|" + " --- |" * len(head) + "\n")
        for op in declared:
            cells = (
                names(op), arrays(op), parameters(op), kept(op), in_place(op), again(op),
                example(op, rows[op]), kernels(op),
            )  # fmt: skip
            parts.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def names(op: type[Op]) -> str:
    return "<br>".join(f"`{n}`" for n in (op.op_name, *op.aliases))


def arrays(op: type[Op]) -> str:
    ins = [f"{op.variadic}..."] if op.variadic else [f"*{i}*" if _changed(op, i) else i for i in op.inputs]
    outs = [f"{op.variadic_outputs}..."] if op.variadic_outputs else list(op.outputs)
    if op.hidden and not op.variadic_outputs:
        hidden = outs[len(outs) - op.hidden :]
        outs = [*outs[: len(outs) - op.hidden], "[" + ", ".join(hidden) + "]"]
    return f"{', '.join(ins) or 'none'} → {', '.join(outs) or 'none'}"


def _changed(op: type[Op], name: str) -> bool:
    return name in op.mutates or name in op.aux or name in op.backward_mutates


def parameters(op: type[Op]) -> str:
    shown = []
    for field in dataclasses.fields(op.Attrs):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if op.variadic and field.name == "num_args":
            continue
        shown.append(field.name if required else f"{field.name}={field.default!r}")
    return ", ".join(shown)


def kept(op: type[Op]) -> str:
    if op.grad_op is None:
        return "nothing" if op.gradient_is else "-"
    needs = [n for n in op.grad_op.signature.needs if not n.startswith("d_")]
    return ", ".join(needs) or "nothing"


def in_place(op: type[Op]) -> str:
    def pairs(options: Any) -> list[str]:
        return [f"{k}←{'/'.join((v,) if isinstance(v, str) else v)}" for k, v in options.items()]

    return ", ".join(pairs(op.in_place) + pairs(op.backward_in_place))


def again(op: type[Op]) -> str:
    if op.grad_op is None and not op.gradient_is:
        return ""
    return "yes" if op.derivative is not None or op.grad_op is None else "no"


def example(op: type[Op], case: Any) -> str:
    kind = "float32" if case.dtype == "float64" else case.dtype
    call = Call.of(case, dtype=kind)
    ins, outs = call.shapes
    first = call.dtypes[0][0] if ins else call.dtypes[1][0]
    nbytes = sum(prod(s) * d.itemsize for s, d in zip((*ins, *outs), (*call.dtypes[0], *call.dtypes[1])))
    forward, scratch = op.flops(call.attrs, ins, outs), op.workspace(call.attrs, ins, outs, first)
    if op.grad_op is not None:
        backward = str(op.backward_flops(call.attrs, ins, outs))
        more = str(op.backward_workspace(call.attrs, ins, outs, first))
    else:
        backward = more = "-"
    shapes = " ".join("x".join(map(str, s)) or "()" for s in ins) or "none"
    return f"{shapes}: {forward} / {backward} flops, {nbytes} B, scratch {scratch} / {more} B"


def kernels(op: type[Op]) -> str:
    rows = [row for o in (op, op.grad_op) if o is not None for row in table().get(o, ())]
    return ", ".join(["reference", *sorted({kind for row in rows for kind in row.kinds})])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(ops.ALL)} operators")


if __name__ == "__main__":
    main()
