"""MXLITE_TARGET: kernels for a lesser processor than this one, right on this one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mxlite.core import config, MXLiteError
from mxlite.core.machine_code import level, native

ROOT = Path(__file__).resolve().parents[3]

ROWS = """
import json, sys
import numpy as np
from tests.backends.cpu import fast_kernels
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call
from mxlite.backends.cpu import onednn
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import width
from mxlite.core import DTypeError; from mxlite.core.machine_code import native

TOLERANCES = {"float32": 2e-5, "bfloat16": 1.6e-2, "float16": 2e-3}
cases = [case for case in CASES.values() if CPU.kernels.get(case.op) and case.shapes]
ran = []
for dtype in sys.argv[1:]:
    done, others = set(), []
    for case in cases:
        try:
            call = Call.of(case, dtype=dtype)
        except DTypeError:
            others.append(case)
            continue
        if list(map(str, call.dtypes[0])) != case.kinds(dtype):
            others.append(case)
            continue  # an input's type does not follow from the first one's
        name = fast_kernels.kernel_name(call, "compiled")
        # Kernels load and store 16 bits alike, whatever operator they compute: one of each name is enough.
        kernel = case.op.op_name if dtype == "float32" else "", name, dtype
        if kernel in done:
            continue
        others.append(case)  # the rows of one kernel and operator are one row for the next type
        if not name.startswith("compiled"):
            continue
        done.add(kernel)
        grad = case.op.grad_op
        arrays = case.inputs(dtype=dtype)
        heads = fast_kernels.heads_of(case, dtype) if grad and grad.output_names(case.parsed) else None
        got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
        want = fast_kernels.run(case, dtype, "reference", arrays, heads)
        fast_kernels.close(got, want, TOLERANCES[dtype], f"{kernel}")
        ran.append(kernel)
    cases = others
lib = onednn.library()
found = {"rows": len(ran), "width": width(), "cpu": native.target().cpu}
print(json.dumps({**found, "isa": None if lib is None else lib.instructions}))
"""


def run(program, *arguments, **env):
    """What a fresh process prints, as lines, and its errors."""
    full = {k: v for k, v in os.environ.items() if not k.startswith(("MXLITE_", "ONEDNN_"))}
    full |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=full, capture_output=True, text=True, timeout=300
    )
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def here():
    """Levels that this processor has."""
    if not native.available() or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no compiler here, or another kind of processor")
    return {name for name, x in level.LEVELS.items() if x.features <= native.target().features}


@pytest.mark.parametrize(
    ("target", "types", "rows", "width", "isa"),
    [
        ("x86-64-v3", ("float32", "bfloat16", "float16"), 110, 8, "AVX2 (0x7)"),
        ("x86-64-v2", ("float32", "bfloat16"), 70, 4, "SSE4.1 (0x1)"),
    ],
)
def test_generated_kernels_of_a_lesser_processor_conform(here, target, types, rows, width, isa):
    """A row of each operator's kernel and type, in a process that is to know no more than that processor."""
    if target not in here:
        pytest.skip("this processor has less")
    out, errors = run(ROWS, *types, MXLITE_TARGET=target)
    assert out, errors
    found = json.loads(out[-1])
    assert (found["width"], found["cpu"]) == (width, target)
    assert found["isa"] in (None, isa)
    assert found["rows"] >= rows, found


def test_the_level_decides_the_code_and_its_place_in_the_cache(here, monkeypatch):
    if "x86-64-v3" not in here:
        pytest.skip("this processor has less")
    text = "define <8 x float> @f(<8 x float> %x) { %y = fadd <8 x float> %x, %x ret <8 x float> %y }"
    keys, code = set(), set()
    for target in ("native", "x86-64-v2", "x86-64-v3"):
        monkeypatch.setenv("MXLITE_TARGET", target)
        at = native.target.__wrapped__()
        monkeypatch.setattr(native, "target", lambda at=at: at)
        keys.add(native._key(text, 0))
        code.add(native.compile(text))
        monkeypatch.undo()
    assert len(keys) == 3 and len(code) >= 2


def test_a_level_that_is_not_there_is_refused_with_what_is_missing():
    present = level.LEVELS["x86-64-v3"].features | {"sse4a"}
    assert level.checked("x86-64-v3", "x86_64-pc-linux-gnu", present) is level.LEVELS["x86-64-v3"]
    with pytest.raises(MXLiteError, match=r"asks for avx512bw,.*highest level that it has is x86-64-v3"):
        level.checked("x86-64-v4", "x86_64-pc-linux-gnu", present)
    with pytest.raises(MXLiteError, match="level of x86-64, but this machine is aarch64"):
        level.checked("x86-64-v2", "aarch64-apple-darwin", present)


def test_a_level_that_nobody_knows_is_an_error(monkeypatch):
    monkeypatch.setenv("MXLITE_TARGET", "x86-64-v33")
    with pytest.raises(MXLiteError, match=r"MXLITE_TARGET must be one of native,.*Did you mean 'x86-64-v3'"):
        config.target()
    program = (
        "import mxlite as mx\n"
        "try: mx.sym.relu(mx.sym.var('x')).simple_bind(mx.cpu(), x=(2, 3))\n"
        "except mx.MXLiteError as error: print(error)\n"
        "from mxlite.cli import main\n"
        "assert main(['doctor']) == 0\n"
    )
    out, errors = run(program, MXLITE_TARGET="avx2")
    assert out and out[0].startswith("MXLITE_TARGET must be one of"), (out, errors)
    assert sum("ERROR: MXLITE_TARGET must be" in line for line in out) >= 1 and not errors
