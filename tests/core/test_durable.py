"""What is written is there after a power cut and a kill, and the program is told where it could not be."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import replacing
from mxlite.core.disk import files
from mxlite.module.saved.statefile import Packed

SYMBOL = mx.sym.SoftmaxOutput(
    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=300, name="fc"), name="softmax"
)


def samples() -> Any:
    return mx.io.NDArrayIter(np.ones((8, 300), "float32"), np.ones(8, "float32"), 4)


@pytest.fixture(scope="module")
def module() -> Any:
    made = mx.mod.Module(SYMBOL)
    made.fit(samples(), num_epoch=1, optimizer="adam")
    return made


def store_of(module: Any) -> Any:
    store = mx.kv.create()
    store.init(0, mx.nd.ones(9))
    store.set_optimizer(mx.optimizer.Adam())
    store.push(0, mx.nd.ones(9))
    return store


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "params": lambda m, at: m.save_params(str(at / "x")),
    "arrays": lambda m, at: mx.nd.save(str(at / "x"), [mx.nd.ones(3)]),
    "states": lambda m, at: m.save_optimizer_states(str(at / "x")),
    "resume": lambda m, at: m.save_resume_state(str(at / "x"), 0, 0, None),
    "checkpoint": lambda m, at: m.save_checkpoint(str(at / "x"), 1, True),
    "model": lambda m, at: mx.model.save_checkpoint(str(at / "x"), 1, SYMBOL, *m.get_params()),
    "buckets": lambda m, at: bucketing().save_checkpoint(str(at / "x"), 1),
    "symbol": lambda m, at: SYMBOL.save(str(at / "x")),
    "store": lambda m, at: store_of(m).save_optimizer_states(str(at / "x")),
    "page": lambda m, at: m.memory_plan.to_html(at / "x.html"),
    "fit": lambda m, at: mx.mod.Module(SYMBOL).fit(samples(), num_epoch=1, checkpoint_prefix=str(at / "x")),
}


def bucketing() -> Any:
    made = mx.mod.BucketingModule(lambda key: (SYMBOL, ("data",), ("softmax_label",)), 3)
    made.bind([("data", (4, 300))], [("softmax_label", (4,))])
    made.init_params()
    return made


class Disk:
    """What a power cut would leave: names and contents as they were when they were last synced."""

    def __init__(self, monkeypatch: Any, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.contents: dict[int, bytes] = {}  # by inode, what is on the disk
        self.names: dict[str, int] = {}
        self.renamed: list[str] = []
        fsync, replace = os.fsync, os.replace

        def synced(handle: int) -> None:
            fsync(handle)
            path = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isdir(path):
                self.names = {n: os.stat(os.path.join(path, n)).st_ino for n in os.listdir(path)}
            else:
                self.contents[os.fstat(handle).st_ino] = Path(path).read_bytes()

        def moved(old: Any, new: Any) -> None:
            where, name = os.path.split(os.path.realpath(new))
            if where == self.folder:  # else it is of the cache of kernels, for which nobody waits
                self.renamed.append(name)
            replace(old, new)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", moved)

    def after_a_power_cut(self) -> dict[str, bytes | None]:
        """The files by name; None for one whose bytes never reached the disk."""
        return {name: self.contents.get(inode) for name, inode in self.names.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_written_is_whole_after_a_power_cut(
    writer: str, module: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    WRITERS[writer](module, tmp_path)
    there = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert there and sorted(set(disk.renamed)) == sorted(there)
    assert disk.after_a_power_cut() == there


@pytest.fixture
def unswept() -> Iterator[None]:
    files._swept.clear()
    yield
    files._swept.clear()


HOLD = """
import os, sys, time
from mxlite.core import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half"); file.flush()
    print("there", flush=True)
    time.sleep(60)
"""


@pytest.mark.usefixtures("unswept")
def test_temporary_files_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.resume"
    strangers = [".run.resume.0123.tmp", ".run.resume.mxlite-00000000-abc.tmp", "x.mxlite-00000000-abc.tmp"]
    for name in strangers:  # an editor's, another machine's, a user's
        (tmp_path / name).touch()
    writer = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == b"there\n"
        with replacing(path) as file:
            file.write(b"mine")
        assert len(os.listdir(tmp_path)) == len(strangers) + 2
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    files._swept.clear()
    with replacing(path) as file:
        file.write(b"again")
    assert sorted(os.listdir(tmp_path)) == sorted([*strangers, "run.resume"])
    old = tmp_path / strangers[1]
    os.utime(old, (0, time.time() - 2 * files.LONG_AGO_S))
    files._swept.clear()
    with replacing(path) as file:
        file.write(b"third")
    assert not old.exists() and path.read_bytes() == b"third"


def never(*_: Any) -> None:
    raise AssertionError("no step may be run")


@pytest.mark.parametrize("how", ["prefix", "do_checkpoint", "module_checkpoint"])
@pytest.mark.parametrize("fault", ["missing", "file", "read-only"])
def test_a_folder_that_cannot_be_written_is_told_of_before_the_first_step(
    how: str, fault: str, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "there"
    if fault == "file":
        folder.touch()
    elif fault == "read-only":
        folder.mkdir()
        made = files.tempfile.mkstemp

        def refused(*args: Any, **how: Any) -> Any:  # who runs this may be root, whom nothing stops
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), how["dir"])

        monkeypatch.setattr(files.tempfile, "mkstemp", refused if made else made)
    prefix, module = str(folder / "run"), mx.mod.Module(SYMBOL)
    callback = {
        "prefix": {"checkpoint_prefix": prefix},
        "do_checkpoint": {"epoch_end_callback": mx.callback.do_checkpoint(prefix)},
        "module_checkpoint": {"epoch_end_callback": mx.callback.module_checkpoint(module, prefix)},
    }[how]
    with pytest.raises(OSError, match="could not write its checkpoints") as caught:
        module.fit(samples(), num_epoch=1, batch_end_callback=never, **callback)
    assert str(caught.value.filename).startswith(prefix)


def test_too_little_room_is_told_of_before_the_first_step(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("mxlite.module.base_module.room", lambda path: 1000)
    with pytest.raises(OSError, match=r"they take .* free are 1000 B") as caught:
        mx.mod.Module(SYMBOL).fit(
            samples(), num_epoch=1, checkpoint_prefix=str(tmp_path / "run"), batch_end_callback=never
        )
    assert caught.value.errno == errno.ENOSPC and not os.listdir(tmp_path)


@pytest.mark.parametrize("writer", ["params", "states", "resume", "symbol"])
def test_a_disk_that_fills_up_keeps_the_last_good_file(writer: str, module: Any, tmp_path: Path) -> None:
    WRITERS[writer](module, tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(OSError) as caught:
            WRITERS[writer](module, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG and str(caught.value.filename).startswith(str(tmp_path))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_arrays_that_change_while_they_are_written_leave_the_old_file(module: Any, tmp_path: Path) -> None:
    WRITERS["states"](module, tmp_path)
    before = (tmp_path / "x").read_bytes()
    packed = Packed(module._state_tree())
    next(iter(module._training.updater.states.values()))[0][:] = 7
    with (
        pytest.raises(mx.StateError, match="changed while they were written"),
        replacing(tmp_path / "x") as f,
    ):
        packed.write(f)
    assert (tmp_path / "x").read_bytes() == before


FIT = """
import resource, sys, tempfile, threading
import numpy as np
import mxlite as mx

threading.stack_size(2**18)  # a stack is data too, 8 MiB of it, and the engine may start a thread late

def status(key):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(key))

x = mx.sym.Variable("data")
for i in range(4):
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=1024, name=f"fc{i}"), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=10, name="out"), name="softmax")
data = mx.io.NDArrayIter(np.zeros((16, 1024), "float32"), np.zeros(16, "float32"), 8)
module = mx.mod.Module(net)
module.fit(data, num_epoch=1, optimizer="adam")
mx.nd.waitall()
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
most = status("VmData") + 15 * 2**20  # less than a copy of the parameters; steps take some for a moment
resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
with tempfile.TemporaryDirectory() as folder:
    module.fit(
        data, num_epoch=2, begin_epoch=0, optimizer="adam", checkpoint_prefix=folder + "/run",
        epoch_end_callback=[
            mx.callback.do_checkpoint(folder + "/a"),
            mx.callback.module_checkpoint(module, folder + "/b", save_optimizer_states=True),
        ],
    )
    mx.nd.waitall()
print(status("VmHWM") - before, module.memory_plan.peak_bytes)
"""


def run(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_checkpoints_every_epoch_take_no_memory_beyond_the_plan() -> None:
    """Each is of 16 MiB of parameters and 32 MiB of states; in whole copies they took 270 MiB more.

    Of data the process may not even have more.
    """
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    grown, peak = map(int, done.stdout.split())
    assert grown < 8 * 2**20 < peak // 4
