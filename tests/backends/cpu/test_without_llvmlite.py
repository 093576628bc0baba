"""Where llvmlite is not installed, mxlite imports, plans and trains: with oneDNN, and with numpy alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement  # pytest brings it

ROOT = Path(__file__).resolve().parents[3]

TRAINS = """
    import json
    import numpy as np
    import mxlite as mx
    from mxlite.core.machine_code import native

    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, pad=(1, 1), name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="norm"), act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.LayerNorm(mx.sym.FullyConnected(net, num_hidden=32, name="dense"), name="layer")
    net = mx.sym.FullyConnected(mx.sym.Dropout(net + mx.sym.tanh(net), p=0.1), num_hidden=4, name="last")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    random = np.random.default_rng(0)
    classes = random.integers(0, 4, 256)
    images = random.normal(size=(256, 3, 8, 8)).astype("float32")
    images[np.arange(256), 0, classes, classes] += 9
    mx.random.seed(1)
    batches = mx.io.NDArrayIter(images, classes.astype("float32"), 32)
    mod = mx.mod.Module(net, memory_budget="640KiB")
    mod.fit(batches, num_epoch=4, initializer=mx.init.Xavier(), optimizer="adam",
            optimizer_params={"learning_rate": 0.01})
    tasks = mod.memory_plan.problem.tasks
    print(json.dumps({
        "available": native.available(),
        "kernels": sorted({t.kernel.split()[0] for t in tasks}),
        "accuracy": mod.score(batches, "acc")[0][1],
        "peak": mod.memory_plan.peak_bytes,
        "measured": mod.measured_bytes,
    }))
"""


@pytest.mark.parametrize("kernels", ["onednn,compiled", "compiled", "reference"])
def test_a_network_trains_within_its_budget_with_llvmlite_hidden(kernels, tmp_path):
    code = "import sys; sys.modules['llvmlite'] = None\n" + dedent(TRAINS)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MXLITE_KERNELS": kernels,
        "MXLITE_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not said["available"] and "compiled" not in said["kernels"]
    assert set(said["kernels"]) <= ({"onednn", "reference"} if "onednn" in kernels else {"reference"})
    assert said["accuracy"] > 0.9
    assert said["measured"] == said["peak"] <= 640 * 1024


@pytest.mark.parametrize(
    "system, machine, python, there",
    [
        ("linux", "x86_64", "CPython", True),
        ("linux", "aarch64", "CPython", True),
        ("darwin", "arm64", "CPython", True),
        ("win32", "AMD64", "CPython", True),
        ("linux", "ppc64le", "CPython", False),
        ("darwin", "x86_64", "CPython", False),
        ("win32", "ARM64", "CPython", False),
        ("linux", "x86_64", "PyPy", False),
    ],
)
def test_llvmlite_is_asked_for_where_it_has_wheels(system, machine, python, there):
    """docs/dependencies.md says the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    at = {
        "sys_platform": system,
        "platform_machine": machine,
        "platform_python_implementation": python,
        "python_version": "3.12",
    }
    wanted = [r for r in map(Requirement, project["dependencies"]) if r.name == "llvmlite"]
    assert any(r.marker is None or r.marker.evaluate(at) for r in wanted) == there
    assert project["optional-dependencies"]["compile"] == [f"llvmlite{wanted[0].specifier}"]
