"""Memory of checkpoints: a plan says what training takes, and reading or writing its state adds a few MiB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import FormatError, ShapeError
from mxlite.formats import save_params, stored_params
from mxlite.memplan.plan import CHECKPOINT_BYTES

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

COMMON = """
import resource, sys, tempfile
from pathlib import Path
import numpy as np
import mxlite as mx
from mxlite.memplan.plan import CHECKPOINT_BYTES

MIB = 2**20

def status(key):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(key))

def grown(action):
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    action()
    mx.nd.waitall()
    return max(0, status("VmHWM") - before)

x = mx.sym.Variable("data")
for i in range(6):
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=1024, name=f"fc{i}"), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="out"), name="softmax")
data = mx.io.NDArrayIter(np.zeros((16, 1024), "float32"), np.zeros(16, "float32"), 8)
module = mx.mod.Module(net)
prefix = tempfile.mkdtemp() + "/run"
how = dict(optimizer="adam", checkpoint_prefix=prefix)
module.fit(data, num_epoch=1, **how)
ends = [
    mx.callback.do_checkpoint(prefix),
    mx.callback.module_checkpoint(module, prefix, save_optimizer_states=True),
]
for _ in range(2):  # code is compiled, pools are begun, and the C library has what it keeps
    module.fit(data, num_epoch=2, resume=True, epoch_end_callback=ends, **how)
    module.load_optimizer_states(f"{prefix}-0002.states")
    module.load_params(f"{prefix}-0002.params")
    Path(f"{prefix}.resume").replace(f"{prefix}2.resume")
    module.fit(data, num_epoch=1, **how)
mx.nd.waitall()
plan = module.memory_plan
"""

LIMITED = """
most = status("VmSize") + plan.checkpoint_bytes + 2 * MIB
resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
module.fit(data, num_epoch=3, resume=True, epoch_end_callback=ends, **how)
module.load_optimizer_states(f"{prefix}-0002.states")
module.load_params(f"{prefix}-0002.params")
mx.nd.waitall()
try:
    np.ones(most - status("VmSize") + 8 * MIB, "uint8")
except MemoryError:
    print("the limit holds")
"""

READ = """
prefix += "2"
print(
    grown(lambda: module.load_params(f"{prefix[:-1]}-0002.params")),
    grown(lambda: module.load_optimizer_states(f"{prefix[:-1]}-0002.states")),
    grown(lambda: module.load_resume_state(prefix, data)),
    grown(lambda: setattr(sys, "kept", mx.model.load_checkpoint(prefix[:-1], 2))),
    sum(a.size * 4 for a in module.get_params()[0].values()),
)
"""


NEVER_SHRINKS = {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
"""The C library gives memory back at moments that depend on what lies where in its heap. So what a process
has says little of what it has had, and oneDNN's products, which allocate inside, once found nothing.
"""


def printed(program: str, **settings: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", **settings}
    done = subprocess.run(
        [sys.executable, "-c", COMMON + program], capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@on_linux
def test_a_fit_with_checkpoints_every_epoch_lives_in_what_its_plan_and_checkpoints_take() -> None:
    """All of its address space: no thread, mapping or array comes on top of what the first epochs had."""
    assert printed(LIMITED, **NEVER_SHRINKS) == "the limit holds"


@on_linux
def test_reading_takes_a_piece_beside_the_arrays() -> None:
    """Of 24 MiB of parameters and 48 MiB of states; in whole copies the last two took 144 and 240 MiB."""
    params, states, resume, whole, nbytes = map(int, printed(READ).split())
    for name, more in dict(params=params, states=states, resume=resume).items():
        assert more <= CHECKPOINT_BYTES + 2**20, f"{name}: {more / 2**20:.1f} MiB"
    assert whole <= nbytes + CHECKPOINT_BYTES + 2**20, f"load_checkpoint: {whole / 2**20:.1f} MiB"


def trained(prefix: str, hidden: int = 3, optimizer: str = "adam") -> Any:
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc")
    net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn"), num_hidden=2, name="out")
    data = mx.io.NDArrayIter(np.ones((8, 4), "float32"), np.zeros(8, "float32"), 4)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    module.fit(data, num_epoch=1, optimizer=optimizer, checkpoint_prefix=prefix)
    return module


def everything(module: Any) -> bytes:
    args, aux = module.get_params()
    weights = b"".join(a.asnumpy().tobytes() for _, a in sorted((args | aux).items()))
    return weights + module._training.updater.get_states()


def test_states_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    """Not even those in front of the one that does not fit."""
    module, other = trained(f"{tmp_path}/a"), trained(f"{tmp_path}/b", hidden=5)
    other.save_optimizer_states(f"{tmp_path}/other.states")
    before = everything(module)
    with pytest.raises(FormatError, match=r"of 'fc_weight' must be \(3, 4\), but it is \(5, 4\)"):
        module.load_optimizer_states(f"{tmp_path}/other.states")
    assert everything(module) == before


@pytest.mark.parametrize("offset", [20, -1])
def test_a_resume_file_with_a_wrong_byte_changes_nothing(tmp_path: Path, offset: int) -> None:
    module = trained(f"{tmp_path}/run")
    file = tmp_path / "run.resume"
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)
    before = everything(module)
    with pytest.raises(FormatError, match="checksum"):
        module.load_resume_state(f"{tmp_path}/run", None)
    assert everything(module) == before


def test_a_module_is_what_was_loaded_though_the_file_is_replaced_before_it_is_bound(tmp_path: Path) -> None:
    module = trained(f"{tmp_path}/run")
    module.save_checkpoint(f"{tmp_path}/run", 1)
    loaded = mx.mod.Module.load(f"{tmp_path}/run", 1)
    args, aux = module.get_params()
    save_params(f"{tmp_path}/run-0001.params", {n: a * 0 for n, a in args.items()}, aux)
    loaded.bind([("data", (4, 4))], for_training=False)
    found, _ = loaded.get_params()
    assert all(np.array_equal(found[n].asnumpy(), a.asnumpy()) for n, a in args.items())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "bool"])
def test_an_array_in_a_file_is_copied_as_one_in_memory_is(
    tmp_path: Path, dtype: str, monkeypatch: Any
) -> None:
    """In pieces of some bytes, converted, whatever the shape."""
    monkeypatch.setattr("mxlite.ndarray.files.stored.PIECE", 29)
    path = f"{tmp_path}/x.params"
    values = np.random.default_rng(0).normal(0, 3, 60)
    for shape in ((60,), (3, 4, 5), (0, 3), ()):
        made = mx.nd.array(values[: int(np.prod(shape))].reshape(shape), dtype=dtype)
        save_params(path, {"x": made}, {})
        stored = stored_params(path)[0]["x"]
        assert (stored.shape, np.dtype(stored.dtype)) == (shape, np.dtype(made.dtype))
        assert np.array_equal(stored.asnumpy(), made.asnumpy())
        target = mx.nd.ones(shape, dtype="float32")
        stored.copyto(target)
        assert np.array_equal(target.asnumpy(), made.astype("float32").asnumpy())


def test_parameters_of_another_shape_are_refused(tmp_path: Path) -> None:
    module, other = trained(f"{tmp_path}/a"), trained(f"{tmp_path}/b", hidden=5)
    other.save_params(f"{tmp_path}/x.params")
    with pytest.raises(ShapeError, match=r"'fc_weight' is \(3, 4\) here, but \(5, 4\) was given"):
        module.load_params(f"{tmp_path}/x.params")


def test_a_file_that_shrinks_is_told_of(tmp_path: Path) -> None:
    save_params(f"{tmp_path}/x.params", {"x": mx.nd.ones((100, 1000))}, {})
    stored = stored_params(f"{tmp_path}/x.params")[0]["x"]
    os.truncate(f"{tmp_path}/x.params", 5000)
    with pytest.raises(FormatError, match=r"x\.params could not be read; it shrank"):
        stored.copyto(mx.nd.ones((100, 1000)))
