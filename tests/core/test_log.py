"""Log lines are shown to who has asked for them, whenever he did."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.module.watch import callback
from mxlite.module.watch.callback import BatchEndParam

PACKAGE = Path(mx.__file__).parent
FIT = """
import gzip, logging, struct, sys
import numpy as np
import mxlite as mx
def idx(path, a):
    with gzip.open(path, "wb") as f:
        f.write(struct.pack(f">HBB{a.ndim}I", 0, 8, a.ndim, *a.shape) + a.tobytes())
idx(sys.argv[1] + "/x.gz", np.zeros((8, 4, 4), "uint8"))
idx(sys.argv[1] + "/y.gz", np.zeros(8, "uint8"))
data = mx.io.MNISTIter(image=sys.argv[1] + "/x.gz", label=sys.argv[1] + "/y.gz", batch_size=4)
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")
module = mx.mod.Module(net)
module.bind(data.provide_data, data.provide_label)
module.bind(data.provide_data, data.provide_label)
SETUP
module.fit(data, num_epoch=1, batch_end_callback=mx.callback.Speedometer(4, 1))
"""


def lines_of(setup: str, tmp_path: Path) -> str:
    program = FIT.replace("SETUP", setup)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_lines_of_fit_are_shown_where_an_iterator_came_before_the_configuration(tmp_path: Path) -> None:
    found = lines_of("logging.basicConfig(level=logging.INFO)", tmp_path)
    assert "Epoch[0] Train-accuracy" in found and "Speed:" in found
    assert "Already bound" in found  # that was before, and is a warning


def test_a_level_alone_is_enough_as_in_mxnets_programs(tmp_path: Path) -> None:
    found = lines_of("logging.getLogger().setLevel(logging.INFO)", tmp_path)
    assert "Epoch[0] Train-accuracy" in found and "Speed:" in found


def test_nobody_writes_to_the_root_logger() -> None:
    functions = {"debug", "info", "warning", "error", "critical", "exception", "log", "basicConfig"}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "log.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in functions
        and isinstance(node.value, ast.Name)
        and node.value.id == "logging"
    ]
    assert not found


def test_the_speed_counts_the_time_of_batches_that_still_run(caplog: Any) -> None:
    """Steps are pushed and run later: what a batch takes shows where somebody waits for it."""

    class Late:
        def get_name_value(self) -> list[tuple[str, float]]:
            time.sleep(0.05)
            return [("accuracy", 0.5)]

        def reset_local(self) -> None: ...

    class Module:
        def get_outputs(self) -> list[Any]:
            return [self]

        def wait_to_read(self) -> None:
            time.sleep(0.05)

    for metric, names in ((Late(), None), (None, {"self": Module()})):
        caplog.clear()
        meter = callback.Speedometer(batch_size=10, frequent=2)
        with caplog.at_level("INFO"):
            for n in range(5):
                meter(BatchEndParam(0, n, metric, names))
        speeds = [float(r.getMessage().split("Speed: ")[1].split()[0]) for r in caplog.records]
        assert len(speeds) == 2 and all(s <= 20 / 0.05 for s in speeds)


def test_the_speed_of_fit_is_that_of_its_steps(caplog: Any) -> None:
    class Slow(mx.operator.CustomOp):
        def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            time.sleep(0.02)
            self.assign(out_data[0], req[0], in_data[0])

        def backward(
            self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
        ) -> None:
            self.assign(in_grad[0], req[0], out_grad[0])

    @mx.operator.register("slow_for_speed")
    class SlowProp(mx.operator.CustomOpProp):
        def create_operator(self, *_: Any) -> Any:
            return Slow()

    x = mx.sym.Custom(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), op_type="slow_for_speed")
    data = mx.io.NDArrayIter(np.zeros((36, 3), "float32"), np.zeros(36, "float32"), 4)
    with caplog.at_level("INFO"):
        mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax")).fit(
            data, num_epoch=1, batch_end_callback=callback.Speedometer(4, 4)
        )
    speeds = [
        float(r.getMessage().split("Speed: ")[1].split()[0])
        for r in caplog.records
        if "Speed" in r.getMessage()
    ]
    assert speeds and all(s <= 1.4 * 4 / 0.02 for s in speeds)
