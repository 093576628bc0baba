"""The ground everything stands on: sizes, dtypes, devices, settings, errors, files."""

from __future__ import annotations

import ast
import builtins
import contextlib
import errno
import gc
import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import mxlite as mx
from mxlite.core import (
    as_dtype,
    BudgetError,
    config,
    Context,
    current_context,
    DeviceError,
    DTypeError,
    errors,
    flag_of,
    FLAGS,
    format_bytes,
    is_floating,
    MXLiteError,
    nearest,
    parse_bytes,
    read_at_most,
    replacing,
)
from mxlite.core.disk import files
from mxlite.core.disk.files import check_writable
from mxlite.core.process.collection import no_collection

# -- bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size, nbytes",
    [
        (1, 1),
        (4096, 4096),
        (np.int64(7), 7),
        ("4096", 4096),
        ("64MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("1.5GB", 1_500_000_000),
        (" 2 kB ", 2000),
        ("3KiB", 3072),
        ("1TiB", 1 << 40),
        ("1TB", 10**12),
        ("10b", 10),
        (".5KiB", 512),
        ("0.0015kB", 1),
        ("1.999999999B", 1),
        ("9007199254740993", 9007199254740993),
        ("9007199254740993.5", 9007199254740993),
    ],
)
def test_a_number_of_bytes_is_read(size, nbytes):
    got = parse_bytes(size)
    assert got == nbytes
    assert type(got) is int


@pytest.mark.parametrize(
    "size",
    [
        0, -1, np.int32(0), 1.5, 64.0, float("nan"), float("inf"), True, False, None, b"64MiB", [64],
        (1, "GB"), np.array([64, 64]), np.float64(64),
        "", " ", "MiB", "lots", "64 MB iB", "64XB", "-1MB", "+1MB", "1e9", "0x10",
        "1_000", "1,5GB", "1.GB", "1..5GB",
        "NaN", "inf",
        "0", "0GB", "0.4B", ".B", "٣MB", "64\x00MB", "64 M i B", "1 2 GB",
    ],
)  # fmt: skip
def test_nonsense_is_no_budget(size):
    with pytest.raises(BudgetError, match="budget") as caught:
        parse_bytes(size)
    assert isinstance(caught.value, ValueError)


def test_the_error_shows_what_was_written_and_what_would_do():
    with pytest.raises(BudgetError, match=r"'64MBit'.*MiB.*for example"):
        parse_bytes("64MBit")
    with pytest.raises(BudgetError, match=r"at least 1 byte, got -3"):
        parse_bytes(-3)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_number_or_a_budget_error(text):
    try:
        assert parse_bytes(text) > 0
    except BudgetError:
        pass


@given(st.integers(1, 1 << 21), st.sampled_from(["kB", "MB", "GB", "KiB", "MiB", "GiB", "TiB"]))
def test_units_are_powers_of_1000_or_1024(n, unit):
    power = "kmgt".index(unit[0].lower()) + 1
    assert parse_bytes(f"{n}{unit}") == n * (1024 if "i" in unit else 1000) ** power


def test_bytes_are_written_for_people():
    assert format_bytes(0) == "0 B"
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024) == "1.00 KiB"
    assert format_bytes(33554432) == "32.00 MiB"
    assert format_bytes(3 << 30) == "3.00 GiB"
    assert format_bytes(5 << 50) == "5120.00 TiB"
    assert format_bytes(-2048) == "-2.00 KiB"


# -- dtypes ----------------------------------------------------------------------------------------------


def test_none_is_float32_not_numpys_float64():
    """`np.dtype('float64') == None` is True in numpy: comparing before asking would take None for float64."""
    assert as_dtype(None) == np.float32
    assert as_dtype("float64") == np.float64
    assert flag_of(None) == 0
    assert is_floating(None)


@pytest.mark.parametrize("flag", FLAGS)
def test_each_dtype_has_its_number_and_its_name(flag):
    dtype = FLAGS[flag]
    assert flag_of(dtype) == flag
    assert as_dtype(str(dtype)) == dtype
    assert as_dtype(dtype) == dtype
    assert as_dtype(dtype.type) == dtype


def test_names_are_numpys_as_in_mxnet():
    for name in ("f", "<f4", "d", "e", "i4", "u1", "?", "half", "single", "double", "float", "int"):
        assert as_dtype(name) == np.dtype(name)


def test_numbers_are_mxnets():
    wanted = {
        "float32": 0,
        "float64": 1,
        "float16": 2,
        "uint8": 3,
        "int32": 4,
        "int8": 5,
        "int64": 6,
        "bool": 7,
    }
    assert {n: flag_of(n) for n in wanted} == wanted
    assert flag_of(ml_dtypes.bfloat16) == 12


def test_only_floating_types_have_gradients():
    floating = {"float16", "float32", "float64", "bfloat16"}
    assert {str(d) for d in FLAGS.values() if is_floating(d)} == floating
    assert is_floating(float)
    assert not is_floating(int)


@pytest.mark.parametrize("kind", ["float23", "Float32", "", "(", "f,i", ">f4", "complex64", "object", "str"])
def test_unsupported_names_are_refused(kind):
    with pytest.raises(DTypeError, match="float32"):
        as_dtype(kind)


@pytest.mark.parametrize(
    "kind", [np.complex64, "O", object, np.uint16, np.dtype("S4"), np.dtype(">f4"), 3, [1], {}]
)
def test_unsupported_types_are_refused(kind):
    with pytest.raises(DTypeError, match="float32") as caught:
        as_dtype(kind)
    assert isinstance(caught.value, TypeError)


def test_a_near_name_is_suggested():
    with pytest.raises(DTypeError, match="Did you mean 'float16'"):
        as_dtype("flaot16")


# -- devices ---------------------------------------------------------------------------------------------


def test_contexts_are_equal_by_kind_and_number():
    assert mx.cpu() == Context("cpu", 0) == Context(mx.cpu())
    assert mx.cpu(1) != mx.cpu(0) != mx.gpu(0)
    assert mx.cpu() != "cpu(0)"
    assert len({mx.cpu(), mx.cpu(0), mx.gpu(0), mx.gpu(1)}) == 3
    assert (repr(mx.gpu(2)), str(mx.cpu())) == ("gpu(2)", "cpu(0)")
    kinds = ("cpu", "gpu", "cpu_pinned", "cpu_shared")
    assert [Context(kind).device_typeid for kind in kinds] == [1, 2, 3, 5]
    assert mx.nd.zeros((2,), ctx=Context("cpu_shared", 0)).context == Context("cpu_shared")
    assert Context(mx.gpu(3)).device_id == 3


def test_a_with_block_changes_the_default_of_its_thread_only():
    seen = []
    with mx.gpu(1):
        assert current_context() == mx.gpu(1)
        with mx.cpu(2):
            assert current_context() == mx.cpu(2)
        assert current_context() == mx.gpu(1)
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
        with pytest.raises(KeyError), mx.gpu(5):
            raise KeyError
        assert current_context() == mx.gpu(1)
    assert seen == [mx.cpu(0)]
    assert current_context() == mx.cpu(0)


@pytest.mark.parametrize("number", [-1, 1.0, "0", None, True])
def test_a_device_number_is_a_natural_number(number):
    with pytest.raises(DeviceError, match="0 or more"):
        Context("cpu", number)


def test_an_unknown_device_is_named():
    with pytest.raises(DeviceError, match=r"'gqu'.*Did you mean 'gpu'"):
        Context("gqu")


# -- settings --------------------------------------------------------------------------------------------

NAMES = ("ENGINE", "CPU_WORKERS", "BLAS_THREADS", "MAX_PENDING", "BULK_SIZE", "CHECK_PLAN")


@pytest.fixture
def environment(monkeypatch):
    for name in (*(f"MXLITE_{n}" for n in NAMES), "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


@pytest.mark.parametrize("empty", [False, True])
def test_defaults_also_for_empty_variables(environment, monkeypatch, empty):
    monkeypatch.setattr(config, "available_cores", lambda: 16)
    if empty:
        for name in NAMES:
            environment(f"MXLITE_{name}", "")
    assert config.engine_kind() == "threaded"
    assert (config.cpu_workers(), config.max_pending(), config.bulk_size()) == (2, 4096, 64)
    assert config.blas_threads() == 8
    assert config.check_plan() is False


def test_the_environment_is_read_when_asked(environment):
    for name, value in dict(zip(NAMES, ("naive", "3", "5", "10", "1", "1"))).items():
        environment(f"MXLITE_{name}", value)
    assert config.engine_kind() == "naive"
    assert (config.cpu_workers(), config.max_pending(), config.bulk_size()) == (3, 10, 1)
    assert config.blas_threads() == 5
    assert config.check_plan() is True
    environment("MXLITE_CPU_WORKERS", "4")
    assert config.cpu_workers() == 4


def test_workers_and_blas_share_the_cores(environment, monkeypatch):
    monkeypatch.setattr(config, "available_cores", lambda: 8)
    environment("MXLITE_CPU_WORKERS", "3")
    assert config.blas_threads() == 2
    environment("MXLITE_CPU_WORKERS", "50")
    assert config.blas_threads() == 1
    monkeypatch.setattr(config, "available_cores", lambda: 1)
    assert config.blas_threads() == 1


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_what_the_user_told_blas_stands_unless_told_otherwise_here(environment, name):
    environment(name, "7")
    assert config.blas_threads() is None
    environment("MXLITE_BLAS_THREADS", "2")
    assert config.blas_threads() == 2


@pytest.mark.parametrize(
    "name, read, value, text",
    [
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "0", "at least 1, got 0"),
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "two", "whole number, got 'two'"),
        ("MXLITE_CPU_WORKERS", config.cpu_workers, "2.5", "whole number"),
        ("MXLITE_BLAS_THREADS", config.blas_threads, "-1", "at least 1"),
        ("MXLITE_MAX_PENDING", config.max_pending, "0", "at least 1"),
        ("MXLITE_BULK_SIZE", config.bulk_size, "0", "at least 1"),
        ("MXLITE_BULK_SIZE", config.bulk_size, " ", "whole number"),
        ("MXLITE_CHECK_PLAN", config.check_plan, "yes", "whole number"),
        ("MXLITE_CHECK_PLAN", config.check_plan, "-1", "at least 0"),
        ("MXLITE_CHECK_REWRITES", config.check_rewrites, "yes", "whole number"),
        ("MXLITE_ENGINE", config.engine_kind, "naiv", "Did you mean 'naive'"),
        ("MXLITE_ENGINE", config.engine_kind, "NaiveEngine", "'threaded' or 'naive'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(environment, name, read, value, text):
    environment(name, value)
    with pytest.raises(MXLiteError, match=text) as caught:
        read()
    assert name in str(caught.value)


# -- errors ----------------------------------------------------------------------------------------------


def test_every_error_is_an_mxlite_error_and_in_the_tree_of_the_docstring():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and kind.__module__ == errors.__name__ and name == kind.__name__:
            assert issubclass(kind, MXLiteError)
            assert issubclass(kind, RuntimeError)
            assert f" {name} " in errors.__doc__
            for base in kind.__bases__:
                if base.__module__ == "builtins" and kind is not MXLiteError:
                    line = next(x for x in errors.__doc__.splitlines() if f" {name} " in x)
                    assert base.__name__ in line.partition(" (")[2].partition(")")[0].split(", ")
    assert errors.MXNetError is MXLiteError


# What may raise an exception of Python's own, and why. All else raises one of `core.errors`.
OF_THE_SYSTEM = {"OSError", "FileNotFoundError", "IsADirectoryError", "PermissionError", "ImportError"}
OF_PROTOCOLS = {
    "AttributeError",
    "BufferError",
    "EOFError",
}  # callers of getattr, dlpack and read expect these
OF_OURS = {"AssertionError"}  # "for ourselves only", and of helpers of tests
SIGNALS = {"StopIteration", "KeyboardInterrupt", "LookupError", "NotImplementedError"}  # without a message
BUILTIN_RAISES = {
    "backends/cpu/kernel_row.py": {"KeyError"},  # of a Mapping
    "backends/cpu/onednn/primitive.py": {"RuntimeError"},  # a mistake of ours
    "backends/gpu/runtime/array.py": {
        "TypeError",
        "ValueError",
        "IndexError",
    },  # what numpy's arrays raise, for kernels
    "backends/gpu/handwritten/elements.py": {"ValueError"},  # likewise
    "core/machine_code/native.py": {"KeyError"},  # a mistake of ours
    "graph/attrs.py": {"TypeError", "ValueError"},  # `parse` makes an OpAttributeError of them
    "memplan/files/cache.py": {"TypeError", "ValueError"},  # `load` takes them for "not kept"
    "memplan/compiled.py": {"NotImplementedError"},  # ours: code that the compiler does not know
    "ndarray/operators/functions.py": {"KeyError"},  # of a Mapping
    "ops/control/control.py": {"NotImplementedError"},  # a mistake of ours
    "ops/control/subgraph.py": {"ValueError"},  # as those of graph/attrs.py
    "te/moves.py": {"TypeError", "ValueError"},  # what numpy's arrays raise, for kernels
}


def builtin_raises(text):
    """(name, line) of the exceptions of Python's own that are raised and not caught by the same function."""
    kinds = {n for n, x in vars(builtins).items() if isinstance(x, type) and issubclass(x, BaseException)}
    found = []

    def look(node, caught):
        for child in ast.iter_child_nodes(node):
            inside = caught
            if isinstance(child, (ast.FunctionDef, ast.Lambda)):
                inside = frozenset()
            elif isinstance(node, ast.Try) and child in node.body:
                types = (h.type for h in node.handlers if h.type)
                inside = caught | {n.id for t in types for n in ast.walk(t) if isinstance(n, ast.Name)}
            if isinstance(child, ast.Raise) and child.exc is not None:
                called = isinstance(child.exc, ast.Call)
                made = child.exc.func if called else child.exc
                if (
                    isinstance(made, ast.Name)
                    and made.id in kinds - inside
                    and (called or made.id not in SIGNALS)
                ):
                    found.append((made.id, child.lineno))
            look(child, inside)

    look(ast.parse(text), frozenset())
    return found


def test_nobody_meets_an_error_that_is_not_of_the_tree():
    root, used = Path(mx.__file__).parent, set()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        allowed = BUILTIN_RAISES.get(name, set())
        for kind, line in builtin_raises(path.read_text(encoding="utf-8")):
            used.add((name, kind))
            known = allowed | OF_THE_SYSTEM | OF_PROTOCOLS | OF_OURS
            assert kind in known, f"mxlite/{name}:{line} raises {kind}: take an error of mxlite.core.errors."
    listed = {(name, kind) for name, kinds in BUILTIN_RAISES.items() for kind in kinds}
    assert listed <= used, f"no longer raised: {sorted(listed - used)}"


def test_the_search_for_builtin_errors_finds_them():
    caught = "try:\n    raise ValueError('x')\nexcept (KeyError, ValueError):\n    raise TypeError('y')"
    assert builtin_raises(caught) == [("TypeError", 4)]
    nested = "try:\n    def f():\n        raise ValueError\nexcept ValueError:\n    raise"
    assert builtin_raises(nested) == [("ValueError", 3)]
    assert builtin_raises("def f():\n    raise NotImplementedError\n    raise ShapeError('x')") == []


@pytest.mark.parametrize(
    "wrong, kind, says",
    [
        (lambda: mx.nd.ones((2, 3))[5], IndexError, "index 5"),
        (lambda: mx.nd.ones((2, 3))[None, ..., ...], IndexError, "at most one"),
        (lambda: mx.sym.Variable("x")[3], IndexError, "1 outputs; there is no number 3"),
        (lambda: mx.nd.ones(2) + "a", TypeError, "not with str"),
        (lambda: len(mx.nd.array(1.0)), TypeError, "without axes"),
        (
            lambda: mx.optimizer.Optimizer().update(0, None, None, None),
            NotImplementedError,
            "must define update",
        ),
        (lambda: mx.mod.BaseModule().bind([]), NotImplementedError, r"its class must define bind\(\)"),
        (lambda: mx.lr_scheduler.FactorScheduler(5, 1.5), ValueError, "above 1"),
        (lambda: mx.recordio.MXRecordIO("x", "a"), ValueError, "'r' to read"),
        (lambda: mx.nd.save("x", {1: mx.nd.ones(2)}), TypeError, "names of saved arrays are str, got 1"),
    ],
)
def test_errors_of_the_tree_are_what_python_would_raise(wrong, kind, says):
    with pytest.raises(kind, match=says) as caught:
        wrong()
    assert isinstance(caught.value, MXLiteError)


def test_a_key_that_a_file_lacks_is_said_without_quotes(tmp_path):
    with mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w") as file:
        file.write_idx(3, b"x")
    with mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r") as file:
        with pytest.raises(KeyError, match=r"^.*a\.idx has no record 4; it has 1 keys\.$") as caught:
            file.read_idx(4)
    assert isinstance(caught.value, mx.UnknownNameError)


def test_nearest_suggests_one_candidate_or_nothing():
    assert nearest("weigth", ["bias", "weight", "weights"]) == " Did you mean 'weight'?"
    assert nearest("zzz", ["bias", "weight"]) == ""
    assert nearest("x", []) == ""
    assert nearest("fc1_bais", iter(["fc1_bias"])) == " Did you mean 'fc1_bias'?"


def test_the_nearest_attribute_is_looked_for_when_the_message_is_read(monkeypatch):
    monkeypatch.setattr(errors, "nearest", lambda *_: pytest.fail("nobody has read the message"))
    modules, name = (mx.sym, mx.nd, mx.nd.op, mx.nd.contrib, mx.ops), "transpos"
    for module in modules:
        assert not hasattr(module, name)
    monkeypatch.undo()
    for module in modules[:3]:
        with pytest.raises(AttributeError, match=r"no .*'transpos'.* Did you mean 'transpose'\?"):
            getattr(module, name)


# -- files -----------------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "model.params"
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" whole")
    assert path.read_bytes() == b"half whole"
    assert os.listdir(tmp_path) == ["model.params"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "model.params"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.params"]


def test_a_reader_has_the_old_file_until_it_opens_anew(tmp_path):
    path = tmp_path / "model.params"
    path.write_bytes(b"old")
    with open(path, "rb") as reader:
        with replacing(str(path)) as file:
            file.write(b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.name != "posix", reason="POSIX rights")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "a") as file:
            file.write(b"")
        (tmp_path / "b").touch()
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    a, b = (stat.S_IMODE((tmp_path / n).stat().st_mode) for n in "ab")
    assert a == b == 0o666 & ~mask


def test_text_is_utf8_and_its_line_ends_stay(tmp_path):
    with replacing(tmp_path / "net.json", "w") as file:
        file.write("ünï\n\r\nx")
    assert (tmp_path / "net.json").read_bytes() == "ünï\n\r\nx".encode()


def test_a_name_without_a_folder_means_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with replacing("here") as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == ["here"]


def test_a_missing_folder_is_an_error_at_once(tmp_path):
    path = tmp_path / "no" / "x"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        raise AssertionError("the block must not run")
    assert caught.value.filename == str(path)


def test_a_small_file_takes_little_memory_whatever_may_be_read():
    class Counted(io.BytesIO):
        asked = 0

        def read(self, size=-1):
            self.asked = max(self.asked, size)
            return super().read(size)

    content = bytes(3_000_000)
    for most, found in ((1 << 40, content), (2_500_000, content[:2_500_000]), (0, b"")):
        file = Counted(content)
        assert read_at_most(file, most) == found and file.asked <= 1 << 20


def test_a_target_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError), replacing(tmp_path / "folder") as file:
        file.write(b"x")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc")
@pytest.mark.parametrize("lasting", [True, False])
def test_files_that_are_written_leave_nothing_open(tmp_path, lasting):
    (tmp_path / f".x.mxlite-{files._machine()}-abc.tmp").touch()  # of a process that was killed
    (tmp_path / "folder").mkdir()
    before = sorted(os.listdir("/proc/self/fd"))
    with replacing(tmp_path / "x", lasting=lasting) as file:
        file.write(b"x")
    with pytest.raises(OSError), replacing(tmp_path / "folder", lasting=lasting) as file:
        file.write(b"x")
    with pytest.raises(KeyError), replacing(tmp_path / "x", lasting=lasting) as file:
        raise KeyError
    check_writable(tmp_path / "x")
    assert sorted(os.listdir("/proc/self/fd")) == before and sorted(os.listdir(tmp_path)) == ["folder", "x"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(path)
        with replacing(path) as file:
            file.write(b"through")
        assert os.read(reader, 99) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(os.name != "posix", reason="folders are synced on POSIX")
@pytest.mark.parametrize("code, says", [(errno.EIO, True), (errno.EINVAL, False)])
def test_a_name_that_did_not_reach_the_disk_is_told(tmp_path, monkeypatch, code, says):
    """Some file systems cannot sync a folder; that is no failure."""
    fsync = os.fsync

    def failing(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=os.strerror(code)) if says else contextlib.nullcontext():
        with replacing(tmp_path / "x") as file:
            file.write(b"x")
    assert (tmp_path / "x").read_bytes() == b"x"


def test_collection_pauses_until_the_last_one_has_left():
    assert gc.isenabled()
    inner, left = threading.Event(), threading.Event()

    def stay() -> None:
        with no_collection():
            inner.set()
            left.wait()

    other = threading.Thread(target=stay)
    with no_collection():
        other.start()
        inner.wait()
        assert not gc.isenabled()
    assert not gc.isenabled()  # the other is in there still
    left.set()
    other.join()
    assert gc.isenabled()


OLD = """
import gc
from mxlite.core.process.collection import grow_old
kept = [[] for _ in range(100)]
grow_old()
young = {id(o) for generation in (0, 1) for o in gc.get_objects(generation)}
assert not young.intersection(map(id, kept)) and gc.get_freeze_count() == 0
gc.freeze()
grow_old()
assert gc.get_freeze_count() > 0, "what somebody has frozen is thawed"
"""


def test_what_grows_old_is_not_looked_at_with_what_is_young():
    subprocess.run([sys.executable, "-c", OLD], check=True)


def test_to_import_mxlite_loads_no_kernels():
    """They are most of its files; the first bind wants them."""
    loaded = "import sys, mxlite; print('mxlite.backends.cpu.kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "False\n"


def test_collection_that_somebody_has_turned_off_stays_off():
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
