"""Memory that checkpoints take besides the plan: growth of this process while each is written or read.

python benchmarks/checkpoints.py       seconds; Linux only; prints only
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import mxlite as mx

MIB = 2**20


def status(key: str) -> int:
    """Memory figure `key` of this process in bytes, from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def grown(action: Callable[[], Any]) -> int:
    """Peak growth of the process in bytes while `action` runs."""
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    action()
    mx.nd.waitall()
    return max(0, status("VmHWM") - before)


def main() -> None:
    x = mx.sym.Variable("data")
    for i in range(6):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=1024, name=f"fc{i}"), act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="out"), name="softmax")
    data = mx.io.NDArrayIter(np.zeros((256, 1024), "float32"), np.zeros(256, "float32"), 64)
    module = mx.mod.Module(net)
    module.fit(data, num_epoch=1, optimizer="adam")
    mx.nd.waitall()
    print(f"plan: {module.memory_plan.peak_bytes / MIB:.1f} MiB")
    with TemporaryDirectory() as folder:
        prefix = f"{folder}/run"
        ends = [
            mx.callback.do_checkpoint(prefix),
            mx.callback.module_checkpoint(module, prefix, save_optimizer_states=True),
        ]
        actions: dict[str, Callable[[], Any]] = {
            "save_resume_state": lambda: module.save_resume_state(prefix, 1, 0, data),
            "save_checkpoint with states": lambda: module.save_checkpoint(prefix, 1, True),
            "two epochs of fit(checkpoint_prefix=)": lambda: module.fit(
                data, num_epoch=2, optimizer="adam", checkpoint_prefix=prefix
            ),
            "two epochs of fit with callbacks": lambda: module.fit(
                data, num_epoch=2, optimizer="adam", epoch_end_callback=ends
            ),
            "load_params": lambda: module.load_params(f"{prefix}-0001.params"),
            "load_optimizer_states": lambda: module.load_optimizer_states(f"{prefix}-0001.states"),
            "load_resume_state": lambda: module.load_resume_state(prefix, data),
        }
        for name, action in actions.items():
            print(f"{name}: {grown(action) / MIB:.1f} MiB more")
        print(f"run.resume: {Path(f'{prefix}.resume').stat().st_size / MIB:.1f} MiB")


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("checkpoints.py looks into /proc, which Linux has.")
    main()
