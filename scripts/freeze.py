"""Record what a tree of mxlite does, and compare two records: a refactoring ends with "no difference".

    python scripts/freeze.py record OUT.json                        this checkout
    python scripts/freeze.py record OUT.json --tree PATH            another one, by this copy of the script
    python scripts/freeze.py record OUT.json --only kernels,plans --match "relu.*|resnet50"
    python scripts/freeze.py compare BEFORE.json AFTER.json         exit code 1 where they differ
    python scripts/freeze.py compare BEFORE.json AFTER.json --renamed _banded_relu=_tiled_relu

| section | key                      | what is recorded                                                      |
|---------|--------------------------|-----------------------------------------------------------------------|
| kernels | row, dtype, pass, device | the kernel that is chosen, its workspace in bytes                     |
| plans   | network, options, budget | bytes, extra time, steps, kernels by operator, digest of the schedule |
| code    | kernel, digest of text   | the machine code that LLVM makes of it; of CUDA the text alone        |
| results | row, dtype, pass         | digest of each output and gradient                                    |
|         | network, options, budget | digests after two steps of training                                   |

A record is made in a process of its own with fixed settings and no cache: nothing in it depends on what ran
before, and nothing on a clock. `code` holds the texts that the other selected sections asked for, so that it
is compared only between records of the same selection. Schedules are digested as numbers of tasks, addresses
and live ranges, without names: a renamed operator changes what is printed of a plan, not its digest.

What is left out, since a clock decides it: the plans that training runs. Binding within a budget may time
candidates on this machine (`executor/rehearsal.py`); by promise results do not depend on which it takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("kernels", "plans", "code", "results")
SETTINGS = {
    "MXLITE_NUM_THREADS": "2",
    "MXLITE_CACHE_DIR": "off",
    "MXLITE_PLAN_CACHE": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
}
DTYPES = ("float32", "float64", "bfloat16")  # besides the row's own

BATCH = 8
FEW = 2000
"""A network of more steps is planned without a budget only, unless SPECIAL says otherwise: planning it within
one takes ten seconds and more."""

BUDGETS = ("none", "0.75", "0.5", "least")
"""Shares of what the network takes without a budget; `least` is the least budget that the planner names."""

VARIED = ("resnet50", "mobilenet_v2", "unet", "lstm", "bert_base", "gpt2", "transformer", "densenet121")
"""Networks that are also planned for the options of VARIANTS."""

VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "": ({}, BUDGETS),
    "bfloat16": ({"amp": "bfloat16"}, ("none", "0.5", "least")),
    "no optimizer": ({"optimizer": None}, ("none", "0.5")),
    "inference": ({"optimizer": None, "grad_req": "null"}, ("none",)),
    "gpu": ({"gpu": True}, ("none", "0.5")),
    "gpu bfloat16": ({"gpu": True, "amp": "bfloat16"}, ("none",)),
}
SPECIAL: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "resnet1001_cifar_v2": ("resnet1001_cifar_v2", {}, ("none", "0.5")),
    "lstm_unrolled": ("lstm_unrolled", {"steps": 16}, BUDGETS),
    "lstm cross_entropy": ("lstm", {"loss": "cross_entropy"}, BUDGETS),
    "gpt2 cross_entropy": ("gpt2", {"loss": "cross_entropy"}, BUDGETS),
}
"""What is planned with other options of the network, or other budgets, than its size asks for."""

TRAINED: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (32,), "features": 12},
    "lenet": {},
    "resnet50": {"stages": (1, 1, 1, 1), "classes": 4, "image": (3, 32, 32)},
    "resnet20_cifar": {"width": 8, "image": (3, 16, 16)},
    "resnet50_v2": {"stages": (2, 1, 1, 1), "classes": 4, "image": (3, 32, 32)},
    "mobilenet_v2": {"multiplier": 0.25, "classes": 4, "image": (3, 32, 32)},
    "inception_bn": {"classes": 4, "image": (3, 64, 64)},
    "unet": {"width": 8, "levels": 3, "image": (3, 32, 32)},
    "lstm": {"hidden": 32, "vocabulary": 50, "steps": 6, "loss": "cross_entropy"},
    "bert_base": {"layers": 2, "width": 32, "heads": 2, "hidden": 64, "vocabulary": 50, "length": 16},
    "gpt2": {
        "layers": 2, "width": 32, "heads": 2, "hidden": 64, "vocabulary": 50, "length": 16,
        "loss": "cross_entropy",
    },
}  # fmt: skip
"""Small networks whose results are recorded: two steps of SGD with momentum."""


def internals(tree: Path) -> SimpleNamespace:
    """All of mxlite and of its tests that the script uses and that users do not see, in this one place.

    Where a refactoring moves something, add the new place beside the old: the same script records both trees.
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


def digest(*parts: Any) -> str:
    """Sixteen hexadecimal digits of SHA-256 of bytes, texts, or what JSON can write."""
    found = hashlib.sha256()
    for part in parts:
        if not isinstance(part, bytes):
            part = (part if isinstance(part, str) else json.dumps(part)).encode()
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]


def digest_of_array(array: Any) -> str:
    """Of an array's shape, type and bytes."""
    return digest(str(array.dtype), list(array.shape), array.tobytes())


class Texts:
    """The text of every kernel that is generated, by the kernel's name.

    `found[key][digest of the text]` is the digest of its machine code and where it was asked for first.
    LLVM's texts are seen where they enter llvmlite, which no refactoring moves.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, dict[str, str]]] = {}
        self.at = ""
        self._last: dict[str, str] = {}

    def note(self, key: str, text: str) -> dict[str, str]:
        return self.found.setdefault(key, {}).setdefault(digest(text), {"at": self.at})

    def watch_llvm(self) -> None:
        """Put a witness before the two functions of llvmlite through which all code goes."""
        try:
            import llvmlite.binding as llvm
        except ImportError:
            return
        parse, emit = llvm.parse_assembly, llvm.TargetMachine.emit_object

        def parse_assembly(text: str, *rest: Any) -> Any:
            if names := re.findall(r'^define [^@\n]*@"?([\w.$-]+)', text, re.MULTILINE):
                self._last = self.note("llvm " + " ".join(sorted(names)[:4]), text)
            return parse(text, *rest)

        def emit_object(machine: Any, module: Any) -> bytes:
            code = emit(machine, module)
            self._last["machine code"] = digest(code)
            return code

        llvm.parse_assembly, llvm.TargetMachine.emit_object = parse_assembly, emit_object


def text_device(emulated_device: Any, texts: Texts) -> Any:
    """A device of the GPU backend that notes the CUDA text of what it would launch, and launches nothing."""

    class TextDevice(emulated_device):
        def function(self, source: Any, name: str) -> Any:
            texts.note(f"cuda {name}", "\n".join((*source.options, source.text)))
            return name

        def launch(self, *_: Any) -> Callable[[], None]:
            return lambda: None

    return TextDevice()


def record_rows(own: SimpleNamespace, match: re.Pattern[str], record: dict[str, Any], texts: Texts) -> None:
    """Sections `kernels` and `results` of the conformance rows, and the texts of their kernels."""
    import numpy as np

    gpu = own.backend("emulated", np, own.gpu_table(text_device(own.emulated_device, texts)))
    for name, case in own.cases.items():
        for dtype in dict.fromkeys((case.dtype, *DTYPES)) if match.fullmatch(name) else ():
            if dtype != case.dtype and not own.takes(case, dtype):
                continue
            call = own.call(case, dtype=dtype)
            texts.at = f"{name} {dtype}"
            if "kernels" in record:
                for op in own.operators(call):
                    key = f"{name} {dtype} {'forward' if op is case.op else 'gradient'}"
                    record["kernels"][f"{key} cpu"] = _kernel(partial(call.kernel, op))
                    with own.kernels_of(own.planning_backend()):
                        record["kernels"][f"{key} gpu"] = _kernel(partial(call.kernel, op))
            if "results" in record:
                for op, given in own.stages(call, case.inputs(dtype=dtype)):
                    outs, ins = call.execute(op, given)
                    made = {**outs, **{n: ins[n] for n in op.mutated(call.attrs) if n in ins}}
                    key = f"{name} {dtype} {'forward' if op is case.op else 'gradient'}"
                    record["results"][key] = {
                        n: digest_of_array(np.asarray(x)) for n, x in made.items() if x is not None
                    }
                    if "code" in record:
                        with own.kernels_of(gpu):
                            _connect(call, op, given, outs)


def _kernel(choose: Callable[[], Any]) -> dict[str, Any]:
    """A kernel's name and workspace, or the error that says why there is none."""
    try:
        kernel = choose()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"kernel": kernel.name, "workspace": kernel.workspace}


def _connect(call: Any, op: Any, given: Mapping[str, Any], outs: Mapping[str, Any]) -> None:
    """Make the call on the backend in use without running it: its kernels' texts are asked for."""
    if not call.kernel(op).is_reference:
        call.bind(op, dict(given), {n: None if x is None else x.copy() for n, x in outs.items()}, 0)


def networks(mx: Any, match: re.Pattern[str]) -> Iterator[tuple[str, Any, dict[str, Any], tuple[str, ...]]]:
    """Key, network, shapes and budgets of what is planned; no budgets: the network's size decides."""
    for name in mx.models.list_models():
        if name not in SPECIAL and match.fullmatch(name):
            yield name, mx.models.get(name), mx.models.shapes_of(name, BATCH), ()
    for key, (name, options, budgets) in SPECIAL.items():
        if match.fullmatch(key):
            yield key, mx.models.get(name, **options), mx.models.shapes_of(name, BATCH, **options), budgets


def record_plans(own: SimpleNamespace, match: re.Pattern[str], record: dict[str, Any], texts: Texts) -> None:
    """Section `plans`. Seconds come from the backends' fixed rates, not from a clock."""
    for name, net, shapes, budgets in networks(own.mx, match):
        for variant, (options, usual) in VARIANTS.items():
            if variant and name not in VARIED:
                continue
            key, peak = " ".join(filter(None, (name, variant))), 0
            for budget in budgets if budgets and not variant else usual:
                texts.at = f"{key} {budget}"
                found = _plan(own.mx, net, shapes, options, budget, peak)
                record[texts.at] = found
                peak = peak or found["peak_bytes"]
                if found.get("steps", 0) > FEW and not budgets:
                    break


def _plan(
    mx: Any, net: Any, shapes: Mapping[str, Any], options: Mapping[str, Any], budget: str, peak: int
) -> dict[str, Any]:
    how: dict[str, Any] = {"optimizer": mx.optimizer.SGD(momentum=0.9), **options, **shapes}
    device = mx.gpu() if how.pop("gpu", False) else mx.cpu()
    nbytes = {"none": None, "least": 1}.get(budget, 0)
    nbytes = int(peak * float(budget)) if nbytes == 0 else nbytes
    try:
        plan = net.memory_plan(device, memory_budget=nbytes, **how)
    except mx.MemoryBudgetError as error:
        refused = {"least_feasible_bytes": error.least_feasible_bytes, "bound": error.lower_bound_bytes}
        if budget != "least":
            return refused
        plan = net.memory_plan(device, memory_budget=error.least_feasible_bytes, **how)
    data = json.loads(plan.to_json())
    tasks = data["problem"]["tasks"]
    runs = Counter(f"{tasks[t]['op']}: {tasks[t]['kernel']}" for t in data["schedule"]["task"])
    return {
        "peak_bytes": data["peak_bytes"],
        "arena_bytes": data["arena_bytes"],
        "extra_time": data["extra_time"],
        "step_seconds": plan.step_seconds,
        "method": data["method"],
        "steps": len(data["schedule"]["task"]),
        "recomputed": plan.recomputed,
        "schedule": digest(data["schedule"], data["buffers"], data["host_offsets"]),
        **dict(sorted(runs.items())),
    }


def record_training(own: SimpleNamespace, match: re.Pattern[str], results: dict[str, Any]) -> None:
    """Part of section `results`: networks of TRAINED with and without a budget, in float32 and mixed."""
    mx = own.mx
    for name, options in TRAINED.items():
        for amp in (None, "bfloat16") if match.fullmatch(name) else ():
            key = f"{name} trained" + (f" {amp}" if amp else "")
            results[f"{key} none"] = _train(mx, name, options, amp)
            results[f"{key} none, fused"] = _train(mx, name, options, amp, fused_update=True)
            budget = 1
            while f"{key} least, fused" not in results:  # binding and the optimizer may each name another
                try:
                    made = _train(mx, name, options, amp, fused_update=True, memory_budget=budget)
                    results[f"{key} least, fused"] = made
                except mx.MemoryBudgetError as error:
                    assert error.least_feasible_bytes > budget
                    budget = error.least_feasible_bytes


def _train(mx: Any, name: str, options: Mapping[str, Any], amp: Any, **how: Any) -> dict[str, str]:
    import numpy as np

    rng = np.random.default_rng(5)
    net, shapes = mx.models.get(name, **options), mx.models.shapes_of(name, 4, **options)
    labels = [n for n in net.list_arguments() if n.endswith("_label")]
    given, _, states = net.infer_shape(**shapes)
    known = dict(zip((*net.list_arguments(), *net.list_auxiliary_states()), (*given, *states)))
    module = mx.mod.Module(net, list(shapes), labels, context=mx.cpu(), amp=amp, **how)
    module.bind(list(shapes.items()), [(n, known[n]) for n in labels])

    def first(n: str) -> Any:
        if n.endswith(("gamma", "var")):
            return mx.nd.array(rng.uniform(0.8, 1.2, known[n]))
        return mx.nd.array(rng.normal(0, 0.1, known[n]))

    def batch(n: str) -> Any:
        whole = n in labels or (len(known[n]) < 3 and "state" not in n and name != "mlp")
        values = (
            rng.integers(1, 2 if n == "segment" else 4, known[n]) if whole else rng.normal(0, 1, known[n])
        )
        return mx.nd.array(values.astype("float32"))

    arguments = [n for n in net.list_arguments() if n not in (*shapes, *labels)]
    mx.random.seed(3)
    module.init_params(
        arg_params={n: first(n) for n in arguments},
        aux_params={n: first(n) for n in net.list_auxiliary_states()},
    )
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.05, "momentum": 0.9})
    found = {}
    for step in (1, 2):
        one = mx.io.DataBatch([batch(n) for n in shapes], [batch(n) for n in labels])
        module.forward_backward(one)
        module.update()
        outs = [x.asnumpy() for x in module.get_outputs()]
        assert all(np.isfinite(x.astype("float64")).all() for x in outs), f"{name}: not finite"
        found[f"outputs of step {step}"] = digest(*map(digest_of_array, outs))
    for kind, arrays in zip(("parameters", "states"), module.get_params()):
        found[kind] = digest(*(f"{n} {digest_of_array(arrays[n].asnumpy())}" for n in sorted(arrays)))
    return found


def record(tree: Path, sections: list[str], match: str) -> dict[str, Any]:
    """The record of `tree`, in this process, which must not have seen mxlite before."""
    texts, pattern, began = Texts(), re.compile(match), time.process_time()
    texts.watch_llvm()
    own = internals(tree)
    found: dict[str, Any] = {"header": header(own.mx, sections, match), **{s: {} for s in sections}}
    if "kernels" in sections or "results" in sections:
        record_rows(own, pattern, found, texts)
        print(f"rows: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "plans" in sections:
        record_plans(own, pattern, found["plans"], texts)
        print(f"plans: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "results" in sections:
        texts.at = "training"
        record_training(own, pattern, found["results"])
        print(f"training: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "code" in sections:
        found["code"] = {
            f"{key} {text}": facts for key, texts_ in texts.found.items() for text, facts in texts_.items()
        }
    return found


def header(mx: Any, sections: list[str], match: str) -> dict[str, Any]:
    """What a record depends on besides the tree."""
    import numpy

    found = {"sections": sections, "match": match, "python": platform.python_version()}
    found |= {"numpy": numpy.__version__, "cores": len(os.sched_getaffinity(0)), "settings": SETTINGS}
    try:
        import llvmlite.binding as llvm

        found["llvm"] = ".".join(map(str, llvm.llvm_version_info))
        found["processor"] = llvm.get_host_cpu_name()
        found["features"] = digest(llvm.get_host_cpu_features().flatten())
    except ImportError:
        found["llvm"] = "none"
    return found


def record_apart(tree: Path, out: Path, sections: list[str], match: str) -> int:
    """Record in a process with fixed settings, in an empty folder, with `tree` first among modules."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("MXLITE_", "PYTHON"))}
    command = [sys.executable, str(Path(__file__).resolve()), "record", str(out.resolve())]
    command += ["--tree", str(tree.resolve()), "--only", ",".join(sections), "--match", match, "--here"]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, env={**clean, **SETTINGS}, cwd=folder).returncode


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """What differs between a section of two records: lines by kind."""
    found: dict[str, list[str]] = {"differs": [], "only before": [], "only after": []}
    for key in dict.fromkeys((*before, *after)):
        if key not in after or key not in before:
            where, side = ("only before", before) if key in before else ("only after", after)
            at = side[key].get("at")
            found[where].append(f"{key} (met at {at})" if at else key)
            continue
        was, now = before[key], after[key]
        fields = [f for f in dict.fromkeys((*was, *now)) if f != "at" and was.get(f) != now.get(f)]
        if fields:
            changes = ", ".join(f"{f} {was.get(f)} -> {now.get(f)}" for f in fields[:6])
            more = f", and {len(fields) - 6} more" if len(fields) > 6 else ""
            found["differs"].append(f"{key}: {changes}{more}")
    return {kind: lines for kind, lines in found.items() if lines}


def compare(before: dict[str, Any], after: dict[str, Any], limit: int) -> int:
    """Print the differences of two records; 1 where there is one, 2 where nothing could be compared."""
    was, now = before["header"], after["header"]
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            print(f"warning: {name} was {was.get(name)}, is {now.get(name)}")
    same_selection = all(was[n] == now[n] for n in ("sections", "match"))
    sections = [s for s in SECTIONS if s in before and s in after and (s != "code" or same_selection)]
    for section in SECTIONS:
        if section in {*before, *after} and section not in sections:
            print(f"warning: {section} is not compared: the records hold different selections")
    total = 0
    for section in sections:
        found = differences(before[section], after[section])
        total += sum(map(len, found.values()))
        count = ", ".join(f"{len(lines)} {kind}" for kind, lines in found.items()) or "no difference"
        print(f"{section}: {len(before[section])} keys, {count}")
        for kind, lines in found.items():
            for line in lines[:limit]:
                print(f"  {kind}: {line}")
            if len(lines) > limit:
                print(f"  {kind}: and {len(lines) - limit} more")
    return 2 if not sections else int(total > 0)


def load(path: Path, renamed: list[str]) -> dict[str, Any]:
    """A record, its words renamed as `renamed` says, "OLD=NEW" each."""
    text = path.read_text(encoding="utf-8")
    for pair in renamed:
        old, _, new = pair.partition("=")
        text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, new=new: new, text)
    found: dict[str, Any] = json.loads(text)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("record", help="write what a tree does")
    asked.add_argument("out", type=Path)
    asked.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between")
    asked.add_argument("--match", default=".*", help="expression for the names of rows and networks")
    asked.add_argument("--tree", type=Path, default=ROOT, help="the checkout; default: this one")
    asked.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = commands.add_parser("compare", help="print how two records differ")
    given.add_argument("before", type=Path)
    given.add_argument("after", type=Path)
    given.add_argument("--limit", type=int, default=20, help="lines of each kind and section")
    given.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW", help="words of BEFORE")
    args = parser.parse_args()
    if args.command == "compare":
        return compare(load(args.before, args.renamed), load(args.after, []), args.limit)
    sections = [s for s in SECTIONS if s in args.only.split(",")]
    if wrong := set(args.only.split(",")) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(wrong))}; there are {', '.join(SECTIONS)}")
    if sections == ["code"]:
        parser.error("code is what other sections ask for: name one of them too")
    if not args.here:
        return record_apart(args.tree, args.out, sections, args.match)
    found = record(args.tree, sections, args.match)
    args.out.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
