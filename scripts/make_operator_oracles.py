"""Record MXNet 1.9.1's results for each row of tests/conformance/cases.py in
tests/golden/mxnet/operators.npz.

    python scripts/make_operator_oracles.py --mxnet PYTHON_WITH_MXNET_1.9.1

A process of MXNet computes a range of rows and writes each result at once; where it crashes, the row is
recorded and another process continues after it. Random operators and large rows are left out. Everything is
float32 where the row is float64. Names in the file's index: `row|in_<input>`, `row|head<i>`, `row|out<i>`,
`row|d_<input>`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 1500  # elements of all arrays of a row

# Program of the workers, which run under MXNet's Python with numpy and mxnet only.
WORKER = r"""
import json, os, sys
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import numpy as np, mxnet as mx
folder, start = sys.argv[1], int(sys.argv[2])
rows = json.load(open(folder + "/rows.json"))
for number in range(start, len(rows)):
    row = rows[number]
    open(folder + "/at", "w").write(str(number))
    data = dict(np.load(folder + "/%d.in.npz" % number))
    result = {}
    try:
        if row["mutates"] or "_update" in row["op"]:
            # An optimizer's step: called at once, and its states looked at afterwards.
            call = getattr(mx.nd, row["op"], None) or getattr(mx.nd._internal, row["op"], None)
            if call is None:
                raise AttributeError("MXNet has no " + row["op"])
            arrays = [mx.nd.array(data["in_" + n], dtype=data["in_" + n].dtype) for n in row["inputs"]]
            given = dict(row["attrs"])
            for k, v in given.items():
                if v[0] == "(":
                    given[k] = tuple(map(float, v[1:-1].split(",")))
            if "num_weights" in given:
                given["num_weights"] = int(given["num_weights"])
                each = len(arrays) // given["num_weights"] if "preloaded" not in row["op"] else (
                    len(arrays) - 2) // given["num_weights"]
                given["out"] = [mx.nd.zeros_like(arrays[i * each]) for i in range(given["num_weights"])]
            made = call(*arrays, **given)
            made = made if isinstance(made, list) else [made]
            result = {"out%d" % i: out.asnumpy() for i, out in enumerate(made)}
            for n in row["mutates"]:
                result["after_" + n] = arrays[row["inputs"].index(n)].asnumpy()
            np.savez(folder + "/%d.out.npz" % number, **result)
            continue
        make = getattr(mx.sym, row["op"], None) or getattr(mx.symbol._internal, row["op"], None)
        for place in ("linalg", "contrib", "image"):
            if row["op"].startswith("_" + place + "_"):
                make = getattr(getattr(mx.sym, place), row["op"][len(place) + 2:], make)
        if make is None:
            raise AttributeError("MXNet has no " + row["op"])
        names = row["inputs"]
        variables = [mx.sym.Variable("in_" + n) for n in names]
        if row["variadic"]:
            net = make(*variables, **row["attrs"])
        else:
            net = make(**dict(zip(names, variables)), **row["attrs"])
        arrays = {"in_" + n: mx.nd.array(data["in_" + n], dtype=data["in_" + n].dtype) for n in names}
        args, states = net.list_arguments(), net.list_auxiliary_states()
        if set(args) | set(states) != set(arrays):
            raise ValueError("inputs are %s %s" % (args, states))
        floating = [n for n in args if data[n].dtype.kind == "f"]
        grads = {n: mx.nd.zeros(arrays[n].shape, dtype=arrays[n].dtype) for n in floating}
        train = row["train"] and row["gradient"]
        exe = net.bind(mx.cpu(), {n: arrays[n] for n in args}, args_grad=grads if train else None,
                       grad_req={n: "write" if n in grads and train else "null" for n in args},
                       aux_states={n: arrays[n] for n in states})
        outs = exe.forward(is_train=row["train"])
        heads = []
        rng = np.random.RandomState(5)
        for i, out in enumerate(outs):
            value = out.asnumpy()
            result["out%d" % i] = value
            head = rng.standard_normal(value.shape).astype(value.dtype)
            result["head%d" % i] = head
            heads.append(mx.nd.array(head, dtype=head.dtype))
        if train and all(v.dtype.kind == "f" for k, v in result.items() if k.startswith("out")):
            try:
                exe.backward(heads)
                for n in floating:
                    if n[3:] in row["gradient"]:
                        result["d_" + n[3:]] = exe.grad_dict[n].asnumpy()
            except Exception as error:
                result = {k: v for k, v in result.items() if not k.startswith("d_")}
                print(row["name"], "backward:", str(error).split("\n")[0][:160], flush=True)
    except Exception as error:
        print(row["name"], ":", str(error).split("\n")[0][:160], flush=True)
        continue
    np.savez(folder + "/%d.out.npz" % number, **result)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mxnet", required=True, help="a Python that has MXNet 1.9.1")
    parser.add_argument("--show", action="store_true", help="print what MXNet refused")
    parser.add_argument("--missing", action="store_true", help="keep the rows that are there; ask for others")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT)]
    from mxlite.graph.attrs import attr_text
    from tests.conformance.cases import CASES
    from tests.conformance.conformance_peers import stored_rows

    with tempfile.TemporaryDirectory() as folder:
        rows, kept = [], stored_rows() if options.missing else {}
        for name, case in CASES.items():
            op, attrs = case.op, case.parsed
            kind = "float32" if case.dtype == "float64" else case.dtype
            arrays = case.inputs(dtype=kind)
            if (
                case.mxnet is not True
                or name in kept
                or op.draws(attrs, case.train)
                or sum(x.size for x in arrays) > LARGEST
                or not case.shapes
            ):
                continue
            if any(x.dtype.name == "bfloat16" or not x.size for x in arrays):
                continue
            inputs = op.input_names(attrs)
            makes = [n[2:] for n in op.grad_op.output_names(attrs)] if op.grad_op else []
            makes += [n for n in inputs if op.gradient_is.get(op.variadic or n)]
            counted = bool(op.variadic) and "multi" not in op.op_name
            rows.append(
                dict(
                    name=name, op=op.op_name, inputs=list(inputs), variadic=bool(op.variadic),
                    attrs={k: attr_text(v) for k, v in case.attrs.items() if k != "num_args" or counted},
                    train=case.train, gradient=makes, mutates=list(op.mutated(attrs)),
                )
            )  # fmt: skip
            np.savez(f"{folder}/{len(rows) - 1}.in.npz", **{"in_" + n: x for n, x in zip(inputs, arrays)})
        Path(folder, "rows.json").write_text(json.dumps(rows))
        run(options.mxnet, folder, len(rows), options.show)
        found = {f"{name}|{k}": x for name, arrays in kept.items() for k, x in arrays.items()}
        for number, row in enumerate(rows):
            made = Path(folder, f"{number}.out.npz")
            if made.exists():
                for file in (made, Path(folder, f"{number}.in.npz")):
                    with np.load(file) as arrays:
                        if sum(arrays[k].size for k in arrays.files) <= LARGEST * 2:
                            found |= {f"{row['name']}|{k}": arrays[k] for k in arrays.files}
    target = ROOT / "tests/golden/mxnet/operators.npz"
    save(target, found)
    done = len({k.rpartition("|")[0] for k in found})
    print(f"{done} rows, {len(rows)} of them asked for now, {target.stat().st_size:,} bytes")


def save(target: Path, found: dict[str, np.ndarray]) -> None:
    """Save one flat array per dtype, and an index: a zip of small files would be mostly headers."""
    index, flat = [], {}
    for key, x in found.items():
        parts = flat.setdefault(str(x.dtype), [])
        index.append([key, str(x.dtype), list(x.shape), sum(p.size for p in parts)])
        parts.append(x.reshape(-1))
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(target, index=text, **{k: np.concatenate(v) for k, v in flat.items()})


def run(python: str, folder: str, count: int, show: bool) -> None:
    """Run workers until every row has been tried."""
    start = 0
    while start < count:
        done = subprocess.run(
            [python, "-W", "ignore", "-c", WORKER, folder, str(start)],
            stdout=None if show else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if done.returncode == 0:
            return
        at = int(Path(folder, "at").read_text())
        print(f"MXNet crashed at row {at} ({json.loads(Path(folder, 'rows.json').read_text())[at]['name']})")
        start = at + 1


if __name__ == "__main__":
    main()
